// SPDX-License-Identifier: GPL-2.0
/* What the ports of one bridge share: windows, scratchpads, doorbells, its link, its events. See struct bridge. */
#include "bridge.h"

#include "life.h"
#include "messages.h"
#include "port.h"

#include <linux/bitops.h>
#include <linux/ntb.h>
#include <linux/slab.h>

/* How many of this end's peers have a lower port number. */
static u32 peers_below(struct ntb_dev *ntb, int number)
{
	u32 below = 0;
	int peer;

	for (peer = 0; peer < ntb_peer_port_count(ntb); peer++)
		below += ntb_peer_port_number(ntb, peer) < number;
	return below;
}

/* The place of this end, or of a peer, among all ends. */
static u32 own_rank(struct ntb_dev *ntb)
{
	return peers_below(ntb, ntb_port_number(ntb));
}

static u32 peer_rank(struct ntb_dev *ntb, int peer)
{
	int number = ntb_peer_port_number(ntb, peer);

	return peers_below(ntb, number) + (ntb_port_number(ntb) < number);
}

/* Port numbers of more than two ends tell them apart; of two both may be 0. */
static bool ranks_are_known(struct ntb_dev *ntb)
{
	int peer, other, own = ntb_port_number(ntb);

	for (peer = 0; peer < ntb_peer_port_count(ntb); peer++) {
		int number = ntb_peer_port_number(ntb, peer);

		if (own < 0 || number < 0 || number == own)
			return false;
		for (other = 0; other < peer; other++)
			if (ntb_peer_port_number(ntb, other) == number)
				return false;
	}
	return true;
}

/* The nth of these bits. */
static u64 nth_bit(u64 bits, u32 n)
{
	while (n--)
		bits &= bits - 1;
	return bits & -bits;
}

/* How session words go, and whether they can. */
static int choose_words(struct bridge *bridge)
{
	struct ntb_dev *ntb = bridge->ntb;
	int pads = ntb_spad_count(ntb), registers = ntb_msg_count(ntb);

	bridge->outbound = !ntb->ops->mw_set_trans;
	if (!bridge->outbound && pads >= 0 && pads >= bridge->peers)
		return 0;
	if (registers > 0) {
		bridge->registers = registers;
		bridge->inbits = ntb_msg_inbits(ntb);
		bridge->outbits = ntb_msg_outbits(ntb);
		return 0;
	}
	if (bridge->outbound)
		dev_err(&ntb->dev, "this bridge's peer translates its windows, and it has no message register to tell it where to\n");
	else
		dev_err(&ntb->dev, "this bridge has neither a scratchpad for each of its %u peers nor a message register\n",
			bridge->peers);
	return -EOPNOTSUPP;
}

static int choose_bells(struct bridge *bridge)
{
	u64 bells = ntb_db_valid_mask(bridge->ntb);
	u32 each = bridge->registers ? 1 : 2;
	bool apart = hweight64(bells) >= (bridge->peers + 1) * each && (bridge->peers > 1 || bridge->registers);
	u32 peer, rank = apart ? own_rank(bridge->ntb) : 0;

	if (hweight64(bells) < each) {
		dev_err(&bridge->ntb->dev, "this bridge has fewer doorbells than %u\n", each);
		return -EOPNOTSUPP;
	}
	/* A message is heard of without a doorbell. */
	bridge->data_bell = nth_bit(bells, rank * each);
	bridge->session_bell = bridge->registers ? 0 : nth_bit(bells, rank * each + 1);
	for (peer = 0; peer < bridge->peers; peer++) {
		struct port *port = bridge->port[peer];

		rank = apart ? peer_rank(bridge->ntb, peer) : 0;
		port->data_bell = nth_bit(bells, rank * each);
		port->session_bell = bridge->registers ? 0 : nth_bit(bells, rank * each + 1);
	}
	return 0;
}

static void share_out(struct bridge *bridge)
{
	u32 peer, own = own_rank(bridge->ntb);

	for (peer = 0; peer < bridge->peers; peer++) {
		struct port *port = bridge->port[peer];
		u32 rank = peer_rank(bridge->ntb, peer);

		if (bridge->peers == 1)
			continue;
		port->number = peers_below(bridge->ntb, ntb_peer_port_number(bridge->ntb, peer));
		port->own_number = own < rank ? own : own - 1;
	}
}

static void on_link(void *context)
{
	struct bridge *bridge = context;
	u32 peer;

	for (peer = 0; peer < bridge->peers; peer++)
		life_link(bridge->port[peer]);
}

static void on_doorbell(void *context, int vector)
{
	struct bridge *bridge = context;
	u64 bits = ntb_db_read(bridge->ntb);
	u32 peer;

	ntb_db_clear(bridge->ntb, bits);
	for (peer = 0; peer < bridge->peers; peer++) {
		if (bits & bridge->session_bell)
			life_step(bridge->port[peer]);
		if (bits & bridge->data_bell)
			life_hear(bridge->port[peer]);
	}
}

static void on_message(void *context)
{
	messages_came(context);
}

static const struct ntb_ctx_ops bridge_ops = {
	.link_event = on_link,
	.db_event = on_doorbell,
	.msg_event = on_message,
};

static int listen(struct bridge *bridge)
{
	u64 bells = bridge->data_bell | bridge->session_bell;
	struct ntb_dev *ntb = bridge->ntb;
	int error;

	/* What a driver says of bridges with errata; there is nothing else to use. */
	if (ntb_db_is_unsafe(ntb) || ntb_spad_is_unsafe(ntb))
		dev_warn(&ntb->dev, "this bridge's driver advises against its doorbells or scratchpads, which are used all the same\n");
	error = ntb_set_ctx(ntb, bridge, &bridge_ops);
	if (error)
		return error;
	ntb_db_set_mask(ntb, ntb_db_valid_mask(ntb) & ~bells);
	ntb_db_clear_mask(ntb, bells);
	messages_start(bridge);
	return 0;
}

static int make_ports(struct bridge *bridge)
{
	u32 peer;
	int error;

	for (peer = 0; peer < bridge->peers; peer++) {
		bridge->port[peer] = port_new(bridge, peer);
		if (!bridge->port[peer])
			return -ENOMEM;
	}
	share_out(bridge);
	error = choose_words(bridge) ?: choose_bells(bridge);
	for (peer = 0; peer < bridge->peers && !error; peer++)
		error = port_open(bridge->port[peer]);
	return error;
}

struct bridge *bridge_new(struct ntb_dev *ntb)
{
	int error, peers = ntb_peer_port_count(ntb);
	struct bridge *bridge;

	if (peers < 1)
		return ERR_PTR(-ENODEV);
	if (peers > 1 && !ranks_are_known(ntb)) {
		dev_err(&ntb->dev, "this bridge's ends do not have numbers of their own\n");
		return ERR_PTR(-EINVAL);
	}
	bridge = kzalloc(struct_size(bridge, port, peers), GFP_KERNEL);
	if (!bridge)
		return ERR_PTR(-ENOMEM);
	bridge->ntb = ntb;
	bridge->peers = peers;
	mutex_init(&bridge->lock);
	messages_init(bridge);
	error = make_ports(bridge) ?: listen(bridge);
	if (!error)
		return bridge;
	bridge_free(bridge);
	return ERR_PTR(error);
}

void bridge_free(struct bridge *bridge)
{
	u32 peer;

	/* Ports hear of messages until they have ended. */
	for (peer = 0; peer < bridge->peers; peer++)
		if (bridge->port[peer])
			port_gone(bridge->port[peer]);
	ntb_clear_ctx(bridge->ntb);
	messages_stop(bridge);
	for (peer = 0; peer < bridge->peers; peer++) {
		if (!bridge->port[peer])
			continue;
		life_detach(bridge->port[peer]);
		port_put(bridge->port[peer]);
	}
	kfree(bridge);
}

int bridge_link(struct bridge *bridge, struct port *port, bool on)
{
	int error = 0;

	mutex_lock(&bridge->lock);
	if (on != port->linked)
		bridge->linked += on ? 1 : -1;
	port->linked = on;
	if (on)
		error = ntb_link_enable(bridge->ntb, NTB_SPEED_AUTO, NTB_WIDTH_AUTO);
	else if (!bridge->linked)
		error = ntb_link_disable(bridge->ntb);
	mutex_unlock(&bridge->lock);
	return error;
}

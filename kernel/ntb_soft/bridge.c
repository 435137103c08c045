// SPDX-License-Identifier: GPL-2.0
/* Links between ends whose registers are in memory that all of them share. */
#include "bridge.h"

#include "compat.h"

#include <linux/pci.h>
#include <linux/random.h>

static struct soft_line *own_line(struct soft_link *link)
{
	return &link->bridge->own->line[link->number];
}

static struct soft_line *peer_line(struct soft_link *link)
{
	return &link->peer->line[link->own_number];
}

/* The peers that this bridge's links are up to, one bit each. */
static u64 links_up(struct soft_bridge *bridge)
{
	u64 up = 0;
	u32 i;

	for (i = 0; i < bridge->shape.peers; i++)
		if (READ_ONCE(bridge->link[i].up))
			up |= BIT_ULL(i);
	return up;
}

static void notify_all(struct soft_bridge *bridge)
{
	u32 i;

	for (i = 0; i < bridge->shape.peers; i++)
		bridge->notify(&bridge->link[i]);
}

/* This end's next life with a peer, which sees, if it is in the last one, that it has ended. */
static void renew_session(struct soft_link *link)
{
	struct soft_bridge *bridge = link->bridge;

	lockdep_assert_held(&bridge->lock);
	link->session = link->session + 1 ?: 1;
	link->accepted = 0;
	WRITE_ONCE(own_line(link)->accepted, 0);
	if (!(links_up(bridge) & ~BIT_ULL(link->number)))
		WRITE_ONCE(bridge->own->doorbell, 0);
	WRITE_ONCE(own_line(link)->session, bridge->enabled ? link->session : 0);
	mod_timer(&link->training, jiffies + msecs_to_jiffies(SOFT_TRAINING));
}

static void trained(struct timer_list *timer)
{
	soft_bridge_look(container_of(timer, struct soft_link, training)->bridge);
}

/* Links that are up are lost, and train again. */
static void flap(struct timer_list *timer)
{
	struct soft_bridge *bridge = container_of(timer, struct soft_bridge, flapping);
	unsigned long flags;
	u64 lost;
	u32 i;

	spin_lock_irqsave(&bridge->lock, flags);
	lost = bridge->flaps ? links_up(bridge) : 0;
	for (i = 0; i < bridge->shape.peers; i++)
		if (lost & BIT_ULL(i))
			renew_session(&bridge->link[i]);
	if (lost)
		bridge->flaps--;
	if (bridge->flaps)
		mod_timer(&bridge->flapping, jiffies + msecs_to_jiffies(bridge->shape.flap_ms));
	spin_unlock_irqrestore(&bridge->lock, flags);
	if (lost) {
		notify_all(bridge);
		soft_bridge_look(bridge);
	}
}

/* Takes a step towards what both ends want of the link; whether it is up now. */
static bool agree(struct soft_link *link)
{
	struct soft_bridge *bridge = link->bridge;
	u32 theirs = READ_ONCE(peer_line(link)->session);
	bool accepts = READ_ONCE(peer_line(link)->accepted) == link->session;

	lockdep_assert_held(&bridge->lock);
	if (!bridge->enabled || timer_pending(&link->training) || !bridge->connected(bridge))
		theirs = 0;
	if (link->up && (link->accepted != theirs || !accepts)) {
		renew_session(link);
		return false;
	}
	if (link->accepted != theirs) {
		link->accepted = theirs;
		WRITE_ONCE(own_line(link)->accepted, theirs);
		bridge->notify(link);
	}
	return theirs && accepts;
}

/* The links that have come up or gone down, one bit each. */
static u64 look_at_links(struct soft_bridge *bridge)
{
	u64 before = links_up(bridge);
	u32 i;

	lockdep_assert_held(&bridge->lock);
	for (i = 0; i < bridge->shape.peers; i++) {
		bool up = agree(&bridge->link[i]);

		if (bridge->posted)
			up = soft_posted_agree(bridge->posted, up);
		WRITE_ONCE(bridge->link[i].up, up);
	}
	return links_up(bridge) ^ before;
}

bool soft_bridge_look(struct soft_bridge *bridge)
{
	bool doorbell, message;
	unsigned long flags;
	u64 changed, up;
	u32 i;

	spin_lock_irqsave(&bridge->lock, flags);
	changed = look_at_links(bridge);
	up = links_up(bridge);
	/* Of the first link's life, or the last one's. */
	if (changed && (!up || up == changed))
		bridge->pending = 0;
	if (up)
		bridge->pending |= xchg(&bridge->own->doorbell, 0) & soft_doorbells(&bridge->shape);
	doorbell = bridge->pending & ~bridge->masked;
	message = soft_messages_came(bridge);
	spin_unlock_irqrestore(&bridge->lock, flags);
	for (i = 0; i < bridge->shape.peers; i++)
		if (changed & BIT_ULL(i))
			bridge->notify(&bridge->link[i]);
	if (changed)
		ntb_link_event(&bridge->ntb);
	if (doorbell)
		ntb_db_event(&bridge->ntb, 0);
	if (message)
		ntb_msg_event(&bridge->ntb);
	return changed || doorbell || message;
}

static int soft_port_number(struct ntb_dev *ntb)
{
	return to_soft_bridge(ntb)->port;
}

static int soft_peer_port_count(struct ntb_dev *ntb)
{
	return to_soft_bridge(ntb)->shape.peers;
}

static int soft_peer_port_number(struct ntb_dev *ntb, int peer)
{
	if (!soft_link_to(ntb, peer))
		return -EINVAL;
	return peer < to_soft_bridge(ntb)->port ? peer : peer + 1;
}

static int soft_peer_port_idx(struct ntb_dev *ntb, int port)
{
	struct soft_bridge *bridge = to_soft_bridge(ntb);

	if (port < 0 || port > bridge->shape.peers || port == bridge->port)
		return -EINVAL;
	return soft_number(port, bridge->port);
}

static u64 soft_link_is_up(struct ntb_dev *ntb, enum ntb_speed *speed, enum ntb_width *width)
{
	u64 up = links_up(to_soft_bridge(ntb));

	if (speed)
		*speed = up ? NTB_SPEED_GEN4 : NTB_SPEED_NONE;
	if (width)
		*width = up ? NTB_WIDTH_16 : NTB_WIDTH_NONE;
	return up;
}

static int set_link(struct soft_bridge *bridge, bool on)
{
	unsigned long flags;
	u32 i;

	spin_lock_irqsave(&bridge->lock, flags);
	if (on != bridge->enabled) {
		bridge->enabled = on;
		for (i = 0; i < bridge->shape.peers; i++)
			renew_session(&bridge->link[i]);
	}
	spin_unlock_irqrestore(&bridge->lock, flags);
	notify_all(bridge);
	bridge->notify_own(bridge);
	return 0;
}

static int soft_link_enable(struct ntb_dev *ntb, enum ntb_speed speed, enum ntb_width width)
{
	return set_link(to_soft_bridge(ntb), true);
}

static int soft_link_disable(struct ntb_dev *ntb)
{
	return set_link(to_soft_bridge(ntb), false);
}

/* What does not depend on the shape, and on what a bridge has. */
static const struct ntb_dev_ops soft_ops = {
	.link_is_up = soft_link_is_up,
	.link_enable = soft_link_enable,
	.link_disable = soft_link_disable,
};

static void init_operations(struct soft_bridge *bridge)
{
	bridge->ops = soft_ops;
	soft_windows_init(bridge);
	soft_registers_init(bridge);
	if (bridge->shape.messages)
		soft_messages_init(bridge);
	/* Two ends need no numbers: the core makes some up. */
	if (bridge->shape.peers > 1) {
		bridge->ops.port_number = soft_port_number;
		bridge->ops.peer_port_count = soft_peer_port_count;
		bridge->ops.peer_port_number = soft_peer_port_number;
		bridge->ops.peer_port_idx = soft_peer_port_idx;
	}
	bridge->ntb.ops = &bridge->ops;
}

void soft_bridge_init(struct soft_bridge *bridge, struct pci_dev *pci, const struct soft_shape *shape)
{
	u32 i;

	spin_lock_init(&bridge->lock);
	timer_setup(&bridge->flapping, flap, 0);
	bridge->ntb.pdev = pci;
	bridge->ntb.topo = NTB_TOPO_NONE;
	bridge->shape = *shape;
	init_operations(bridge);
	for (i = 0; i < shape->peers; i++) {
		bridge->link[i].bridge = bridge;
		bridge->link[i].number = i;
		timer_setup(&bridge->link[i].training, trained, 0);
		/* Not a number of an earlier life of this end, which the peer may still believe in. */
		bridge->link[i].session = get_random_u32();
	}
}

void soft_bridge_start(struct soft_bridge *bridge)
{
	bridge->flaps = bridge->shape.flap_ms ? bridge->shape.flaps : 0;
	if (bridge->flaps)
		mod_timer(&bridge->flapping, jiffies + msecs_to_jiffies(bridge->shape.flap_ms));
}

void soft_bridge_stop(struct soft_bridge *bridge)
{
	u32 i;

	compat_timer_shutdown_sync(&bridge->flapping);
	for (i = 0; i < bridge->shape.peers; i++)
		compat_timer_shutdown_sync(&bridge->link[i].training);
}

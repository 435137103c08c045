/* SPDX-License-Identifier: GPL-2.0 */
#ifndef CROSSLANE_BRIDGE_H
#define CROSSLANE_BRIDGE_H

#include <linux/mutex.h>
#include <linux/types.h>
#include <linux/workqueue.h>

struct ntb_dev;
struct port;

/*
 * One NTB bridge, with a port for each of its peers.
 *
 * What a bridge has for all its peers together is shared out by numbers that all ends work out alike. Each end counts its peers in the
 * order of their port numbers: `number` is the peer's among this end's, `own_number` this end's among that peer's. Of P peers
 *
 *   outbound windows    number, number + P, ... lead to the peer, which calls them own_number, own_number + P, ...
 *   scratchpads         the peer's number own_number is written here, this end's number `number` is written there
 *   doorbells           all ends are ranked by their port numbers: one or two bits for each, which all others ring; where there are too few
 *                       all share the first ones
 *
 * Some bridges ring all peers at once, and who rang is not known: a doorbell only has all ports look whether something is there for them.
 */
struct bridge {
	struct ntb_dev *ntb;
	u32 peers;
	bool outbound;		/* it translates what this host stores through, and the peer's what comes to this host's memory */
	u64 data_bell, session_bell;	/* that peers ring here; see struct port */
	struct mutex lock;	/* `linked`, and each port's */
	u32 linked;		/* ports whose owners want a link */

	/* Message registers, where session words go by them. */
	u32 registers;		/* 0: words go by scratchpads */
	u64 inbits, outbits;	/* status bits, one for each register */
	struct mutex sending;
	struct work_struct receive;

	struct port *port[];	/* of each peer, by its index */
};

/* A bridge and its ports, which hear of its events from now on. */
struct bridge *bridge_new(struct ntb_dev *ntb);
/* It goes away: all its ports are gone. */
void bridge_free(struct bridge *bridge);
/* Whether a port wants a link: the bridge has one while any of them does. */
int bridge_link(struct bridge *bridge, struct port *port, bool on);

#endif

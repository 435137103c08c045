/* SPDX-License-Identifier: GPL-2.0 */
#ifndef CROSSLANE_CONTROL_H
#define CROSSLANE_CONTROL_H

#include "crosslane_ntb.h"

#include <linux/spinlock.h>
#include <linux/types.h>

struct ntb_dev;

/*
 * The first bytes behind window 0, which the modules of both hosts keep for themselves: bridges have few scratchpads and doorbells,
 * some four of each, and a daemon wants more of both; and programs ring programs by it, with no daemon on the way.
 *
 * Each word is stored by the peer's module only, over the window, and is hostile: it is read once and checked. The bridge's own doorbell
 * says that something changed.
 */
#define CONTROL_LEN 65536
#define CONTROL_QUEUE 8192	/* wakes under way; a power of two */

struct control {
	__le32 pad[CROSSLANE_NTB_PADS];
	__le32 bell[CROSSLANE_NTB_DOORBELLS];	/* how often each doorbell was rung */
	__le32 queued;		/* how many wakes the peer has put into the queue */
	__le32 taken;		/* how many of this host's the peer has taken out of its own */
	__le32 missed;		/* how many found the queue full: then all wakers are woken */
	__le32 reserved;
	__le32 queue[CONTROL_QUEUE];	/* handles of wakers, number n at n % CONTROL_QUEUE */
};

static_assert(sizeof(struct control) <= CONTROL_LEN);

/* Both directions of one life of the link. */
struct control_state {
	spinlock_t lock;	/* all; taken in interrupts */
	struct control *own;	/* NULL while there is no life */
	struct control __iomem *peer;
	struct ntb_dev *ntb;
	u64 doorbell;		/* the bridge's, that says that something changed */

	/* What this host has stored at the peer. */
	u32 rung[CROSSLANE_NTB_DOORBELLS];
	u32 queued, missed;
	/* What of the peer's this host has seen. */
	u32 heard[CROSSLANE_NTB_DOORBELLS];
	u32 taken, missed_seen;
};

void control_init(struct control_state *state);
/* Begins a life: `own` was zeroed before the peer knew of this life. */
void control_begin(struct control_state *state, struct control *own, struct control __iomem *peer, struct ntb_dev *ntb, u64 doorbell);
void control_end(struct control_state *state);

/* These store at the peer; the last two ring its bridge; false if there is no life. */
bool control_write_pad(struct control_state *state, u32 index, u32 value);
bool control_ring(struct control_state *state, u64 bits);
bool control_wake(struct control_state *state, u32 handle);

u32 control_read_pad(struct control_state *state, u32 index);
/* Doorbells that were rung since this was asked last. */
u64 control_heard(struct control_state *state);

enum control_wakes {
	CONTROL_NONE,
	CONTROL_ONE,	/* *handle is to be woken */
	CONTROL_ALL,	/* some were missed: all are to be woken */
};

/* Whether a wake has come. In any context. */
bool control_has_wake(struct control_state *state);
/* The next wake that has come. At most CONTROL_QUEUE one behind the other, however fast the peer is. */
enum control_wakes control_next_wake(struct control_state *state, u32 *handle);
/* Tells the peer how many wakes were taken. */
void control_acknowledge(struct control_state *state);

#endif

// SPDX-License-Identifier: GPL-2.0
/*
 * Stores that land late, of a pair in one kernel.
 *
 * What an end stores into is memory of its own then, its shadow. A thread compares each shadow now and again with what was in it at the
 * last look: where it differs somebody has stored, and that lands in the peer's memory; everywhere else the shadow follows the peer's
 * memory, for who loads through a window. Scratchpads, messages and doorbells that were set in between land behind the stores. All of a
 * look is done while every other processor stands still (stop_machine()), so that no store is seen without those that were made before it.
 *
 * A store of the value that is there already cannot be seen. It has to land only if the peer has changed that place, and a client that
 * knows so by the bridge knows it by a store that has landed: in a look that brought its shadow up to date. Who knows it otherwise, say a
 * program that has both ends, loses such a store.
 *
 * While the link is down a window reads all ones, and what is stored is lost.
 */
#include "bridge.h"

#include <linux/bitmap.h>
#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/slab.h>
#include <linux/stop_machine.h>
#include <linux/vmalloc.h>

/* What one end has posted. */
struct soft_posted {
	struct soft_bridge *bridge;
	u8 *memory;		/* the peer's, where this end's stores land */
	u8 *shadow;		/* where they are made */
	u8 *seen;		/* what was in the shadow at the last look */
	u64 len;		/* of each of them, bytes */
	u32 doorbell;
	u32 pad[SOFT_PADS];
	DECLARE_BITMAP(pads, SOFT_PADS);	/* scratchpads that were written */
	bool wanted;		/* both ends agree on a life of the link */
	bool readable;		/* in this life the shadow is as the peer's memory */
	bool rings, begins;	/* of the last look: the peer, or this end, is to look at its registers */
};

struct soft_lander {
	struct soft_posted end[2];
	struct task_struct *thread;
	u32 late_us;
};

/* Lands the bytes of one word that differ from what was seen, and has the word follow the peer's memory. */
static void land_word(u64 *shadow, u64 *seen, u64 *memory)
{
	unsigned int i;

	for (i = 0; i < sizeof(u64); i++)
		if (((u8 *)shadow)[i] != ((u8 *)seen)[i])
			((u8 *)memory)[i] = ((u8 *)shadow)[i];
	*shadow = *memory;
	*seen = *memory;
}

static void land_stores(struct soft_posted *posted)
{
	u64 *shadow = (u64 *)posted->shadow, *seen = (u64 *)posted->seen, *memory = (u64 *)posted->memory;
	u64 i;

	for (i = 0; i < posted->len / sizeof(u64); i++)
		if (shadow[i] != seen[i] || memory[i] != seen[i])
			land_word(&shadow[i], &seen[i], &memory[i]);
}

/* Messages that wait in the peer's registers are there now, or lost. Whether there was one. */
static bool land_messages(struct soft_posted *posted, enum soft_message_state state)
{
	struct soft_message *message = posted->bridge->link[0].peer->message;
	bool any = false;
	u32 i;

	for (i = 0; i < SOFT_MESSAGES; i++)
		if (message[i].state == SOFT_POSTED) {
			message[i].state = state;
			any = true;
		}
	return any;
}

static void land_registers(struct soft_posted *posted)
{
	struct soft_registers *registers = posted->bridge->link[0].peer;
	unsigned int pad;

	posted->rings = land_messages(posted, SOFT_FULL) || posted->doorbell;
	for_each_set_bit(pad, posted->pads, SOFT_PADS)
		registers->pad[pad] = posted->pad[pad];
	registers->doorbell |= posted->doorbell;
}

static void forget_registers(struct soft_posted *posted)
{
	land_messages(posted, SOFT_EMPTY);
	posted->doorbell = 0;
	bitmap_zero(posted->pads, SOFT_PADS);
}

static void look_at(struct soft_posted *posted)
{
	posted->rings = false;
	posted->begins = false;
	if (!posted->wanted) {
		memset(posted->shadow, 0xff, posted->len);
	} else if (!posted->readable) {
		memcpy(posted->shadow, posted->memory, posted->len);
		memcpy(posted->seen, posted->memory, posted->len);
		posted->readable = true;
		posted->begins = true;
	} else {
		land_stores(posted);
		land_registers(posted);
	}
	forget_registers(posted);
}

/* Every other processor stands still. */
static int look(void *context)
{
	struct soft_lander *lander = context;

	look_at(&lander->end[0]);
	look_at(&lander->end[1]);
	return 0;
}

static int land(void *context)
{
	struct soft_lander *lander = context;
	int i;

	while (!kthread_should_stop()) {
		usleep_range(lander->late_us / 2, lander->late_us);
		stop_machine(look, lander, NULL);
		for (i = 0; i < 2; i++) {
			struct soft_bridge *bridge = lander->end[i].bridge;

			if (lander->end[i].begins)
				bridge->notify_own(bridge);
			if (lander->end[i].rings)
				bridge->notify(&bridge->link[0]);
		}
	}
	return 0;
}

bool soft_posted_agree(struct soft_posted *posted, bool agreed)
{
	lockdep_assert_held(&posted->bridge->lock);
	if (!agreed)
		posted->readable = false;
	posted->wanted = agreed;
	return posted->readable;
}

void soft_posted_ring(struct soft_posted *posted, u32 bits)
{
	unsigned long flags;

	spin_lock_irqsave(&posted->bridge->lock, flags);
	posted->doorbell |= bits;
	spin_unlock_irqrestore(&posted->bridge->lock, flags);
}

void soft_posted_write_pad(struct soft_posted *posted, u32 pad, u32 value)
{
	unsigned long flags;

	spin_lock_irqsave(&posted->bridge->lock, flags);
	posted->pad[pad] = value;
	__set_bit(pad, posted->pads);
	spin_unlock_irqrestore(&posted->bridge->lock, flags);
}

bool soft_posted_read_pad(struct soft_posted *posted, u32 pad, u32 *value)
{
	unsigned long flags;
	bool written;

	spin_lock_irqsave(&posted->bridge->lock, flags);
	written = test_bit(pad, posted->pads);
	*value = posted->pad[pad];
	spin_unlock_irqrestore(&posted->bridge->lock, flags);
	return written;
}

/* What looks at the bridge from here on sees none of it. */
static void detach(struct soft_posted *posted)
{
	unsigned long flags;

	if (!posted->bridge)
		return;
	spin_lock_irqsave(&posted->bridge->lock, flags);
	posted->bridge->posted = NULL;
	spin_unlock_irqrestore(&posted->bridge->lock, flags);
}

struct soft_lander *soft_lander_start(struct soft_bridge *a, struct soft_bridge *b, u8 *shadows, u64 len, u32 late_us)
{
	struct soft_lander *lander = kzalloc(sizeof(*lander), GFP_KERNEL);
	struct soft_bridge *bridges[] = { a, b };
	int i;

	if (!lander)
		return NULL;
	lander->late_us = late_us;
	for (i = 0; i < 2; i++) {
		struct soft_posted *posted = &lander->end[i];

		posted->bridge = bridges[i];
		posted->memory = bridges[!i]->inbound;
		posted->shadow = shadows + i * len;
		posted->seen = vmalloc(len);
		posted->len = len;
		if (!posted->seen)
			goto stop;
		bridges[i]->posted = posted;
	}
	lander->thread = kthread_run(land, lander, "ntb_soft");
	if (!IS_ERR(lander->thread))
		return lander;
	lander->thread = NULL;
stop:
	soft_lander_stop(lander);
	return NULL;
}

void soft_lander_stop(struct soft_lander *lander)
{
	int i;

	if (!lander)
		return;
	if (lander->thread)
		kthread_stop(lander->thread);
	for (i = 0; i < 2; i++) {
		detach(&lander->end[i]);
		vfree(lander->end[i].seen);
	}
	kfree(lander);
}

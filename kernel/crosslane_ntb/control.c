// SPDX-License-Identifier: GPL-2.0
#include "control.h"

#include <linux/io.h>
#include <linux/ntb.h>
#include <linux/string.h>

/* A word at the peer. */
static void store(__le32 __iomem *word, u32 value)
{
	iowrite32(value, (void __iomem *)word);
}

static u32 load(__le32 *word)
{
	return le32_to_cpu(READ_ONCE(*word));
}

static void ring_bridge(struct control_state *state)
{
	/* Whoever sees the bell sees what was stored before. */
	wmb();
	ntb_peer_db_set(state->ntb, state->doorbell);
}

void control_init(struct control_state *state)
{
	memset(state, 0, sizeof(*state));
	spin_lock_init(&state->lock);
}

void control_begin(struct control_state *state, struct control *own, struct control __iomem *peer, struct ntb_dev *ntb, u64 doorbell)
{
	unsigned long flags;

	spin_lock_irqsave(&state->lock, flags);
	memset(state->rung, 0, sizeof(state->rung));
	memset(state->heard, 0, sizeof(state->heard));
	state->queued = 0;
	state->missed = 0;
	state->taken = 0;
	state->missed_seen = 0;
	state->peer = peer;
	state->ntb = ntb;
	state->doorbell = doorbell;
	state->own = own;
	spin_unlock_irqrestore(&state->lock, flags);
}

void control_end(struct control_state *state)
{
	unsigned long flags;

	spin_lock_irqsave(&state->lock, flags);
	state->own = NULL;
	state->peer = NULL;
	state->ntb = NULL;
	spin_unlock_irqrestore(&state->lock, flags);
}

bool control_write_pad(struct control_state *state, u32 index, u32 value)
{
	unsigned long flags;
	bool alive;

	spin_lock_irqsave(&state->lock, flags);
	alive = state->own;
	if (alive)
		store(&state->peer->pad[index], value);
	spin_unlock_irqrestore(&state->lock, flags);
	return alive;
}

bool control_ring(struct control_state *state, u64 bits)
{
	unsigned long flags;
	bool alive;
	u32 bell;

	spin_lock_irqsave(&state->lock, flags);
	alive = state->own;
	/* Whoever sees the bell sees all that was stored before, by programs, too. */
	wmb();
	for (bell = 0; alive && bell < CROSSLANE_NTB_DOORBELLS; bell++)
		if (bits & BIT_ULL(bell))
			store(&state->peer->bell[bell], ++state->rung[bell]);
	if (alive)
		ring_bridge(state);
	spin_unlock_irqrestore(&state->lock, flags);
	return alive;
}

bool control_wake(struct control_state *state, u32 handle)
{
	unsigned long flags;
	bool alive;

	spin_lock_irqsave(&state->lock, flags);
	alive = state->own;
	if (alive) {
		/* Whoever is woken sees all that was stored before, by programs, too. */
		wmb();
		/* A peer that says nonsense here loses wakes of its own. */
		if (state->queued - load(&state->own->taken) < CONTROL_QUEUE) {
			store(&state->peer->queue[state->queued % CONTROL_QUEUE], handle);
			/* Whoever sees the count sees the handle. */
			wmb();
			store(&state->peer->queued, ++state->queued);
		} else {
			store(&state->peer->missed, ++state->missed);
		}
		ring_bridge(state);
	}
	spin_unlock_irqrestore(&state->lock, flags);
	return alive;
}

u32 control_read_pad(struct control_state *state, u32 index)
{
	unsigned long flags;
	u32 value = 0;

	spin_lock_irqsave(&state->lock, flags);
	if (state->own)
		value = load(&state->own->pad[index]);
	spin_unlock_irqrestore(&state->lock, flags);
	return value;
}

u64 control_heard(struct control_state *state)
{
	unsigned long flags;
	u64 bits = 0;
	u32 bell;

	spin_lock_irqsave(&state->lock, flags);
	for (bell = 0; state->own && bell < CROSSLANE_NTB_DOORBELLS; bell++) {
		u32 rung = load(&state->own->bell[bell]);

		if (rung != state->heard[bell])
			bits |= BIT_ULL(bell);
		state->heard[bell] = rung;
	}
	spin_unlock_irqrestore(&state->lock, flags);
	return bits;
}

bool control_has_wake(struct control_state *state)
{
	unsigned long flags;
	bool has;

	spin_lock_irqsave(&state->lock, flags);
	has = state->own &&
	      (load(&state->own->missed) != state->missed_seen || load(&state->own->queued) != state->taken);
	spin_unlock_irqrestore(&state->lock, flags);
	return has;
}

enum control_wakes control_next_wake(struct control_state *state, u32 *handle)
{
	enum control_wakes result = CONTROL_NONE;
	unsigned long flags;
	u32 missed, queued;

	spin_lock_irqsave(&state->lock, flags);
	if (!state->own)
		goto unlock;
	missed = load(&state->own->missed);
	queued = load(&state->own->queued);
	if (missed != state->missed_seen || queued - state->taken > CONTROL_QUEUE) {
		state->missed_seen = missed;
		state->taken = queued;
		result = CONTROL_ALL;
	} else if (queued != state->taken) {
		/* The handle was stored before the count. */
		rmb();
		*handle = load(&state->own->queue[state->taken++ % CONTROL_QUEUE]);
		result = CONTROL_ONE;
	}
unlock:
	spin_unlock_irqrestore(&state->lock, flags);
	return result;
}

void control_acknowledge(struct control_state *state)
{
	unsigned long flags;

	spin_lock_irqsave(&state->lock, flags);
	if (state->own)
		store(&state->peer->taken, state->taken);
	spin_unlock_irqrestore(&state->lock, flags);
}

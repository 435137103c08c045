// SPDX-License-Identifier: GPL-2.0
/* Operations of an NTB device on doorbells and scratchpads. */
#include "bridge.h"

static u64 soft_db_valid_mask(struct ntb_dev *ntb)
{
	return soft_doorbells(&to_soft_bridge(ntb)->shape);
}

static int soft_db_vector_count(struct ntb_dev *ntb)
{
	return 1;
}

static u64 soft_db_vector_mask(struct ntb_dev *ntb, int vector)
{
	return vector ? 0 : soft_doorbells(&to_soft_bridge(ntb)->shape);
}

static u64 soft_db_read(struct ntb_dev *ntb)
{
	return READ_ONCE(to_soft_bridge(ntb)->pending);
}

static int soft_db_clear(struct ntb_dev *ntb, u64 bits)
{
	struct soft_bridge *bridge = to_soft_bridge(ntb);
	unsigned long flags;

	spin_lock_irqsave(&bridge->lock, flags);
	bridge->pending &= ~bits;
	spin_unlock_irqrestore(&bridge->lock, flags);
	return 0;
}

static u64 soft_db_read_mask(struct ntb_dev *ntb)
{
	return READ_ONCE(to_soft_bridge(ntb)->masked);
}

static int soft_db_set_mask(struct ntb_dev *ntb, u64 bits)
{
	struct soft_bridge *bridge = to_soft_bridge(ntb);
	unsigned long flags;

	if (bits & ~soft_doorbells(&bridge->shape))
		return -EINVAL;
	spin_lock_irqsave(&bridge->lock, flags);
	bridge->masked |= bits;
	spin_unlock_irqrestore(&bridge->lock, flags);
	return 0;
}

static int soft_db_clear_mask(struct ntb_dev *ntb, u64 bits)
{
	struct soft_bridge *bridge = to_soft_bridge(ntb);
	unsigned long flags;
	bool pending;

	if (bits & ~soft_doorbells(&bridge->shape))
		return -EINVAL;
	spin_lock_irqsave(&bridge->lock, flags);
	bridge->masked &= ~bits;
	pending = bridge->pending & bits;
	spin_unlock_irqrestore(&bridge->lock, flags);
	/* As an interrupt that was pending behind its mask; the client may be in its own event now. */
	if (pending)
		bridge->notify_own(bridge);
	return 0;
}

static void ring(struct soft_link *link, u32 bits)
{
	u32 old, now;

	if (!READ_ONCE(link->up))
		return;
	if (link->bridge->posted) {
		soft_posted_ring(link->bridge->posted, bits);
		return;
	}
	do {
		old = READ_ONCE(link->peer->doorbell);
		now = old | bits;
	} while (cmpxchg(&link->peer->doorbell, old, now) != old);
	link->bridge->notify(link);
}

/* All peers hear it: nobody says which of them is meant. */
static int soft_peer_db_set(struct ntb_dev *ntb, u64 bits)
{
	struct soft_bridge *bridge = to_soft_bridge(ntb);
	u32 i;

	if (bits & ~soft_doorbells(&bridge->shape))
		return -EINVAL;
	for (i = 0; i < bridge->shape.peers; i++)
		ring(&bridge->link[i], bits);
	return 0;
}

static int soft_spad_count(struct ntb_dev *ntb)
{
	return to_soft_bridge(ntb)->shape.pads;
}

static bool has_pad(struct soft_bridge *bridge, int pad)
{
	return pad >= 0 && pad < bridge->shape.pads;
}

static u32 soft_spad_read(struct ntb_dev *ntb, int pad)
{
	struct soft_bridge *bridge = to_soft_bridge(ntb);

	return has_pad(bridge, pad) ? READ_ONCE(bridge->own->pad[pad]) : 0;
}

static int soft_spad_write(struct ntb_dev *ntb, int pad, u32 value)
{
	struct soft_bridge *bridge = to_soft_bridge(ntb);

	if (!has_pad(bridge, pad))
		return -EINVAL;
	WRITE_ONCE(bridge->own->pad[pad], value);
	return 0;
}

/* A register of the peer cannot be read over a link that is down: all ones. */
static u32 soft_peer_spad_read(struct ntb_dev *ntb, int peer, int pad)
{
	struct soft_link *link = soft_link_to(ntb, peer);
	u32 value;

	if (!link || !READ_ONCE(link->up))
		return ~0;
	if (has_pad(link->bridge, pad) && link->bridge->posted && soft_posted_read_pad(link->bridge->posted, pad, &value))
		return value;
	return has_pad(link->bridge, pad) ? READ_ONCE(link->peer->pad[pad]) : 0;
}

static int soft_peer_spad_write(struct ntb_dev *ntb, int peer, int pad, u32 value)
{
	struct soft_link *link = soft_link_to(ntb, peer);

	if (!link || !has_pad(link->bridge, pad))
		return -EINVAL;
	/* What is posted over a link that is down is lost. */
	if (!READ_ONCE(link->up))
		return 0;
	if (link->bridge->posted) {
		soft_posted_write_pad(link->bridge->posted, pad, value);
		return 0;
	}
	/* Ordered as posted writes are: behind all stores to windows that were made before. */
	wmb();
	WRITE_ONCE(link->peer->pad[pad], value);
	return 0;
}

void soft_registers_init(struct soft_bridge *bridge)
{
	bridge->ops.db_valid_mask = soft_db_valid_mask;
	bridge->ops.db_vector_count = soft_db_vector_count;
	bridge->ops.db_vector_mask = soft_db_vector_mask;
	bridge->ops.db_read = soft_db_read;
	bridge->ops.db_clear = soft_db_clear;
	bridge->ops.db_read_mask = soft_db_read_mask;
	bridge->ops.db_set_mask = soft_db_set_mask;
	bridge->ops.db_clear_mask = soft_db_clear_mask;
	bridge->ops.peer_db_set = soft_peer_db_set;
	bridge->ops.spad_count = soft_spad_count;
	bridge->ops.spad_read = soft_spad_read;
	bridge->ops.spad_write = soft_spad_write;
	bridge->ops.peer_spad_read = soft_peer_spad_read;
	bridge->ops.peer_spad_write = soft_peer_spad_write;
}

// SPDX-License-Identifier: GPL-2.0
/*
 * Message registers. A peer fills one and its owner empties it; who finds it full is told by a status bit of its own. As with hardware
 * (IDT 89HPESx) a client hears of messages only when there was none that it has not masked, and then there is one.
 */
#include "bridge.h"

/* Status bits: of messages that have come, and behind them of those that could not be sent. */
static u64 inbits(struct soft_bridge *bridge)
{
	return GENMASK_ULL(bridge->shape.messages - 1, 0);
}

static u64 outbits(struct soft_bridge *bridge)
{
	return inbits(bridge) << bridge->shape.messages;
}

static bool has_register(struct soft_bridge *bridge, int number)
{
	return number >= 0 && number < bridge->shape.messages;
}

static u64 full(struct soft_bridge *bridge)
{
	u64 bits = 0;
	u32 i;

	for (i = 0; i < bridge->shape.messages; i++)
		/* Who sees that it is full reads what fill() has put into it. */
		if (smp_load_acquire(&bridge->own->message[i].state) == SOFT_FULL)
			bits |= BIT_ULL(i);
	return bits;
}

bool soft_messages_came(struct soft_bridge *bridge)
{
	u64 before = bridge->messages;

	lockdep_assert_held(&bridge->lock);
	bridge->messages = full(bridge) & ~bridge->messages_masked;
	return bridge->messages && !before;
}

static int soft_msg_count(struct ntb_dev *ntb)
{
	return to_soft_bridge(ntb)->shape.messages;
}

static u64 soft_msg_inbits(struct ntb_dev *ntb)
{
	return inbits(to_soft_bridge(ntb));
}

static u64 soft_msg_outbits(struct ntb_dev *ntb)
{
	return outbits(to_soft_bridge(ntb));
}

static u64 soft_msg_read_sts(struct ntb_dev *ntb)
{
	struct soft_bridge *bridge = to_soft_bridge(ntb);

	return full(bridge) | READ_ONCE(bridge->failed);
}

static int soft_msg_clear_sts(struct ntb_dev *ntb, u64 bits)
{
	struct soft_bridge *bridge = to_soft_bridge(ntb);
	unsigned long flags;
	u64 emptied;
	u32 i;

	spin_lock_irqsave(&bridge->lock, flags);
	emptied = full(bridge) & bits;
	for (i = 0; i < bridge->shape.messages; i++)
		if (emptied & BIT_ULL(i))
			/* What was in it has been read: fill() may put in the next. */
			smp_store_release(&bridge->own->message[i].state, SOFT_EMPTY);
	bridge->failed &= ~bits;
	/* What has come beside one that was there is no news. */
	if (bridge->messages)
		soft_messages_came(bridge);
	spin_unlock_irqrestore(&bridge->lock, flags);
	return 0;
}

static int set_mask(struct soft_bridge *bridge, u64 set, u64 clear)
{
	unsigned long flags;

	if ((set | clear) & ~(inbits(bridge) | outbits(bridge)))
		return -EINVAL;
	spin_lock_irqsave(&bridge->lock, flags);
	bridge->messages_masked = (bridge->messages_masked | set) & ~clear;
	bridge->messages &= ~set;
	spin_unlock_irqrestore(&bridge->lock, flags);
	/* As an interrupt that was pending behind its mask; the client may be in its own event now. */
	if (clear)
		bridge->notify_own(bridge);
	return 0;
}

static int soft_msg_set_mask(struct ntb_dev *ntb, u64 bits)
{
	return set_mask(to_soft_bridge(ntb), bits, 0);
}

static int soft_msg_clear_mask(struct ntb_dev *ntb, u64 bits)
{
	return set_mask(to_soft_bridge(ntb), 0, bits);
}

static u32 soft_msg_read(struct ntb_dev *ntb, int *peer, int number)
{
	struct soft_bridge *bridge = to_soft_bridge(ntb);

	if (!has_register(bridge, number))
		return ~0;
	if (peer)
		*peer = READ_ONCE(bridge->own->message[number].sender);
	return READ_ONCE(bridge->own->message[number].data);
}

/* Whether the peer's register was empty, and has the message now. */
static bool fill(struct soft_link *link, struct soft_message *message, u32 data)
{
	if (cmpxchg(&message->state, SOFT_EMPTY, SOFT_WRITING) != SOFT_EMPTY)
		return false;
	WRITE_ONCE(message->sender, link->own_number);
	WRITE_ONCE(message->data, data);
	/* Ordered as posted writes are: behind all stores to windows that were made before. */
	wmb();
	if (link->bridge->posted) {
		WRITE_ONCE(message->state, SOFT_POSTED);
		return true;
	}
	WRITE_ONCE(message->state, SOFT_FULL);
	link->bridge->notify(link);
	return true;
}

static int soft_peer_msg_write(struct ntb_dev *ntb, int peer, int number, u32 data)
{
	struct soft_link *link = soft_link_to(ntb, peer);
	struct soft_bridge *bridge = to_soft_bridge(ntb);
	unsigned long flags;

	if (!link || !has_register(bridge, number))
		return -EINVAL;
	/* What is posted over a link that is down is lost. */
	if (!READ_ONCE(link->up) || fill(link, &link->peer->message[number], data))
		return 0;
	spin_lock_irqsave(&bridge->lock, flags);
	bridge->failed |= BIT_ULL(bridge->shape.messages + number);
	spin_unlock_irqrestore(&bridge->lock, flags);
	return 0;
}

void soft_messages_init(struct soft_bridge *bridge)
{
	bridge->ops.msg_count = soft_msg_count;
	bridge->ops.msg_inbits = soft_msg_inbits;
	bridge->ops.msg_outbits = soft_msg_outbits;
	bridge->ops.msg_read_sts = soft_msg_read_sts;
	bridge->ops.msg_clear_sts = soft_msg_clear_sts;
	bridge->ops.msg_set_mask = soft_msg_set_mask;
	bridge->ops.msg_clear_mask = soft_msg_clear_mask;
	bridge->ops.msg_read = soft_msg_read;
	bridge->ops.peer_msg_write = soft_peer_msg_write;
}

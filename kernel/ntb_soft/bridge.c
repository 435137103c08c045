// SPDX-License-Identifier: GPL-2.0
/* The operations of an NTB device on registers and windows in memory that both ends share. */
#include "bridge.h"

#include "compat.h"

#include <linux/pci.h>
#include <linux/random.h>

static struct soft_bridge *to_bridge(struct ntb_dev *ntb)
{
	return container_of(ntb, struct soft_bridge, ntb);
}

static u64 valid(struct soft_bridge *bridge)
{
	return GENMASK_ULL(bridge->shape.doorbells - 1, 0);
}

/* This end's next life: the peer, if it is in the last one, sees that it has ended. */
static void renew_session(struct soft_bridge *bridge)
{
	lockdep_assert_held(&bridge->lock);
	bridge->session = bridge->session + 1 ?: 1;
	bridge->accepted = 0;
	WRITE_ONCE(bridge->own->accepted, 0);
	WRITE_ONCE(bridge->own->doorbell, 0);
	WRITE_ONCE(bridge->own->session, bridge->enabled ? bridge->session : 0);
	mod_timer(&bridge->training, jiffies + msecs_to_jiffies(SOFT_TRAINING));
}

static void trained(struct timer_list *timer)
{
	soft_bridge_look(container_of(timer, struct soft_bridge, training));
}

/* A link that is up is lost, and trains again. */
static void flap(struct timer_list *timer)
{
	struct soft_bridge *bridge = container_of(timer, struct soft_bridge, flapping);
	unsigned long flags;
	bool lost;

	spin_lock_irqsave(&bridge->lock, flags);
	lost = bridge->up && bridge->flaps;
	if (lost) {
		bridge->flaps--;
		renew_session(bridge);
	}
	if (bridge->flaps)
		mod_timer(&bridge->flapping, jiffies + msecs_to_jiffies(bridge->shape.flap_ms));
	spin_unlock_irqrestore(&bridge->lock, flags);
	if (lost) {
		bridge->notify(bridge);
		soft_bridge_look(bridge);
	}
}

/* Takes a step towards what both ends want of the link; whether it is up now. */
static bool agree(struct soft_bridge *bridge)
{
	u32 theirs = READ_ONCE(bridge->peer->session);
	bool accepts = READ_ONCE(bridge->peer->accepted) == bridge->session;

	lockdep_assert_held(&bridge->lock);
	if (!bridge->enabled || timer_pending(&bridge->training) || !bridge->connected(bridge))
		theirs = 0;
	if (bridge->up && (bridge->accepted != theirs || !accepts)) {
		renew_session(bridge);
		return false;
	}
	if (bridge->accepted != theirs) {
		bridge->accepted = theirs;
		WRITE_ONCE(bridge->own->accepted, theirs);
		bridge->notify(bridge);
	}
	return theirs && accepts;
}

bool soft_bridge_look(struct soft_bridge *bridge)
{
	bool up, link, doorbell;
	unsigned long flags;

	spin_lock_irqsave(&bridge->lock, flags);
	up = agree(bridge);
	if (bridge->posted)
		up = soft_posted_agree(bridge->posted, up);
	link = up != bridge->up;
	bridge->up = up;
	if (link)
		bridge->pending = 0;
	if (up)
		bridge->pending |= xchg(&bridge->own->doorbell, 0) & valid(bridge);
	doorbell = bridge->pending & ~bridge->masked;
	spin_unlock_irqrestore(&bridge->lock, flags);
	if (link) {
		bridge->notify(bridge);
		ntb_link_event(&bridge->ntb);
	}
	if (doorbell)
		ntb_db_event(&bridge->ntb, 0);
	return link || doorbell;
}

static u64 soft_link_is_up(struct ntb_dev *ntb, enum ntb_speed *speed, enum ntb_width *width)
{
	struct soft_bridge *bridge = to_bridge(ntb);
	bool up = READ_ONCE(bridge->up);

	if (speed)
		*speed = up ? NTB_SPEED_GEN4 : NTB_SPEED_NONE;
	if (width)
		*width = up ? NTB_WIDTH_16 : NTB_WIDTH_NONE;
	return up;
}

static int set_link(struct soft_bridge *bridge, bool on)
{
	unsigned long flags;

	spin_lock_irqsave(&bridge->lock, flags);
	if (on != bridge->enabled) {
		bridge->enabled = on;
		renew_session(bridge);
	}
	spin_unlock_irqrestore(&bridge->lock, flags);
	bridge->notify(bridge);
	bridge->notify_own(bridge);
	return 0;
}

static int soft_link_enable(struct ntb_dev *ntb, enum ntb_speed speed, enum ntb_width width)
{
	return set_link(to_bridge(ntb), true);
}

static int soft_link_disable(struct ntb_dev *ntb)
{
	return set_link(to_bridge(ntb), false);
}

static int soft_mw_count(struct ntb_dev *ntb, int peer)
{
	return to_bridge(ntb)->shape.windows;
}

static int soft_peer_mw_count(struct ntb_dev *ntb)
{
	return to_bridge(ntb)->shape.windows;
}

static int soft_mw_get_align(struct ntb_dev *ntb, int peer, int window, resource_size_t *address,
			     resource_size_t *size, resource_size_t *max)
{
	struct soft_bridge *bridge = to_bridge(ntb);

	if (window < 0 || window >= bridge->shape.windows)
		return -EINVAL;
	if (address)
		*address = bridge->shape.xlat_align ?: bridge->shape.window_len;
	if (size)
		*size = SZ_4K;
	if (max)
		*max = bridge->shape.window_len;
	return 0;
}

/* The window's place is fixed: what soft_memory gave out for it is where the peer's stores land already. */
static int soft_mw_set_trans(struct ntb_dev *ntb, int peer, int window, dma_addr_t address, resource_size_t size)
{
	struct soft_bridge *bridge = to_bridge(ntb);

	if (window < 0 || window >= bridge->shape.windows || size > bridge->shape.window_len)
		return -EINVAL;
	if (!IS_ALIGNED(address, bridge->shape.xlat_align ?: bridge->shape.window_len)) {
		dev_err(&ntb->dev, "window %d cannot be translated to %pad: that is not aligned as the bridge says\n", window, &address);
		return -EINVAL;
	}
	if (address != bridge->inbound_base + soft_window_at(&bridge->shape, window)) {
		dev_err(&ntb->dev, "window %d cannot be translated to %pad: allocate the windows' memory in their order\n",
			window, &address);
		return -EINVAL;
	}
	return 0;
}

static int soft_mw_clear_trans(struct ntb_dev *ntb, int peer, int window)
{
	return 0;
}

static int soft_peer_mw_get_addr(struct ntb_dev *ntb, int window, phys_addr_t *base, resource_size_t *size)
{
	struct soft_bridge *bridge = to_bridge(ntb);

	if (window < 0 || window >= bridge->shape.windows)
		return -EINVAL;
	if (base)
		*base = bridge->outbound_base + soft_window_at(&bridge->shape, window);
	if (size)
		*size = bridge->shape.window_len;
	return 0;
}

static u64 soft_db_valid_mask(struct ntb_dev *ntb)
{
	return valid(to_bridge(ntb));
}

static int soft_db_vector_count(struct ntb_dev *ntb)
{
	return 1;
}

static u64 soft_db_vector_mask(struct ntb_dev *ntb, int vector)
{
	return vector ? 0 : valid(to_bridge(ntb));
}

static u64 soft_db_read(struct ntb_dev *ntb)
{
	return READ_ONCE(to_bridge(ntb)->pending);
}

static int soft_db_clear(struct ntb_dev *ntb, u64 bits)
{
	struct soft_bridge *bridge = to_bridge(ntb);
	unsigned long flags;

	spin_lock_irqsave(&bridge->lock, flags);
	bridge->pending &= ~bits;
	spin_unlock_irqrestore(&bridge->lock, flags);
	return 0;
}

static u64 soft_db_read_mask(struct ntb_dev *ntb)
{
	return READ_ONCE(to_bridge(ntb)->masked);
}

static int soft_db_set_mask(struct ntb_dev *ntb, u64 bits)
{
	struct soft_bridge *bridge = to_bridge(ntb);
	unsigned long flags;

	if (bits & ~valid(bridge))
		return -EINVAL;
	spin_lock_irqsave(&bridge->lock, flags);
	bridge->masked |= bits;
	spin_unlock_irqrestore(&bridge->lock, flags);
	return 0;
}

static int soft_db_clear_mask(struct ntb_dev *ntb, u64 bits)
{
	struct soft_bridge *bridge = to_bridge(ntb);
	unsigned long flags;
	bool pending;

	if (bits & ~valid(bridge))
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

static int soft_peer_db_set(struct ntb_dev *ntb, u64 bits)
{
	struct soft_bridge *bridge = to_bridge(ntb);
	u32 old, now;

	if (bits & ~valid(bridge))
		return -EINVAL;
	if (!READ_ONCE(bridge->up))
		return 0;
	if (bridge->posted) {
		soft_posted_ring(bridge->posted, bits);
		return 0;
	}
	do {
		old = READ_ONCE(bridge->peer->doorbell);
		now = old | bits;
	} while (cmpxchg(&bridge->peer->doorbell, old, now) != old);
	bridge->notify(bridge);
	return 0;
}

static int soft_spad_count(struct ntb_dev *ntb)
{
	return to_bridge(ntb)->shape.pads;
}

static bool has_pad(struct soft_bridge *bridge, int pad)
{
	return pad >= 0 && pad < bridge->shape.pads;
}

static u32 soft_spad_read(struct ntb_dev *ntb, int pad)
{
	struct soft_bridge *bridge = to_bridge(ntb);

	return has_pad(bridge, pad) ? READ_ONCE(bridge->own->pad[pad]) : 0;
}

static int soft_spad_write(struct ntb_dev *ntb, int pad, u32 value)
{
	struct soft_bridge *bridge = to_bridge(ntb);

	if (!has_pad(bridge, pad))
		return -EINVAL;
	WRITE_ONCE(bridge->own->pad[pad], value);
	return 0;
}

/* A register of the peer cannot be read over a link that is down: all ones. */
static u32 soft_peer_spad_read(struct ntb_dev *ntb, int peer, int pad)
{
	struct soft_bridge *bridge = to_bridge(ntb);
	u32 value;

	if (!READ_ONCE(bridge->up))
		return ~0;
	if (has_pad(bridge, pad) && bridge->posted && soft_posted_read_pad(bridge->posted, pad, &value))
		return value;
	return has_pad(bridge, pad) ? READ_ONCE(bridge->peer->pad[pad]) : 0;
}

static int soft_peer_spad_write(struct ntb_dev *ntb, int peer, int pad, u32 value)
{
	struct soft_bridge *bridge = to_bridge(ntb);

	if (!has_pad(bridge, pad))
		return -EINVAL;
	/* What is posted over a link that is down is lost. */
	if (!READ_ONCE(bridge->up))
		return 0;
	if (bridge->posted) {
		soft_posted_write_pad(bridge->posted, pad, value);
		return 0;
	}
	/* Ordered as posted writes are: behind all stores to windows that were made before. */
	wmb();
	WRITE_ONCE(bridge->peer->pad[pad], value);
	return 0;
}

static const struct ntb_dev_ops soft_ops = {
	.link_is_up = soft_link_is_up,
	.link_enable = soft_link_enable,
	.link_disable = soft_link_disable,
	.mw_count = soft_mw_count,
	.mw_get_align = soft_mw_get_align,
	.mw_set_trans = soft_mw_set_trans,
	.mw_clear_trans = soft_mw_clear_trans,
	.peer_mw_count = soft_peer_mw_count,
	.peer_mw_get_addr = soft_peer_mw_get_addr,
	.db_valid_mask = soft_db_valid_mask,
	.db_vector_count = soft_db_vector_count,
	.db_vector_mask = soft_db_vector_mask,
	.db_read = soft_db_read,
	.db_clear = soft_db_clear,
	.db_read_mask = soft_db_read_mask,
	.db_set_mask = soft_db_set_mask,
	.db_clear_mask = soft_db_clear_mask,
	.peer_db_set = soft_peer_db_set,
	.spad_count = soft_spad_count,
	.spad_read = soft_spad_read,
	.spad_write = soft_spad_write,
	.peer_spad_read = soft_peer_spad_read,
	.peer_spad_write = soft_peer_spad_write,
};

void soft_bridge_init(struct soft_bridge *bridge, struct pci_dev *pci, const struct soft_shape *shape)
{
	spin_lock_init(&bridge->lock);
	timer_setup(&bridge->training, trained, 0);
	timer_setup(&bridge->flapping, flap, 0);
	bridge->ntb.pdev = pci;
	bridge->ntb.topo = NTB_TOPO_NONE;
	bridge->ntb.ops = &soft_ops;
	bridge->shape = *shape;
	/* Not a number of an earlier life of this end, which the peer may still believe in. */
	bridge->session = get_random_u32();
}

void soft_bridge_start(struct soft_bridge *bridge)
{
	bridge->flaps = bridge->shape.flap_ms ? bridge->shape.flaps : 0;
	if (bridge->flaps)
		mod_timer(&bridge->flapping, jiffies + msecs_to_jiffies(bridge->shape.flap_ms));
}

void soft_bridge_stop(struct soft_bridge *bridge)
{
	compat_timer_shutdown_sync(&bridge->flapping);
	compat_timer_shutdown_sync(&bridge->training);
}

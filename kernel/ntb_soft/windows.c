// SPDX-License-Identifier: GPL-2.0
/*
 * Operations of an NTB device on windows. A window's place is fixed: what soft_memory gave out for it is where the peer's stores land
 * already, so translation only checks that the client asks for that.
 */
#include "bridge.h"

#include <linux/sched.h>
#include <linux/sizes.h>

static u64 alignment(const struct soft_shape *shape)
{
	return shape->xlat_align ?: shape->window_len;
}

static int soft_mw_count(struct ntb_dev *ntb, int peer)
{
	return soft_link_to(ntb, peer) ? to_soft_bridge(ntb)->shape.windows : -EINVAL;
}

static int soft_peer_mw_count(struct ntb_dev *ntb)
{
	return to_soft_bridge(ntb)->shape.windows;
}

/* Clients ask this before they allocate memory for a window of that peer. */
static void note_asked(struct soft_link *link)
{
	struct soft_bridge *bridge = link->bridge;
	unsigned long flags;
	u32 i;

	spin_lock_irqsave(&bridge->lock, flags);
	for (i = 0; i < bridge->shape.peers; i++)
		if (bridge->asked[i] == current)
			bridge->asked[i] = NULL;
	bridge->asked[link->number] = current;
	spin_unlock_irqrestore(&bridge->lock, flags);
}

static int soft_mw_get_align(struct ntb_dev *ntb, int peer, int window, resource_size_t *address,
			     resource_size_t *size, resource_size_t *max)
{
	struct soft_bridge *bridge = to_soft_bridge(ntb);
	struct soft_link *link = soft_link_to(ntb, peer);

	if (!link || window < 0 || window >= bridge->shape.windows)
		return -EINVAL;
	note_asked(link);
	if (address)
		*address = bridge->shape.said_align ?: alignment(&bridge->shape);
	if (size)
		*size = SZ_4K;
	if (max)
		*max = bridge->shape.window_len;
	return 0;
}

/* Whether a window that leads from end `source` to end `target`, numbers among each other's peers, can be translated so. */
static int check_translation(struct soft_bridge *bridge, int window, u32 source, u32 target, phys_addr_t base, u64 address, u64 size)
{
	const struct soft_shape *shape = &bridge->shape;

	if (window < 0 || window >= shape->windows || size > shape->window_len)
		return -EINVAL;
	if (window % shape->peers != target) {
		dev_err(&bridge->ntb.dev, "window %d leads to another peer\n", window);
		return -EINVAL;
	}
	if (!IS_ALIGNED(address, alignment(shape))) {
		dev_err(&bridge->ntb.dev, "window %d cannot be translated to %#llx: that is not aligned as the bridge says\n",
			window, address);
		return -EINVAL;
	}
	if (address != base + soft_slot_at(shape, soft_slot(shape, window, source))) {
		dev_err(&bridge->ntb.dev, "window %d cannot be translated to %#llx: allocate the windows' memory in their order\n",
			window, address);
		return -EINVAL;
	}
	return 0;
}

static int soft_mw_set_trans(struct ntb_dev *ntb, int peer, int window, dma_addr_t address, resource_size_t size)
{
	struct soft_link *link = soft_link_to(ntb, peer);

	if (!link)
		return -EINVAL;
	return check_translation(link->bridge, window, link->number, link->own_number, link->bridge->inbound_base, address, size);
}

static int soft_peer_mw_set_trans(struct ntb_dev *ntb, int peer, int window, u64 address, resource_size_t size)
{
	struct soft_link *link = soft_link_to(ntb, peer);

	if (!link)
		return -EINVAL;
	return check_translation(link->bridge, window, link->own_number, link->number, link->memory_base, address, size);
}

static int soft_clear_trans(struct ntb_dev *ntb, int peer, int window)
{
	return 0;
}

static int soft_peer_mw_get_addr(struct ntb_dev *ntb, int window, phys_addr_t *base, resource_size_t *size)
{
	struct soft_bridge *bridge = to_soft_bridge(ntb);
	struct soft_link *link;

	if (window < 0 || window >= bridge->shape.windows)
		return -EINVAL;
	link = &bridge->link[window % bridge->shape.peers];
	if (base)
		*base = link->outbound_base + soft_slot_at(&bridge->shape, soft_slot(&bridge->shape, window, link->own_number));
	if (size)
		*size = bridge->shape.window_len;
	return 0;
}

void soft_windows_init(struct soft_bridge *bridge)
{
	bridge->ops.mw_count = soft_mw_count;
	bridge->ops.mw_get_align = soft_mw_get_align;
	bridge->ops.peer_mw_count = soft_peer_mw_count;
	bridge->ops.peer_mw_get_addr = soft_peer_mw_get_addr;
	if (bridge->shape.outbound) {
		bridge->ops.peer_mw_set_trans = soft_peer_mw_set_trans;
		bridge->ops.peer_mw_clear_trans = soft_clear_trans;
	} else {
		bridge->ops.mw_set_trans = soft_mw_set_trans;
		bridge->ops.mw_clear_trans = soft_clear_trans;
	}
}

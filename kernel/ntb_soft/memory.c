// SPDX-License-Identifier: GPL-2.0
/*
 * Coherent memory of a software bridge: the windows themselves. Clients allocate a buffer by the bridge's PCI device and have the
 * bridge translate a window to it; here a window's place is fixed, so the buffer is put there at once.
 */
#include "bridge.h"

#include <linux/bitops.h>
#include <linux/dma-map-ops.h>
#include <linux/pci.h>
#include <linux/sched.h>

static struct soft_bridge *bridge_of(struct device *device)
{
	return pci_get_drvdata(to_pci_dev(device));
}

/* The peer for whose window this task has asked how its memory is aligned, or the first one. */
static u32 asked_for(struct soft_bridge *bridge)
{
	u32 i;

	lockdep_assert_held(&bridge->lock);
	for (i = 0; i < bridge->shape.peers; i++)
		if (bridge->asked[i] == current)
			return i;
	return 0;
}

/* The first slot of that peer's windows that nobody has; -1 if there is none. */
static int take_slot(struct soft_bridge *bridge)
{
	const struct soft_shape *shape = &bridge->shape;
	struct soft_link *link;
	u32 window, slot;

	lockdep_assert_held(&bridge->lock);
	link = &bridge->link[asked_for(bridge)];
	for (window = link->own_number; window < shape->windows; window += shape->peers) {
		slot = soft_slot(shape, window, link->number);
		if (!__test_and_set_bit(slot, &bridge->allocated))
			return slot;
	}
	return -1;
}

/* A slot for each allocation, in the order of the windows, as clients allocate them. */
static void *soft_alloc(struct device *device, size_t size, dma_addr_t *address, gfp_t gfp, unsigned long attributes)
{
	struct soft_bridge *bridge = bridge_of(device);
	unsigned long flags;
	int slot;
	u64 offset, room = bridge->shape.window_len;

	/* A page before the window, and as much longer as a client has to ask for to find the window in it. */
	if (bridge->shape.xlat_align)
		room += bridge->shape.xlat_align;
	if (size > room)
		return NULL;
	spin_lock_irqsave(&bridge->lock, flags);
	slot = take_slot(bridge);
	spin_unlock_irqrestore(&bridge->lock, flags);
	if (slot < 0)
		return NULL;
	offset = soft_slot_at(&bridge->shape, slot) - (bridge->shape.xlat_align ? PAGE_SIZE : 0);
	*address = bridge->inbound_base + offset;
	memset(bridge->inbound + offset, 0, size);
	return bridge->inbound + offset;
}

static void soft_free(struct device *device, size_t size, void *memory, dma_addr_t address, unsigned long attributes)
{
	struct soft_bridge *bridge = bridge_of(device);
	unsigned long flags;

	spin_lock_irqsave(&bridge->lock, flags);
	__clear_bit(((u8 *)memory - bridge->inbound) / soft_stride(&bridge->shape), &bridge->allocated);
	spin_unlock_irqrestore(&bridge->lock, flags);
}

static const struct dma_map_ops soft_dma_ops = {
	.alloc = soft_alloc,
	.free = soft_free,
};

void soft_memory_attach(struct pci_dev *pci, struct soft_bridge *bridge)
{
	pci_set_drvdata(pci, bridge);
	set_dma_ops(&pci->dev, &soft_dma_ops);
	dma_set_mask_and_coherent(&pci->dev, DMA_BIT_MASK(64));
}

void soft_memory_detach(struct pci_dev *pci)
{
	set_dma_ops(&pci->dev, NULL);
	pci_set_drvdata(pci, NULL);
}

// SPDX-License-Identifier: GPL-2.0
#include "port.h"

#include "contiguous.h"
#include "copies.h"
#include "life.h"
#include "segment.h"

#include <linux/dma-direct.h>
#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/io.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/ntb.h>
#include <linux/overflow.h>
#include <linux/pci.h>
#include <linux/random.h>
#include <linux/slab.h>

/* Where pages of a carved range lie. */
static unsigned long inbound_frame(void *memory, unsigned long index)
{
	u8 *address = (u8 *)memory + (index << PAGE_SHIFT);

	if (is_vmalloc_addr(address))
		return vmalloc_to_pfn(address);
	return PHYS_PFN(virt_to_phys(address));
}

static unsigned long outbound_frame(void *memory, unsigned long index)
{
	return (unsigned long)memory + index;
}

static void end_segment(struct segment *segment)
{
	list_del(&segment->link);
	segment_end(segment, false);
	segment_put(segment);
}

/* Bytes at a window's start that are not the owner's. */
static u64 reserved(u32 window)
{
	return window ? 0 : CONTROL_LEN;
}

/* After a search of all memory that found none, jiffies: the peer can have this end try as often as it likes. */
#define SEARCH_PAUSE (10 * HZ)

/* What allocate_contiguous() allocated. */
static void free_contiguous(struct device *device, struct port_inbound *inbound)
{
	dma_unmap_page_attrs(device, inbound->allocated_dma, inbound->allocated_len, DMA_BIDIRECTIONAL, DMA_ATTR_SKIP_CPU_SYNC);
	contiguous_free(virt_to_page(inbound->allocated), inbound->allocated_len);
}

static void free_inbound(struct port *port, u32 window)
{
	struct port_inbound *inbound = &port->inbound[window];

	if (!inbound->allocated)
		return;
	ntb_mw_clear_trans(port->ntb, PEER, window);
	if (inbound->contiguous)
		free_contiguous(&port->ntb->pdev->dev, inbound);
	else
		dma_free_coherent(&port->ntb->pdev->dev, inbound->allocated_len, inbound->allocated, inbound->allocated_dma);
	*inbound = (struct port_inbound){ .wanted = inbound->wanted };
}

static int find_windows(struct port *port)
{
	struct ntb_dev *ntb = port->ntb;
	int inbound = ntb_mw_count(ntb, PEER), outbound = ntb_peer_mw_count(ntb);
	resource_size_t len;
	u32 window;
	int error;

	if (inbound < 0 || outbound < 0)
		return -EINVAL;
	port->windows = min3(inbound, outbound, CROSSLANE_NTB_WINDOWS);
	for (window = 0; window < port->windows; window++) {
		error = ntb_peer_mw_get_addr(ntb, window, &port->outbound[window].base, &len);
		if (error)
			return error;
		port->outbound[window].len = round_down(len, PAGE_SIZE);
		if (port->outbound[window].len <= reserved(window))
			return -ENOSPC;
		port->outbound[window].memory = ioremap_wc(port->outbound[window].base, port->outbound[window].len);
		if (!port->outbound[window].memory)
			return -ENOMEM;
	}
	return port->windows ? 0 : -ENODEV;
}

static void forget_windows(struct port *port)
{
	u32 window;

	for (window = 0; window < port->windows; window++)
		if (port->outbound[window].memory)
			iounmap(port->outbound[window].memory);
}

struct port *port_new(struct ntb_dev *ntb)
{
	struct port *port = kzalloc(sizeof(*port), GFP_KERNEL);
	int error;

	if (!port)
		return ERR_PTR(-ENOMEM);
	kref_init(&port->users);
	mutex_init(&port->lock);
	INIT_LIST_HEAD(&port->segments);
	spin_lock_init(&port->events);
	init_waitqueue_head(&port->readers);
	control_init(&port->control);
	wakers_init(&port->wakers);
	port->sessions = get_random_u32();
	port->search_again = jiffies;
	port->ntb = ntb;
	error = find_windows(port) ?: life_attach(port);
	if (error) {
		forget_windows(port);
		kfree(port);
		return ERR_PTR(error);
	}
	return port;
}

static void port_free(struct kref *users)
{
	kfree(container_of(users, struct port, users));
}

void port_put(struct port *port)
{
	kref_put(&port->users, port_free);
}

/* Ends all that the owner made; port->lock is held. */
static void reset(struct port *port)
{
	unsigned long flags;
	u32 window;

	port->enabled = false;
	life_end(port);
	copies_free(port->copies);
	port->copies = NULL;
	spin_lock_irqsave(&port->events, flags);
	port->masked = 0;
	spin_unlock_irqrestore(&port->events, flags);
	if (!port->ntb)
		return;
	ntb_link_disable(port->ntb);
	for (window = 0; window < port->windows; window++) {
		free_inbound(port, window);
		port->inbound[window].wanted = 0;
	}
}

void port_gone(struct port *port)
{
	ntb_clear_ctx(port->ntb);
	mutex_lock(&port->lock);
	reset(port);
	forget_windows(port);
	port->ntb = NULL;
	mutex_unlock(&port->lock);
	life_detach(port);
	wake_up_interruptible(&port->readers);
}

int port_own(struct port *port)
{
	int error = 0;

	mutex_lock(&port->lock);
	if (!port->ntb) {
		error = -ENODEV;
	} else if (port->owned) {
		error = -EBUSY;
	} else {
		port->owned = true;
		port->copies = copies_new(&port->ntb->pdev->dev);
	}
	mutex_unlock(&port->lock);
	return error;
}

void port_disown(struct port *port)
{
	unsigned long flags;

	mutex_lock(&port->lock);
	reset(port);
	spin_lock_irqsave(&port->events, flags);
	port->told_up = false;
	spin_unlock_irqrestore(&port->events, flags);
	port->owned = false;
	mutex_unlock(&port->lock);
}

int port_info(struct port *port, struct crosslane_ntb_info *info)
{
	resource_size_t align, max;
	u32 window;

	lockdep_assert_held(&port->lock);
	memset(info, 0, sizeof(*info));
	info->version = CROSSLANE_NTB_VERSION;
	info->windows = port->windows;
	info->copy_max = port->copies ? COPY_MAX : 0;
	for (window = 0; window < port->windows; window++) {
		struct crosslane_ntb_window *to = &info->window[window];

		to->inbound_len = port->inbound[window].wanted;
		to->outbound_len = port->outbound[window].len - reserved(window);
		/* Bridges know this while the link is up. */
		if (ntb_mw_get_align(port->ntb, PEER, window, NULL, &align, &max))
			continue;
		max = rounddown(max, max_t(u64, align, PAGE_SIZE));
		to->inbound_max = max > reserved(window) ? max - reserved(window) : 0;
	}
	return 0;
}

static bool has_segments(struct port *port, u32 window, u32 side)
{
	struct segment *segment;

	list_for_each_entry(segment, &port->segments, link)
		if (segment->window == window && segment->side == side)
			return true;
	return false;
}

/*
 * As allocate(), where the DMA interface has no memory of this length in one piece: without an IOMMU, and with caches that see what devices
 * store. The device must address the pages themselves, since nobody would copy what the peer stores into a bounce buffer.
 */
static int allocate_contiguous(struct port *port, struct port_inbound *inbound, u64 len, u64 align)
{
	struct device *device = &port->ntb->pdev->dev;
	struct page *pages;
	dma_addr_t dma;

	if (get_dma_ops(device) || !dev_is_dma_coherent(device) || time_before(jiffies, port->search_again))
		return -ENOMEM;
	pages = contiguous_alloc(len, align, dma_get_mask(device), dev_to_node(device));
	if (!pages) {
		port->search_again = jiffies + SEARCH_PAUSE;
		return -ENOMEM;
	}
	dma = dma_map_page_attrs(device, pages, 0, len, DMA_BIDIRECTIONAL, DMA_ATTR_SKIP_CPU_SYNC);
	inbound->allocated_len = len;
	inbound->allocated_dma = dma;
	inbound->allocated = page_address(pages);
	if (!dma_mapping_error(device, dma) && dma == phys_to_dma(device, page_to_phys(pages)) && IS_ALIGNED(dma, align)) {
		memset(inbound->allocated, 0, len);
		inbound->contiguous = true;
		return 0;
	}
	if (dma_mapping_error(device, dma))
		contiguous_free(pages, len);
	else
		free_contiguous(device, inbound);
	inbound->allocated = NULL;
	return -ENOMEM;
}

/* Memory whose address on the bus is a multiple of `align`. */
static int allocate(struct port *port, struct port_inbound *inbound, u64 len, u64 align)
{
	struct device *device = &port->ntb->pdev->dev;
	size_t longer;

	inbound->contiguous = false;
	inbound->allocated_len = len;
	inbound->allocated = dma_alloc_coherent(device, len, &inbound->allocated_dma, GFP_KERNEL | __GFP_NOWARN);
	if (inbound->allocated && !IS_ALIGNED(inbound->allocated_dma, align)) {
		dma_free_coherent(device, len, inbound->allocated, inbound->allocated_dma);
		inbound->allocated = NULL;
		if (check_add_overflow((size_t)len, (size_t)align, &longer))
			return -EINVAL;
		inbound->allocated_len = longer;
		inbound->allocated = dma_alloc_coherent(device, longer, &inbound->allocated_dma,
							GFP_KERNEL | __GFP_NOWARN);
	}
	if (!inbound->allocated && allocate_contiguous(port, inbound, len, align))
		return -ENOMEM;
	inbound->dma = ALIGN(inbound->allocated_dma, align);
	inbound->memory = (u8 *)inbound->allocated + (inbound->dma - inbound->allocated_dma);
	inbound->len = len;
	return 0;
}

/* Gives a window the memory that its owner wants; the bridge's link is up. */
static int allocate_wanted(struct port *port, u32 window)
{
	struct port_inbound *inbound = &port->inbound[window];
	resource_size_t address_align, align, max;
	u64 len;
	int error;

	error = ntb_mw_get_align(port->ntb, PEER, window, &address_align, &align, &max);
	if (error)
		return error;
	/* What the bridge translates may have to be longer than what the owner wants. */
	len = roundup(inbound->wanted + reserved(window), max_t(u64, align, PAGE_SIZE));
	if (len > max)
		return -EINVAL;
	return allocate(port, inbound, len, max_t(u64, address_align, PAGE_SIZE));
}

int port_set_translation(struct port *port, u32 window)
{
	struct port_inbound *inbound = &port->inbound[window];
	int error = 0;

	if (!inbound->wanted)
		return 0;
	if (!inbound->allocated)
		error = allocate_wanted(port, window);
	if (!error)
		error = ntb_mw_set_trans(port->ntb, PEER, window, inbound->dma, inbound->len);
	if (error)
		free_inbound(port, window);
	return error;
}

/* Longer than any bridge's window. */
#define WANTED_MAX BIT_ULL(46)

int port_translate(struct port *port, u32 window, u64 len)
{
	int error = 0;

	lockdep_assert_held(&port->lock);
	if (window >= port->windows)
		return -ENXIO;
	if (!PAGE_ALIGNED(len) || len > WANTED_MAX)
		return -EINVAL;
	if (has_segments(port, window, CROSSLANE_NTB_INBOUND) || (!window && port->control.own))
		return -EBUSY;
	if (!window)
		life_end(port);
	free_inbound(port, window);
	port->inbound[window].wanted = len;
	/* Otherwise when the link comes up. */
	if (window && port->control.own)
		error = port_set_translation(port, window);
	if (error)
		port->inbound[window].wanted = 0;
	life_step(port);
	return error;
}

static bool fits(u64 offset, u64 len, u64 window_len)
{
	return len && !((offset | len) & ~PAGE_MASK) && offset <= window_len && len <= window_len - offset;
}

static struct segment *overlapping(struct port *port, const struct crosslane_ntb_range *range)
{
	struct segment *segment;

	list_for_each_entry(segment, &port->segments, link)
		if (segment->window == range->window && segment->side == range->side &&
		    range->offset < segment->offset + segment->len && segment->offset < range->offset + range->len)
			return segment;
	return NULL;
}

static struct segment *carve_outbound(struct port *port, const struct crosslane_ntb_range *range)
{
	struct port_outbound *outbound = &port->outbound[range->window];
	u64 skip = reserved(range->window);

	if (!fits(range->offset, range->len, outbound->len - skip))
		return ERR_PTR(-EINVAL);
	return segment_new(range, outbound_frame, (void *)PHYS_PFN(outbound->base + skip + range->offset), port->copies);
}

static struct segment *carve_inbound(struct port *port, const struct crosslane_ntb_range *range)
{
	struct port_inbound *inbound = &port->inbound[range->window];
	u64 skip = reserved(range->window);

	if (!inbound->allocated || !fits(range->offset, range->len, inbound->len - skip))
		return ERR_PTR(-EINVAL);
	memset(inbound->memory + skip + range->offset, 0, range->len);
	return segment_new(range, inbound_frame, inbound->memory + skip + range->offset, port->copies);
}

int port_carve(struct port *port, const struct crosslane_ntb_range *range)
{
	struct segment *segment;
	int descriptor;

	lockdep_assert_held(&port->lock);
	if (range->window >= port->windows || range->side > CROSSLANE_NTB_OUTBOUND)
		return -ENXIO;
	if (!READ_ONCE(port->up))
		return -ENOTCONN;
	if (overlapping(port, range))
		return -EEXIST;
	segment = range->side == CROSSLANE_NTB_OUTBOUND ? carve_outbound(port, range) : carve_inbound(port, range);
	if (IS_ERR(segment))
		return PTR_ERR(segment);
	list_add(&segment->link, &port->segments);
	descriptor = segment_descriptor(segment);
	if (descriptor < 0)
		end_segment(segment);
	return descriptor;
}

int port_take_back(struct port *port, const struct crosslane_ntb_range *range)
{
	struct segment *segment;

	lockdep_assert_held(&port->lock);
	list_for_each_entry(segment, &port->segments, link) {
		if (segment->window != range->window || segment->side != range->side ||
		    segment->offset != range->offset || segment->len != range->len)
			continue;
		end_segment(segment);
		return 0;
	}
	return -ENOENT;
}

int port_link(struct port *port, bool on)
{
	lockdep_assert_held(&port->lock);
	port->enabled = on;
	if (!on)
		life_end(port);
	life_step(port);
	return on ? ntb_link_enable(port->ntb, NTB_SPEED_AUTO, NTB_WIDTH_AUTO) : ntb_link_disable(port->ntb);
}

int port_read_pad(struct port *port, u32 index, u32 *value)
{
	if (index >= CROSSLANE_NTB_PADS)
		return -ENXIO;
	*value = control_read_pad(&port->control, index);
	return 0;
}

int port_write_peer_pad(struct port *port, u32 index, u32 value)
{
	if (index >= CROSSLANE_NTB_PADS)
		return -ENXIO;
	return control_write_pad(&port->control, index, value) ? 0 : -ENOTCONN;
}

int port_ring(struct port *port, u64 bits)
{
	return control_ring(&port->control, bits) ? 0 : -ENOTCONN;
}

int port_add_waker(struct port *port, int descriptor, u64 word, u32 *handle)
{
	lockdep_assert_held(&port->lock);
	return READ_ONCE(port->up) ? wakers_add(&port->wakers, descriptor, word, handle) : -ENOTCONN;
}

int port_drop_waker(struct port *port, u32 handle)
{
	return wakers_remove(&port->wakers, handle);
}

int port_bell(struct port *port, u32 handle)
{
	lockdep_assert_held(&port->lock);
	return READ_ONCE(port->up) ? bell_descriptor(port, port->life, handle) : -ENOTCONN;
}

bool port_wake(struct port *port, u64 life, u32 handle)
{
	/* A handle of another life is no waker of this one: a life that begins just now is no harm. */
	return READ_ONCE(port->up) && READ_ONCE(port->life) == life && control_wake(&port->control, handle);
}

void port_mask(struct port *port, u64 bits)
{
	unsigned long flags;

	spin_lock_irqsave(&port->events, flags);
	port->masked = bits;
	spin_unlock_irqrestore(&port->events, flags);
	wake_up_interruptible(&port->readers);
}

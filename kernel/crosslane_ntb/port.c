// SPDX-License-Identifier: GPL-2.0
#include "port.h"

#include "segment.h"

#include <linux/dma-mapping.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/ntb.h>
#include <linux/overflow.h>
#include <linux/pci.h>
#include <linux/slab.h>

/* The peer of a bridge with one. */
#define PEER 0

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

static void end_segment(struct segment *segment, bool keep)
{
	list_del(&segment->link);
	segment_end(segment, keep);
	segment_put(segment);
}

/* Ends a life of the link: what the peer stores from now on reaches nobody, and what it has stored stays readable to who can read it. */
static void end_life(struct port *port)
{
	struct segment *segment, *next;
	u32 window;

	lockdep_assert_held(&port->lock);
	/* First, or a store could arrive between the copies of two pages. */
	for (window = 0; port->ntb && window < port->windows; window++)
		if (port->inbound[window].allocated)
			ntb_mw_clear_trans(port->ntb, PEER, window);
	list_for_each_entry_safe(segment, next, &port->segments, link)
		end_segment(segment, true);
}

static int set_translation(struct port *port, u32 window)
{
	struct port_inbound *inbound = &port->inbound[window];

	return ntb_mw_set_trans(port->ntb, PEER, window, inbound->dma, inbound->len);
}

static int set_translations(struct port *port)
{
	int error = 0;
	u32 window;

	for (window = 0; !error && window < port->windows; window++)
		if (port->inbound[window].allocated)
			error = set_translation(port, window);
	return error;
}

static bool bridge_is_up(struct port *port)
{
	return ntb_link_is_up(port->ntb, NULL, NULL) & BIT_ULL(PEER);
}

/* Begins a life if the link is up, and did not change since `changes` was read: then this is called again. */
static void begin_life(struct port *port, u32 changes)
{
	unsigned long flags;
	int error;

	if (!bridge_is_up(port))
		return;
	error = set_translations(port);
	if (error) {
		dev_err(&port->ntb->dev, "a window cannot be translated again: error %d; the link stays down\n", error);
		return;
	}
	spin_lock_irqsave(&port->events, flags);
	if (port->changes == changes) {
		port->up = true;
		port->rung = 0;
		port->life++;
	}
	spin_unlock_irqrestore(&port->events, flags);
	wake_up_interruptible(&port->readers);
}

static void link_changed(struct work_struct *work)
{
	struct port *port = container_of(work, struct port, changed);
	unsigned long flags;
	u32 changes;
	bool up;

	mutex_lock(&port->lock);
	spin_lock_irqsave(&port->events, flags);
	changes = port->changes;
	up = port->up;
	spin_unlock_irqrestore(&port->events, flags);
	if (port->owned && port->ntb && !up) {
		end_life(port);
		begin_life(port, changes);
	}
	mutex_unlock(&port->lock);
}

static void on_link(void *context)
{
	struct port *port = context;
	bool up = bridge_is_up(port);
	unsigned long flags;

	spin_lock_irqsave(&port->events, flags);
	port->changes++;
	if (!up)
		port->up = false;
	spin_unlock_irqrestore(&port->events, flags);
	queue_work(system_highpri_wq, &port->changed);
	if (!up)
		wake_up_interruptible(&port->readers);
}

static void on_doorbell(void *context, int vector)
{
	struct port *port = context;
	u64 bits = ntb_db_read(port->ntb);
	unsigned long flags;

	if (!bits)
		return;
	ntb_db_clear(port->ntb, bits);
	spin_lock_irqsave(&port->events, flags);
	port->rung |= lower_32_bits(bits);
	spin_unlock_irqrestore(&port->events, flags);
	wake_up_interruptible(&port->readers);
}

static const struct ntb_ctx_ops port_ops = {
	.link_event = on_link,
	.db_event = on_doorbell,
};

static void free_inbound(struct port *port, u32 window)
{
	struct port_inbound *inbound = &port->inbound[window];

	if (!inbound->allocated)
		return;
	ntb_mw_clear_trans(port->ntb, PEER, window);
	dma_free_coherent(&port->ntb->pdev->dev, inbound->allocated_len, inbound->allocated, inbound->allocated_dma);
	memset(inbound, 0, sizeof(*inbound));
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
	INIT_WORK(&port->changed, link_changed);
	port->ntb = ntb;
	error = find_windows(port) ?: ntb_set_ctx(ntb, port, &port_ops);
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

	if (port->ntb)
		ntb_link_disable(port->ntb);
	spin_lock_irqsave(&port->events, flags);
	port->up = false;
	port->rung = 0;
	port->masked = 0;
	spin_unlock_irqrestore(&port->events, flags);
	end_life(port);
	if (!port->ntb)
		return;
	for (window = 0; window < port->windows; window++)
		free_inbound(port, window);
}

void port_gone(struct port *port)
{
	ntb_clear_ctx(port->ntb);
	mutex_lock(&port->lock);
	reset(port);
	forget_windows(port);
	port->ntb = NULL;
	mutex_unlock(&port->lock);
	cancel_work_sync(&port->changed);
	wake_up_interruptible(&port->readers);
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

static u32 doorbells(struct port *port)
{
	return hweight32(lower_32_bits(ntb_db_valid_mask(port->ntb)));
}

int port_info(struct port *port, struct crosslane_ntb_info *info)
{
	resource_size_t align, max;
	u32 window;

	lockdep_assert_held(&port->lock);
	memset(info, 0, sizeof(*info));
	info->version = CROSSLANE_NTB_VERSION;
	info->windows = port->windows;
	info->scratchpads = max(ntb_spad_count(port->ntb), 0);
	info->doorbells = doorbells(port);
	for (window = 0; window < port->windows; window++) {
		struct crosslane_ntb_window *to = &info->window[window];

		to->inbound_len = port->inbound[window].len;
		to->outbound_len = port->outbound[window].len;
		/* Bridges know this while the link is up. */
		if (ntb_mw_get_align(port->ntb, PEER, window, NULL, &align, &max))
			continue;
		to->inbound_align = max_t(u64, align, PAGE_SIZE);
		to->inbound_max = round_down(max, to->inbound_align);
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

/* Memory whose address on the bus is a multiple of `align`. */
static int allocate(struct port *port, struct port_inbound *inbound, u64 len, u64 align)
{
	struct device *device = &port->ntb->pdev->dev;
	size_t longer;

	inbound->allocated_len = len;
	inbound->allocated = dma_alloc_coherent(device, len, &inbound->allocated_dma, GFP_KERNEL | __GFP_NOWARN);
	if (inbound->allocated && !IS_ALIGNED(inbound->allocated_dma, align)) {
		dma_free_coherent(device, len, inbound->allocated, inbound->allocated_dma);
		if (check_add_overflow((size_t)len, (size_t)align, &longer))
			return -EINVAL;
		inbound->allocated_len = longer;
		inbound->allocated = dma_alloc_coherent(device, longer, &inbound->allocated_dma,
							GFP_KERNEL | __GFP_NOWARN);
	}
	if (!inbound->allocated)
		return -ENOMEM;
	inbound->dma = ALIGN(inbound->allocated_dma, align);
	inbound->memory = (u8 *)inbound->allocated + (inbound->dma - inbound->allocated_dma);
	inbound->len = len;
	return 0;
}

int port_translate(struct port *port, u32 window, u64 len)
{
	resource_size_t address_align, align, max;
	struct port_inbound inbound = {};
	int error;

	lockdep_assert_held(&port->lock);
	if (window >= port->windows)
		return -ENXIO;
	if (has_segments(port, window, CROSSLANE_NTB_INBOUND))
		return -EBUSY;
	if (!len) {
		free_inbound(port, window);
		return 0;
	}
	error = ntb_mw_get_align(port->ntb, PEER, window, &address_align, &align, &max);
	if (error)
		return error;
	if (len > max || !IS_ALIGNED(len, max_t(u64, align, PAGE_SIZE)))
		return -EINVAL;
	free_inbound(port, window);
	error = allocate(port, &inbound, len, max_t(u64, address_align, PAGE_SIZE));
	if (error)
		return error;
	port->inbound[window] = inbound;
	error = set_translation(port, window);
	if (error)
		free_inbound(port, window);
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

static struct segment *carve(struct port *port, const struct crosslane_ntb_range *range)
{
	if (range->side == CROSSLANE_NTB_OUTBOUND) {
		struct port_outbound *outbound = &port->outbound[range->window];

		if (!fits(range->offset, range->len, outbound->len))
			return ERR_PTR(-EINVAL);
		return segment_new(range, outbound_frame, (void *)PHYS_PFN(outbound->base + range->offset));
	} else {
		struct port_inbound *inbound = &port->inbound[range->window];

		if (!fits(range->offset, range->len, inbound->len))
			return ERR_PTR(-EINVAL);
		memset(inbound->memory + range->offset, 0, range->len);
		return segment_new(range, inbound_frame, inbound->memory + range->offset);
	}
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
	segment = carve(port, range);
	if (IS_ERR(segment))
		return PTR_ERR(segment);
	list_add(&segment->link, &port->segments);
	descriptor = segment_descriptor(segment);
	if (descriptor < 0)
		end_segment(segment, false);
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
		end_segment(segment, false);
		return 0;
	}
	return -ENOENT;
}

int port_link(struct port *port, bool on)
{
	int error;

	lockdep_assert_held(&port->lock);
	error = on ? ntb_link_enable(port->ntb, NTB_SPEED_AUTO, NTB_WIDTH_AUTO) : ntb_link_disable(port->ntb);
	if (!error)
		ntb_link_event(port->ntb);
	return error;
}

static bool has_pad(struct port *port, u32 index)
{
	int count = ntb_spad_count(port->ntb);

	return count > 0 && index < (u32)count;
}

int port_read_pad(struct port *port, u32 index, u32 *value)
{
	lockdep_assert_held(&port->lock);
	if (!has_pad(port, index))
		return -ENXIO;
	*value = ntb_spad_read(port->ntb, index);
	return 0;
}

int port_write_peer_pad(struct port *port, u32 index, u32 value)
{
	lockdep_assert_held(&port->lock);
	if (!has_pad(port, index))
		return -ENXIO;
	return ntb_peer_spad_write(port->ntb, PEER, index, value);
}

int port_ring(struct port *port, u32 bits)
{
	lockdep_assert_held(&port->lock);
	if (bits & ~lower_32_bits(ntb_db_valid_mask(port->ntb)))
		return -ENXIO;
	return ntb_peer_db_set(port->ntb, bits);
}

void port_mask(struct port *port, u32 bits)
{
	unsigned long flags;

	spin_lock_irqsave(&port->events, flags);
	port->masked = bits;
	spin_unlock_irqrestore(&port->events, flags);
	wake_up_interruptible(&port->readers);
}

/* What the next event is; port->events is held. */
static u32 next_event(struct port *port)
{
	if (port->told_up && (!port->up || port->told_life != port->life))
		return CROSSLANE_NTB_LINK_DOWN;
	if (port->up && !port->told_up)
		return CROSSLANE_NTB_LINK_UP;
	if (port->told_up && port->rung & ~port->masked)
		return CROSSLANE_NTB_DOORBELL;
	return 0;
}

bool port_event(struct port *port, struct crosslane_ntb_event *event)
{
	unsigned long flags;

	memset(event, 0, sizeof(*event));
	spin_lock_irqsave(&port->events, flags);
	event->kind = next_event(port);
	switch (event->kind) {
	case CROSSLANE_NTB_LINK_DOWN:
		event->life = port->told_life;
		port->told_up = false;
		break;
	case CROSSLANE_NTB_LINK_UP:
		event->life = port->told_life = port->life;
		port->told_up = true;
		break;
	case CROSSLANE_NTB_DOORBELL:
		event->life = port->life;
		event->doorbells = port->rung & ~port->masked;
		port->rung &= port->masked;
		break;
	}
	spin_unlock_irqrestore(&port->events, flags);
	return event->kind;
}

bool port_has_event(struct port *port)
{
	unsigned long flags;
	bool has;

	spin_lock_irqsave(&port->events, flags);
	has = next_event(port);
	spin_unlock_irqrestore(&port->events, flags);
	return has;
}

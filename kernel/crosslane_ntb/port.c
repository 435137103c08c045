// SPDX-License-Identifier: GPL-2.0
#include "port.h"

#include "bridge.h"
#include "copies.h"
#include "life.h"
#include "segment.h"

#include <linux/io.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/ntb.h>
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

static void end_segment(struct segment *segment, bool keep)
{
	list_del(&segment->link);
	segment_end(segment, keep);
	segment_put(segment);
}

struct port *port_new(struct bridge *bridge, int peer)
{
	struct port *port = kzalloc(sizeof(*port), GFP_KERNEL);

	if (!port)
		return NULL;
	kref_init(&port->users);
	mutex_init(&port->lock);
	INIT_LIST_HEAD(&port->segments);
	spin_lock_init(&port->events);
	init_waitqueue_head(&port->readers);
	control_init(&port->control);
	wakers_init(&port->wakers);
	life_init(port);
	port->sessions = get_random_u32();
	port->search_again = jiffies;
	port->bridge = bridge;
	port->peer = peer;
	port->ntb = bridge->ntb;
	return port;
}

int port_open(struct port *port)
{
	return windows_find(port);
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
	bridge_link(port->bridge, port, false);
	for (window = 0; window < port->windows; window++) {
		windows_free(port, window);
		port->inbound[window].wanted = 0;
	}
	/* What is not settled with the peer yet. */
	life_step(port);
}

void port_gone(struct port *port)
{
	mutex_lock(&port->lock);
	reset(port);
	/* Nobody stores by a bridge without a link. */
	ntb_link_disable(port->ntb);
	port->words.exposed = false;
	windows_free_stale(port);
	windows_forget(port);
	port->ntb = NULL;
	mutex_unlock(&port->lock);
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
	u32 window;

	lockdep_assert_held(&port->lock);
	memset(info, 0, sizeof(*info));
	info->version = CROSSLANE_NTB_VERSION;
	info->windows = port->windows;
	info->copy_max = port->copies ? COPY_MAX : 0;
	info->port = ntb_port_number(port->ntb);
	info->peer_port = ntb_peer_port_number(port->ntb, port->peer);
	for (window = 0; window < port->windows; window++) {
		struct crosslane_ntb_window *to = &info->window[window];

		to->inbound_len = port->inbound[window].wanted;
		to->outbound_len = port->outbound[window].len - windows_reserved(window);
		to->inbound_max = windows_inbound_max(port, window);
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

/* Longer than any bridge's window. */
#define WANTED_MAX BIT_ULL(46)

int port_translate(struct port *port, u32 window, u64 len)
{
	/* Of the memory behind this one a peer that translates hears before a life, only. */
	bool told = !window || port->bridge->outbound;
	int error = 0;

	lockdep_assert_held(&port->lock);
	if (window >= port->windows)
		return -ENXIO;
	if (!PAGE_ALIGNED(len) || len > WANTED_MAX)
		return -EINVAL;
	if (has_segments(port, window, CROSSLANE_NTB_INBOUND) || (told && port->control.own))
		return -EBUSY;
	if (told)
		life_end(port);
	windows_free(port, window);
	port->inbound[window].wanted = len;
	/* Otherwise when the link comes up. */
	if (port->ready)
		error = windows_set(port, window);
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
	u64 skip = windows_reserved(range->window);

	if (!fits(range->offset, range->len, outbound->len - skip))
		return ERR_PTR(-EINVAL);
	return segment_new(range, outbound_frame, (void *)PHYS_PFN(outbound->base + skip + range->offset), port->copies);
}

static struct segment *carve_inbound(struct port *port, const struct crosslane_ntb_range *range)
{
	struct port_inbound *inbound = &port->inbound[range->window];
	u64 skip = windows_reserved(range->window);

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
		/* A stream that has moved is read to its end in the old range. */
		end_segment(segment, true);
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
	return bridge_link(port->bridge, port, on);
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

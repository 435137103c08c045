// SPDX-License-Identifier: GPL-2.0
/* A port's windows: memory of this host behind those that the peer stores through, and where both directions lead. */
#include "windows.h"

#include "bridge.h"
#include "contiguous.h"
#include "port.h"
#include "words.h"

#include <linux/dma-direct.h>
#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/io.h>
#include <linux/jiffies.h>
#include <linux/log2.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/ntb.h>
#include <linux/overflow.h>
#include <linux/pci.h>

/* What the bridge calls the windows of this port. */
static int inbound_number(struct port *port, u32 window)
{
	return port->own_number + window * port->bridge->peers;
}

static int outbound_number(struct port *port, u32 window)
{
	return port->number + window * port->bridge->peers;
}

/* How many of so many windows of a bridge are this port's, the first of which is `first`. */
static int share(struct port *port, int windows, u32 first)
{
	return windows > (int)first ? DIV_ROUND_UP(windows - first, port->bridge->peers) : 0;
}

/* After a search of all memory that found none, jiffies: the peer can have this end try as often as it likes. */
#define SEARCH_PAUSE (10 * HZ)

u64 windows_reserved(u32 window)
{
	return window ? 0 : CONTROL_LEN;
}

u64 windows_inbound_max(struct port *port, u32 window)
{
	resource_size_t align, max;

	/* Bridges know this while the link is up. */
	if (ntb_mw_get_align(port->ntb, port->peer, inbound_number(port, window), NULL, &align, &max))
		return 0;
	max = rounddown(max, max_t(u64, align, PAGE_SIZE));
	return max > windows_reserved(window) ? max - windows_reserved(window) : 0;
}

int windows_find(struct port *port)
{
	struct ntb_dev *ntb = port->ntb;
	int inbound = share(port, ntb_mw_count(ntb, port->peer), port->own_number);
	int outbound = share(port, ntb_peer_mw_count(ntb), port->number);
	struct port_outbound *to;
	resource_size_t len;
	u32 window;
	int error;

	port->windows = min3(inbound, outbound, CROSSLANE_NTB_WINDOWS);
	for (window = 0; window < port->windows; window++) {
		to = &port->outbound[window];
		error = ntb_peer_mw_get_addr(ntb, outbound_number(port, window), &to->base, &len);
		if (error)
			return error;
		to->len = round_down(len, PAGE_SIZE);
		if (to->len <= windows_reserved(window))
			return -ENOSPC;
		to->memory = ioremap_wc(to->base, to->len);
		if (!to->memory)
			return -ENOMEM;
	}
	if (!port->windows)
		dev_err(&ntb->dev, "this bridge has no window for each of its %u peers\n", port->bridge->peers);
	return port->windows ? 0 : -ENODEV;
}

void windows_forget(struct port *port)
{
	u32 window;

	for (window = 0; window < port->windows; window++)
		if (port->outbound[window].memory)
			iounmap(port->outbound[window].memory);
}

/* What allocate_contiguous() allocated. */
static void free_contiguous(struct device *device, struct port_inbound *inbound)
{
	dma_unmap_page_attrs(device, inbound->allocated_dma, inbound->allocated_len, DMA_BIDIRECTIONAL, DMA_ATTR_SKIP_CPU_SYNC);
	contiguous_free(virt_to_page(inbound->allocated), inbound->allocated_len);
}

static void give_back(struct port *port, u32 window)
{
	struct port_inbound *inbound = &port->inbound[window];

	ntb_mw_clear_trans(port->ntb, port->peer, inbound_number(port, window));
	if (inbound->contiguous)
		free_contiguous(&port->ntb->pdev->dev, inbound);
	else
		dma_free_coherent(&port->ntb->pdev->dev, inbound->allocated_len, inbound->allocated, inbound->allocated_dma);
	*inbound = (struct port_inbound){ .wanted = inbound->wanted };
}

void windows_free(struct port *port, u32 window)
{
	struct port_inbound *inbound = &port->inbound[window];

	inbound->stale = inbound->allocated && words_exposed(port);
	if (inbound->allocated && !inbound->stale)
		give_back(port, window);
}

void windows_free_stale(struct port *port)
{
	u32 window;

	for (window = 0; window < port->windows; window++)
		if (port->inbound[window].stale && !words_exposed(port))
			give_back(port, window);
}

void windows_clear(struct port *port)
{
	u32 window;

	for (window = 0; window < port->windows; window++)
		if (port->inbound[window].allocated)
			ntb_mw_clear_trans(port->ntb, port->peer, inbound_number(port, window));
	windows_turn(port, 0);
}

bool windows_of(struct port *port, u16 session)
{
	return !port->bridge->outbound || port->translated == session;
}

void windows_turn(struct port *port, u16 session)
{
	u32 window;

	if (!port->translated || port->translated == session)
		return;
	for (window = 0; window < port->windows; window++)
		ntb_peer_mw_clear_trans(port->ntb, port->peer, outbound_number(port, window));
	port->translated = 0;
}

/*
 * The place is the peer's own, and so is the harm of a wrong one. What is longer than the window would be an address of something else,
 * as some bridges count.
 */
static int reach(struct port *port, u32 window, const struct words_window *told)
{
	if (told->len > port->outbound[window].len || (!window && told->len <= CONTROL_LEN))
		return -EINVAL;
	if (!told->len)
		return 0;
	return ntb_peer_mw_set_trans(port->ntb, port->peer, outbound_number(port, window), told->address, told->len);
}

bool windows_reach(struct port *port, u16 session)
{
	struct words_window told[CROSSLANE_NTB_WINDOWS];
	u32 window;
	int error;

	if (windows_of(port, session))
		return true;
	windows_turn(port, session);
	if (!session || !words_places(port, session, told))
		return false;
	/* Also if only some are, until windows_turn(). */
	port->translated = session;
	for (window = 0; window < port->windows; window++) {
		error = reach(port, window, &told[window]);
		if (!error)
			continue;
		dev_err_ratelimited(&port->ntb->dev, "window %u cannot lead to %llu bytes at %#llx, as the peer says: error %d\n", window,
				    told[window].len, told[window].address, error);
		windows_turn(port, 0);
		return false;
	}
	return true;
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

/* Gives a window the memory that its owner wants, aligned to `least` at least; the bridge's link is up. */
static int allocate_wanted(struct port *port, u32 window, u64 least)
{
	struct port_inbound *inbound = &port->inbound[window];
	resource_size_t address_align, align, max;
	u64 len;
	int error;

	error = ntb_mw_get_align(port->ntb, port->peer, inbound_number(port, window), &address_align, &align, &max);
	if (error)
		return error;
	/* What the bridge translates may have to be longer than what the owner wants. */
	len = roundup(inbound->wanted + windows_reserved(window), max_t(u64, align, PAGE_SIZE));
	if (len > max)
		return -EINVAL;
	return allocate(port, inbound, len, max3((u64)address_align, (u64)PAGE_SIZE, least));
}

static int translate(struct port *port, u32 window)
{
	struct port_inbound *inbound = &port->inbound[window];

	return ntb_mw_set_trans(port->ntb, port->peer, inbound_number(port, window), inbound->dma, inbound->len);
}

/*
 * As windows_set(), for bridges that want memory aligned to its length, and say less of what they want (ntb_hw_switchtec): once more, with
 * other memory.
 */
static int set_aligned(struct port *port, u32 window)
{
	struct port_inbound *inbound = &port->inbound[window];
	u64 align = roundup_pow_of_two(inbound->len);
	int error;

	if (IS_ALIGNED(inbound->dma, align))
		return -EINVAL;
	give_back(port, window);
	error = allocate_wanted(port, window, align);
	return error ?: translate(port, window);
}

int windows_set(struct port *port, u32 window)
{
	struct port_inbound *inbound = &port->inbound[window];
	int error = 0;

	if (!inbound->wanted)
		return 0;
	if (!inbound->allocated)
		error = allocate_wanted(port, window, 0);
	if (!error)
		error = translate(port, window);
	if (error == -EINVAL && inbound->allocated)
		error = set_aligned(port, window);
	if (error)
		windows_free(port, window);
	return error;
}

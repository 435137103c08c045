// SPDX-License-Identifier: GPL-2.0
/* Memory in one piece on kernels without CMA (Debian's), as the kernel itself gets huge pages of 1 GB at run time. */
#include "contiguous.h"

#include <linux/gfp.h>
#include <linux/memory_hotplug.h>
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/nodemask.h>
#include <linux/sched.h>

#ifdef CONFIG_CONTIG_ALLOC

/* Pages that can be moved or are free, of this zone: alloc_contig_range() looks closer. */
static bool may_be_had(struct zone *zone, unsigned long first, unsigned long count)
{
	unsigned long frame;

	for (frame = first; frame < first + count; frame++) {
		struct page *page = pfn_to_online_page(frame);

		if (!page || page_zone(page) != zone || PageReserved(page) || PageHuge(page))
			return false;
	}
	return true;
}

static struct page *from_zone(struct zone *zone, unsigned long count, unsigned long align, unsigned long most)
{
	unsigned long end = min(zone_end_pfn(zone), most), first;

	/* From the top: what cannot be moved gathers at the bottom. */
	for (first = end > count ? round_down(end - count, align) : 0; first && first >= zone->zone_start_pfn; first -= min(first, align)) {
		cond_resched();
		if (fatal_signal_pending(current))
			return NULL;
		if (!may_be_had(zone, first, count))
			continue;
		if (!alloc_contig_range(first, first + count, MIGRATE_MOVABLE, GFP_KERNEL | __GFP_NOWARN))
			return pfn_to_page(first);
	}
	return NULL;
}

static struct page *from_node(int node, unsigned long count, unsigned long align, unsigned long most)
{
	struct page *pages = NULL;
	int zone;

	for (zone = MAX_NR_ZONES - 1; zone >= 0 && !pages; zone--)
		if (zone != ZONE_MOVABLE && populated_zone(&NODE_DATA(node)->node_zones[zone]))
			pages = from_zone(&NODE_DATA(node)->node_zones[zone], count, align, most);
	return pages;
}

struct page *contiguous_alloc(u64 len, u64 align, u64 most, int near)
{
	unsigned long count = len >> PAGE_SHIFT, frames = max_t(u64, align >> PAGE_SHIFT, pageblock_nr_pages);
	unsigned long last = most >> PAGE_SHIFT;
	struct page *pages = NULL;
	int node;

	/* The first frame behind what the device can address. */
	last = last == ULONG_MAX ? last : last + 1;
	if (!count)
		return NULL;
	if (near != NUMA_NO_NODE && node_online(near))
		pages = from_node(near, count, frames, last);
	for_each_online_node(node)
		if (!pages && node != near)
			pages = from_node(node, count, frames, last);
	return pages;
}

void contiguous_free(struct page *first, u64 len)
{
	free_contig_range(page_to_pfn(first), len >> PAGE_SHIFT);
}

#else

struct page *contiguous_alloc(u64 len, u64 align, u64 most, int near)
{
	return NULL;
}

void contiguous_free(struct page *first, u64 len)
{
}

#endif

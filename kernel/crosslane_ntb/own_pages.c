// SPDX-License-Identifier: GPL-2.0
#include "own_pages.h"

#include <linux/gfp.h>
#include <linux/highmem.h>
#include <linux/mm.h>
#include <linux/slab.h>

struct own_pages *own_pages_new(void)
{
	struct own_pages *own = kzalloc(sizeof(*own), GFP_KERNEL_ACCOUNT);

	if (!own)
		return NULL;
	refcount_set(&own->users, 1);
	xa_init(&own->pages);
	return own;
}

void own_pages_get(struct own_pages *own)
{
	refcount_inc(&own->users);
}

void own_pages_put(struct own_pages *own)
{
	unsigned long index;
	struct page *page;

	if (!refcount_dec_and_test(&own->users))
		return;
	xa_for_each(&own->pages, index, page)
		__free_page(page);
	xa_destroy(&own->pages);
	kfree(own);
}

unsigned long own_pages_frame(struct own_pages *own, unsigned long index, struct page *first)
{
	struct page *page = xa_load(&own->pages, index);
	struct page *other;

	if (page)
		return page_to_pfn(page);
	/* Charged to the process that touches it. */
	page = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!page)
		return 0;
	if (first)
		copy_highpage(page, first);
	other = xa_cmpxchg(&own->pages, index, NULL, page, GFP_KERNEL_ACCOUNT);
	if (!other)
		return page_to_pfn(page);
	__free_page(page);
	return xa_is_err(other) ? 0 : page_to_pfn(other);
}

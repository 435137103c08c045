/* SPDX-License-Identifier: GPL-2.0 */
#ifndef CROSSLANE_OWN_PAGES_H
#define CROSSLANE_OWN_PAGES_H

#include <linux/refcount.h>
#include <linux/xarray.h>

struct page;

/*
 * What one mapping of a segment shows when the segment has ended: pages that no other process has. A mapping that fork or a partial
 * unmap has divided shares them, as parent and child share what MAP_SHARED maps.
 */
struct own_pages {
	refcount_t users;
	struct xarray pages;
};

struct own_pages *own_pages_new(void);
void own_pages_get(struct own_pages *own);
void own_pages_put(struct own_pages *own);

/*
 * The page at that index; if there is none yet, one with the contents of `first`, or zeroes if that is NULL. Its frame number, or 0
 * if there is no memory.
 */
unsigned long own_pages_frame(struct own_pages *own, unsigned long index, struct page *first);

#endif

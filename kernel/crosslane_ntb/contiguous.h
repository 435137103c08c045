/* SPDX-License-Identifier: GPL-2.0 */
#ifndef CROSSLANE_CONTIGUOUS_H
#define CROSSLANE_CONTIGUOUS_H

#include <linux/types.h>

struct page;

/*
 * Pages in one piece, `len` bytes (whole pages), whose physical address is a multiple of `align` (a power of two) and whose last byte is
 * not above `most`: of the node `near`, or else of another one. For lengths beyond what the page allocator has in one piece: other users'
 * pages are moved away for it, which takes a while. NULL if there are none. Not zeroed.
 */
struct page *contiguous_alloc(u64 len, u64 align, u64 most, int near);
void contiguous_free(struct page *first, u64 len);

#endif

/* SPDX-License-Identifier: GPL-2.0 */
#ifndef CROSSLANE_COPIES_H
#define CROSSLANE_COPIES_H

#include <linux/bits.h>
#include <linux/types.h>

struct copies;
struct copy;
struct crosslane_ntb_copy;
struct device;
struct segment;

/* Longest copy, bytes: how long a segment's end may have to wait for one, and how much of a process one pins. */
#define COPY_MAX BIT(20)

/* The channel of a DMA engine, of the node of `near` if there is one; NULL if none is free. Holds the engine's module. */
struct copies *copies_new(struct device *near);
/* All segments that copied by it have ended. */
void copies_free(struct copies *copies);

/*
 * A copy of this process's, which is not begun yet: its memory is pinned, its eventfds are held. `into`: from the process into a range. May
 * wait for the process's pages, and so for mmap_lock.
 */
struct copy *copy_new(const struct crosslane_ntb_copy *request, bool into);
/* Of a copy that was not begun. */
void copy_free(struct copy *copy);
/*
 * Begins it, `offset` bytes into the range of `segment`, which is live until segment_copied() has been called for it. An error if it has
 * not begun.
 */
int copy_begin(struct copies *copies, struct copy *copy, struct segment *segment, u64 offset);

#endif

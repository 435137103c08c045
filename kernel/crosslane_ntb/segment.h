/* SPDX-License-Identifier: GPL-2.0 */
#ifndef CROSSLANE_SEGMENT_H
#define CROSSLANE_SEGMENT_H

#include <linux/kref.h>
#include <linux/list.h>
#include <linux/rwsem.h>
#include <linux/types.h>
#include <linux/wait.h>

struct copies;
struct crosslane_ntb_range;
struct inode;
struct page;

/* The frame number of the page `index` of a range. */
typedef unsigned long (*segment_frame)(void *memory, unsigned long index);

/*
 * A range of a window or of inbound memory behind a descriptor. Whoever has the descriptor can map this range and nothing else,
 * until segment_end(). Both the port that carved it and the descriptor's file keep it alive.
 */
struct segment {
	struct kref users;
	struct list_head link;	/* in the port's list of carved ranges */
	u32 window;
	u32 side;
	u64 offset;
	u64 len;
	bool combining;		/* stores are write-combined */

	/* private: */
	struct rw_semaphore lock;
	bool live;
	segment_frame frame;
	void *memory;		/* valid while live */
	struct copies *copies;	/* valid while live; NULL: no DMA engine */
	atomic_t copying;	/* copies that are under way: no more than SEGMENT_COPIES */
	wait_queue_head_t copied;
	struct page **kept;	/* copies of what was in its pages when it ended; NULL: none were made */
	struct inode *inode;	/* its address space knows all mappings of this range */
};

/* A segment that is live, for one user; `frame(memory, i)` must answer, and `copies` be there, until segment_end() has returned. */
struct segment *segment_new(const struct crosslane_ntb_range *range, segment_frame frame, void *memory, struct copies *copies);
/* A new descriptor of it in this process, close-on-exec. */
int segment_descriptor(struct segment *segment);
/*
 * Unmaps it everywhere; from now on a process that touches its mapping gets pages of its own. Copies are over when this returns. `keep`,
 * for inbound ranges: they have what had arrived, for a reader that was not there yet. May be called again.
 */
void segment_end(struct segment *segment, bool keep);
void segment_put(struct segment *segment);
/* The frame number of a page of a live one. */
unsigned long segment_frame_at(struct segment *segment, unsigned long index);
/* A copy that copy_begin() began is over. */
void segment_copied(struct segment *segment);

#endif

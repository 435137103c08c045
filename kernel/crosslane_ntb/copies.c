// SPDX-License-Identifier: GPL-2.0
/*
 * Copies between pinned memory of a process and carved ranges, by one channel of a DMA engine for each port.
 *
 * A copy is many pieces, one for each two contiguous parts of both sides, which the engine does in their order. Whoever takes it off the
 * list of those under way finishes it: the last piece's callback, or the watch that gives up an engine which stands still.
 */
#include "copies.h"

#include "compat.h"
#include "crosslane_ntb.h"
#include "segment.h"

#include <linux/dma-mapping.h>
#include <linux/dmaengine.h>
#include <linux/eventfd.h>
#include <linux/jiffies.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

/* An engine that has work and has not finished a copy for so long is given up, jiffies. */
#define STUCK (2 * HZ)
/* Copies that are under way by one channel, of all ranges: whoever takes a range back may wait for those of others before its own. */
#define COPIES_MOST 128

struct copies {
	struct dma_chan *channel;
	struct mutex submit;	/* pieces of two copies do not mix; `broken` */
	bool broken;
	spinlock_t lock;	/* of the three below; taken in the engine's callbacks */
	struct list_head under_way;
	unsigned int count;	/* how many that are */
	unsigned long progress;	/* when one was finished last, or the first one began, jiffies */
	struct workqueue_struct *finishers;
	struct delayed_work watch;
};

/* Frames of a range that lie in a row, as the engine addresses them. */
struct run {
	dma_addr_t dma;
	size_t len;
	bool is_memory;	/* of the kernel's own; else registers or memory of a device */
};

struct copy {
	struct work_struct finish;
	struct list_head link;
	struct copies *copies;
	struct segment *segment;
	bool into;
	bool failed;
	refcount_t pieces;	/* under way, and who begins them */
	u64 address, len;
	struct page **pages;
	unsigned int pinned;
	struct sg_table memory;
	bool mapped;
	struct run *runs;
	unsigned int runs_mapped;
	struct eventfd_ctx *over, *failures;
};

static struct device *engine(struct copies *copies)
{
	return copies->channel->device->dev;
}

/* How the engine moves the bytes of the process's memory. */
static enum dma_data_direction memory_direction(struct copy *copy)
{
	return copy->into ? DMA_TO_DEVICE : DMA_FROM_DEVICE;
}

static enum dma_data_direction range_direction(struct copy *copy)
{
	return copy->into ? DMA_FROM_DEVICE : DMA_TO_DEVICE;
}

static int pin(struct copy *copy)
{
	unsigned int first = offset_in_page(copy->address);
	unsigned int count = DIV_ROUND_UP(first + copy->len, PAGE_SIZE);
	int got;

	copy->pages = kvcalloc(count, sizeof(*copy->pages), GFP_KERNEL_ACCOUNT);
	if (!copy->pages)
		return -ENOMEM;
	got = pin_user_pages_fast(copy->address & PAGE_MASK, count, copy->into ? 0 : FOLL_WRITE, copy->pages);
	if (got < 0)
		return got;
	copy->pinned = got;
	if (got < count)
		return -EFAULT;
	return sg_alloc_table_from_pages(&copy->memory, copy->pages, count, first, copy->len, GFP_KERNEL);
}

static int hold_eventfds(struct copy *copy, const struct crosslane_ntb_copy *request)
{
	struct eventfd_ctx *held = eventfd_ctx_fdget(request->over);

	if (IS_ERR(held))
		return PTR_ERR(held);
	copy->over = held;
	held = eventfd_ctx_fdget(request->failed);
	if (IS_ERR(held))
		return PTR_ERR(held);
	copy->failures = held;
	return 0;
}

struct copy *copy_new(const struct crosslane_ntb_copy *request, bool into)
{
	struct copy *copy = kzalloc(sizeof(*copy), GFP_KERNEL_ACCOUNT);
	int error;

	if (!copy)
		return ERR_PTR(-ENOMEM);
	INIT_LIST_HEAD(&copy->link);
	refcount_set(&copy->pieces, 1);
	copy->into = into;
	copy->address = request->address;
	copy->len = request->len;
	error = hold_eventfds(copy, request) ?: pin(copy);
	if (!error)
		return copy;
	copy_free(copy);
	return ERR_PTR(error);
}

static void unmap(struct copy *copy)
{
	enum dma_data_direction direction = range_direction(copy);
	unsigned int i;

	if (copy->mapped)
		dma_unmap_sgtable(engine(copy->copies), &copy->memory, memory_direction(copy), 0);
	for (i = 0; i < copy->runs_mapped; i++) {
		struct run *run = &copy->runs[i];

		if (run->is_memory)
			dma_unmap_page(engine(copy->copies), run->dma, run->len, direction);
		else
			dma_unmap_resource(engine(copy->copies), run->dma, run->len, direction, 0);
	}
}

void copy_free(struct copy *copy)
{
	unmap(copy);
	kvfree(copy->runs);
	sg_free_table(&copy->memory);
	unpin_user_pages_dirty_lock(copy->pages, copy->pinned, !copy->into);
	kvfree(copy->pages);
	if (copy->over)
		eventfd_ctx_put(copy->over);
	if (copy->failures)
		eventfd_ctx_put(copy->failures);
	kfree(copy);
}

static void finish(struct work_struct *work)
{
	struct copy *copy = container_of(work, struct copy, finish);
	struct segment *segment = copy->segment;
	struct eventfd_ctx *over = copy->over;

	if (READ_ONCE(copy->failed))
		compat_eventfd_signal(copy->failures);
	copy->over = NULL;
	/* Who is told has its memory back. */
	copy_free(copy);
	compat_eventfd_signal(over);
	eventfd_ctx_put(over);
	segment_copied(segment);
}

/* Takes a copy off the list of those under way; copies->lock is held. */
static void take_off(struct copy *copy)
{
	list_del_init(&copy->link);
	copy->copies->count--;
	copy->copies->progress = jiffies;
}

/* In any context. Who comes second does nothing. */
static void is_over(struct copy *copy)
{
	struct copies *copies = copy->copies;
	unsigned long flags;
	bool first;

	spin_lock_irqsave(&copies->lock, flags);
	first = !list_empty(&copy->link);
	if (first) {
		take_off(copy);
		queue_work(copies->finishers, &copy->finish);
	}
	spin_unlock_irqrestore(&copies->lock, flags);
}

static void piece_over(void *argument, const struct dmaengine_result *result)
{
	struct copy *copy = argument;

	if (result && result->result != DMA_TRANS_NOERROR)
		WRITE_ONCE(copy->failed, true);
	if (refcount_dec_and_test(&copy->pieces))
		is_over(copy);
}

static int begin_piece(struct copy *copy, dma_addr_t memory, dma_addr_t range, size_t len, bool last)
{
	struct dma_async_tx_descriptor *piece;
	dma_addr_t to = copy->into ? range : memory, from = copy->into ? memory : range;

	piece = dmaengine_prep_dma_memcpy(copy->copies->channel, to, from, len, DMA_CTRL_ACK | (last ? DMA_PREP_INTERRUPT : 0));
	if (!piece)
		return -EAGAIN;
	piece->callback_result = piece_over;
	piece->callback_param = copy;
	refcount_inc(&copy->pieces);
	if (!dma_submit_error(dmaengine_submit(piece)))
		return 0;
	refcount_dec(&copy->pieces);
	return -EIO;
}

/* An error if none has begun; what stops in the middle has failed when it is over. */
static int begin_pieces(struct copy *copy)
{
	struct scatterlist *memory = copy->memory.sgl;
	size_t left = copy->len, in_memory = 0, in_run = 0, len;
	struct run *run = copy->runs;
	int error;

	for (; left; left -= len) {
		len = min3(left, (size_t)sg_dma_len(memory) - in_memory, run->len - in_run);
		error = begin_piece(copy, sg_dma_address(memory) + in_memory, run->dma + in_run, len, len == left);
		if (error && left == copy->len)
			return error;
		if (error) {
			WRITE_ONCE(copy->failed, true);
			break;
		}
		in_memory += len;
		in_run += len;
		if (in_memory == sg_dma_len(memory)) {
			memory = sg_next(memory);
			in_memory = 0;
		}
		if (in_run == run->len) {
			run++;
			in_run = 0;
		}
	}
	return 0;
}

/* The frames from `offset` on that lie in a row, bytes: at most `len`. */
static size_t run_len(struct segment *segment, u64 offset, u64 len)
{
	unsigned long first = segment_frame_at(segment, offset >> PAGE_SHIFT), count = 1;
	u64 end = offset + len;

	while (round_down(offset, PAGE_SIZE) + (count << PAGE_SHIFT) < end &&
	       segment_frame_at(segment, (offset >> PAGE_SHIFT) + count) == first + count)
		count++;
	return min_t(u64, len, (count << PAGE_SHIFT) - offset_in_page(offset));
}

static int map_run(struct copy *copy, struct run *run, unsigned long frame, unsigned int first, size_t len)
{
	enum dma_data_direction direction = range_direction(copy);
	struct device *device = engine(copy->copies);

	run->len = len;
	run->is_memory = pfn_valid(frame);
	if (run->is_memory)
		run->dma = dma_map_page(device, pfn_to_page(frame), first, len, direction);
	else
		run->dma = dma_map_resource(device, PFN_PHYS(frame) + first, len, direction, 0);
	return dma_mapping_error(device, run->dma);
}

static int map_range(struct copy *copy, struct segment *segment, u64 offset)
{
	u64 at, end = offset + copy->len;
	unsigned int count = 0;
	int error;

	for (at = offset; at < end; at += run_len(segment, at, end - at))
		count++;
	copy->runs = kvcalloc(count, sizeof(*copy->runs), GFP_KERNEL_ACCOUNT);
	if (!copy->runs)
		return -ENOMEM;
	for (at = offset; at < end; at += copy->runs[copy->runs_mapped++].len) {
		error = map_run(copy, &copy->runs[copy->runs_mapped], segment_frame_at(segment, at >> PAGE_SHIFT), offset_in_page(at),
				run_len(segment, at, end - at));
		if (error)
			return error;
	}
	return 0;
}

static int map_memory(struct copy *copy)
{
	int error = dma_map_sgtable(engine(copy->copies), &copy->memory, memory_direction(copy), 0);

	copy->mapped = !error;
	return error;
}

static bool put_on(struct copies *copies, struct copy *copy)
{
	unsigned long flags;
	bool fits;

	spin_lock_irqsave(&copies->lock, flags);
	fits = copies->count < COPIES_MOST;
	if (fits) {
		if (!copies->count++)
			copies->progress = jiffies;
		list_add_tail(&copy->link, &copies->under_way);
	}
	spin_unlock_irqrestore(&copies->lock, flags);
	return fits;
}

static int submit(struct copies *copies, struct copy *copy)
{
	unsigned long flags;
	int error = -EIO;

	mutex_lock(&copies->submit);
	if (copies->broken)
		goto unlock;
	error = put_on(copies, copy) ? begin_pieces(copy) : -EAGAIN;
	if (error) {
		spin_lock_irqsave(&copies->lock, flags);
		if (!list_empty(&copy->link))
			take_off(copy);
		spin_unlock_irqrestore(&copies->lock, flags);
		goto unlock;
	}
	dma_async_issue_pending(copies->channel);
	queue_delayed_work(copies->finishers, &copies->watch, STUCK);
	if (refcount_dec_and_test(&copy->pieces))
		is_over(copy);
unlock:
	mutex_unlock(&copies->submit);
	return error;
}

int copy_begin(struct copies *copies, struct copy *copy, struct segment *segment, u64 offset)
{
	int error;

	if (!is_dma_copy_aligned(copies->channel->device, copy->address, offset, copy->len))
		return -EINVAL;
	copy->copies = copies;
	copy->segment = segment;
	INIT_WORK(&copy->finish, finish);
	error = map_memory(copy) ?: map_range(copy, segment, offset);
	return error ?: submit(copies, copy);
}

static bool stands_still(struct copies *copies)
{
	unsigned long flags;
	bool still;

	spin_lock_irqsave(&copies->lock, flags);
	still = copies->count && !time_before(jiffies, copies->progress + STUCK);
	spin_unlock_irqrestore(&copies->lock, flags);
	return still;
}

/* No callback comes behind this; copies->submit is held. */
static void give_up(struct copies *copies)
{
	struct copy *copy, *next;
	unsigned long flags;

	if (!copies->broken)
		dev_err(engine(copies), "this DMA engine stands still: no copies by it any more\n");
	copies->broken = true;
	/* An engine that cannot be told to stop may still copy: what it holds stays held. */
	if (dmaengine_terminate_sync(copies->channel))
		return;
	spin_lock_irqsave(&copies->lock, flags);
	list_for_each_entry_safe(copy, next, &copies->under_way, link) {
		take_off(copy);
		WRITE_ONCE(copy->failed, true);
		queue_work(copies->finishers, &copy->finish);
	}
	spin_unlock_irqrestore(&copies->lock, flags);
}

static void watch(struct work_struct *work)
{
	struct copies *copies = container_of(to_delayed_work(work), struct copies, watch);

	mutex_lock(&copies->submit);
	if (stands_still(copies))
		give_up(copies);
	if (READ_ONCE(copies->count))
		queue_delayed_work(copies->finishers, &copies->watch, STUCK);
	mutex_unlock(&copies->submit);
}

static bool is_near(struct dma_chan *channel, void *node)
{
	return dev_to_node(channel->device->dev) == (int)(long)node;
}

static struct dma_chan *channel_near(struct device *near)
{
	struct dma_chan *channel;
	dma_cap_mask_t mask;

	dma_cap_zero(mask);
	dma_cap_set(DMA_MEMCPY, mask);
	channel = dma_request_channel(mask, is_near, (void *)(long)dev_to_node(near));
	return channel ?: dma_request_channel(mask, NULL, NULL);
}

struct copies *copies_new(struct device *near)
{
	struct copies *copies = kzalloc(sizeof(*copies), GFP_KERNEL);

	if (!copies)
		return NULL;
	mutex_init(&copies->submit);
	spin_lock_init(&copies->lock);
	INIT_LIST_HEAD(&copies->under_way);
	INIT_DELAYED_WORK(&copies->watch, watch);
	copies->finishers = alloc_workqueue("crosslane_copies", WQ_HIGHPRI | WQ_UNBOUND, 0);
	if (!copies->finishers)
		goto free_copies;
	copies->channel = channel_near(near);
	if (copies->channel)
		return copies;
	destroy_workqueue(copies->finishers);
free_copies:
	kfree(copies);
	return NULL;
}

void copies_free(struct copies *copies)
{
	if (!copies)
		return;
	cancel_delayed_work_sync(&copies->watch);
	/* What finishes the last copy may not have returned yet. */
	destroy_workqueue(copies->finishers);
	dmaengine_synchronize(copies->channel);
	dma_release_channel(copies->channel);
	kfree(copies);
}

// SPDX-License-Identifier: GPL-2.0
/* dma_soft: a DMA engine of software, which copies memory, for tests of those who use one. Without an IOMMU. */
#include <linux/delay.h>
#include <linux/dma-direct.h>
#include <linux/dma-mapping.h>
#include <linux/dmaengine.h>
#include <linux/highmem.h>
#include <linux/io.h>
#include <linux/ioport.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#define CHANNELS 2

static unsigned int delay_us;
module_param(delay_us, uint, 0644);
MODULE_PARM_DESC(delay_us, "pause before each copy, up to 1000000 us");

static bool fail;
module_param(fail, bool, 0644);
MODULE_PARM_DESC(fail, "copies nothing, and says that it failed");

static bool stuck;
module_param(stuck, bool, 0644);
MODULE_PARM_DESC(stuck, "finishes nothing");

static unsigned int align;
module_param(align, uint, 0444);
MODULE_PARM_DESC(align, "addresses and lengths must be multiples of 1 << align");

struct soft_copy {
	struct dma_async_tx_descriptor tx;
	struct list_head link;
	dma_addr_t to, from;
	size_t len;
};

struct soft_channel {
	struct dma_chan chan;
	spinlock_t lock;		/* of both lists */
	struct list_head submitted;	/* not to be done before device_issue_pending() */
	struct list_head issued;
	struct work_struct work;
};

static struct platform_device *platform;
static struct dma_device engine;
static struct soft_channel channels[CHANNELS];
static struct workqueue_struct *queue;

static struct soft_channel *channel_of(struct dma_chan *chan)
{
	return container_of(chan, struct soft_channel, chan);
}

static dma_cookie_t soft_submit(struct dma_async_tx_descriptor *tx)
{
	struct soft_copy *copy = container_of(tx, struct soft_copy, tx);
	struct soft_channel *channel = channel_of(tx->chan);
	unsigned long flags;

	spin_lock_irqsave(&channel->lock, flags);
	if (++channel->chan.cookie < DMA_MIN_COOKIE)
		channel->chan.cookie = DMA_MIN_COOKIE;
	tx->cookie = channel->chan.cookie;
	list_add_tail(&copy->link, &channel->submitted);
	spin_unlock_irqrestore(&channel->lock, flags);
	return tx->cookie;
}

static struct dma_async_tx_descriptor *soft_prep(struct dma_chan *chan, dma_addr_t to, dma_addr_t from, size_t len,
						 unsigned long flags)
{
	struct soft_copy *copy = kzalloc(sizeof(*copy), GFP_NOWAIT);

	if (!copy)
		return NULL;
	dma_async_tx_descriptor_init(&copy->tx, chan);
	copy->tx.tx_submit = soft_submit;
	copy->tx.flags = flags;
	copy->to = to;
	copy->from = from;
	copy->len = len;
	return &copy->tx;
}

static void soft_issue(struct dma_chan *chan)
{
	struct soft_channel *channel = channel_of(chan);
	unsigned long flags;

	spin_lock_irqsave(&channel->lock, flags);
	list_splice_tail_init(&channel->submitted, &channel->issued);
	spin_unlock_irqrestore(&channel->lock, flags);
	queue_work(queue, &channel->work);
}

/* Memory of the kernel's own, or a device's, or what the kernel was told at boot to leave alone: that may have a struct page, too. */
static void *map_frame(unsigned long frame)
{
	if (page_is_ram(frame))
		return kmap_local_page(pfn_to_page(frame));
	return (__force void *)ioremap_wc(PFN_PHYS(frame), PAGE_SIZE);
}

static void unmap_frame(unsigned long frame, void *memory)
{
	if (page_is_ram(frame))
		kunmap_local(memory);
	else
		iounmap((__force void __iomem *)memory);
}

static bool copy_in_frame(phys_addr_t to, phys_addr_t from, size_t len)
{
	unsigned long to_frame = PHYS_PFN(to), from_frame = PHYS_PFN(from);
	/* What kmap_local_page() maps is given back in the other order. */
	u8 *to_memory = map_frame(to_frame), *from_memory = map_frame(from_frame);
	bool mapped = to_memory && from_memory;

	if (mapped)
		memcpy(to_memory + offset_in_page(to), from_memory + offset_in_page(from), len);
	if (from_memory)
		unmap_frame(from_frame, from_memory);
	if (to_memory)
		unmap_frame(to_frame, to_memory);
	return mapped;
}

static bool do_copy(struct soft_copy *copy)
{
	phys_addr_t to = dma_to_phys(&platform->dev, copy->to), from = dma_to_phys(&platform->dev, copy->from);
	size_t done, len;

	for (done = 0; done < copy->len; done += len) {
		len = min3(copy->len - done, PAGE_SIZE - offset_in_page(to + done), PAGE_SIZE - offset_in_page(from + done));
		if (!copy_in_frame(to + done, from + done, len))
			return false;
	}
	/* Who hears that it is over reads what was written. */
	wmb();
	return true;
}

static struct soft_copy *next_copy(struct soft_channel *channel)
{
	struct soft_copy *copy;
	unsigned long flags;

	spin_lock_irqsave(&channel->lock, flags);
	copy = READ_ONCE(stuck) ? NULL : list_first_entry_or_null(&channel->issued, struct soft_copy, link);
	if (copy)
		list_del(&copy->link);
	spin_unlock_irqrestore(&channel->lock, flags);
	return copy;
}

static void work(struct work_struct *work)
{
	struct soft_channel *channel = container_of(work, struct soft_channel, work);
	struct dmaengine_result result = {};
	struct soft_copy *copy;

	while ((copy = next_copy(channel))) {
		unsigned int pause = min(READ_ONCE(delay_us), 1000000U);

		if (pause)
			usleep_range(pause, 2 * pause);
		result.result = !READ_ONCE(fail) && do_copy(copy) ? DMA_TRANS_NOERROR : DMA_TRANS_WRITE_FAILED;
		channel->chan.completed_cookie = copy->tx.cookie;
		if (copy->tx.callback_result)
			copy->tx.callback_result(copy->tx.callback_param, &result);
		else if (copy->tx.callback)
			copy->tx.callback(copy->tx.callback_param);
		kfree(copy);
	}
}

static int soft_terminate(struct dma_chan *chan)
{
	struct soft_channel *channel = channel_of(chan);
	struct soft_copy *copy, *next;
	unsigned long flags;
	LIST_HEAD(lost);

	spin_lock_irqsave(&channel->lock, flags);
	list_splice_init(&channel->submitted, &lost);
	list_splice_init(&channel->issued, &lost);
	spin_unlock_irqrestore(&channel->lock, flags);
	list_for_each_entry_safe(copy, next, &lost, link)
		kfree(copy);
	return 0;
}

static void soft_synchronize(struct dma_chan *chan)
{
	flush_work(&channel_of(chan)->work);
}

static enum dma_status soft_status(struct dma_chan *chan, dma_cookie_t cookie, struct dma_tx_state *state)
{
	dma_set_tx_state(state, chan->completed_cookie, chan->cookie, 0);
	return dma_async_is_complete(cookie, chan->completed_cookie, chan->cookie);
}

static int soft_open(struct dma_chan *chan)
{
	chan->cookie = DMA_MIN_COOKIE;
	chan->completed_cookie = DMA_MIN_COOKIE;
	return 0;
}

static void soft_close(struct dma_chan *chan)
{
	soft_terminate(chan);
	soft_synchronize(chan);
}

static void describe_engine(void)
{
	unsigned int i;

	dma_cap_set(DMA_MEMCPY, engine.cap_mask);
	dma_cap_set(DMA_PRIVATE, engine.cap_mask);
	engine.dev = &platform->dev;
	engine.copy_align = align;
	engine.device_alloc_chan_resources = soft_open;
	engine.device_free_chan_resources = soft_close;
	engine.device_prep_dma_memcpy = soft_prep;
	engine.device_issue_pending = soft_issue;
	engine.device_tx_status = soft_status;
	engine.device_terminate_all = soft_terminate;
	engine.device_synchronize = soft_synchronize;
	INIT_LIST_HEAD(&engine.channels);
	for (i = 0; i < CHANNELS; i++) {
		struct soft_channel *channel = &channels[i];

		spin_lock_init(&channel->lock);
		INIT_LIST_HEAD(&channel->submitted);
		INIT_LIST_HEAD(&channel->issued);
		INIT_WORK(&channel->work, work);
		channel->chan.device = &engine;
		list_add_tail(&channel->chan.device_node, &engine.channels);
	}
}

static int __init soft_probe(struct platform_device *device)
{
	int error = dma_coerce_mask_and_coherent(&device->dev, DMA_BIT_MASK(64));

	if (error)
		return error;
	platform = device;
	describe_engine();
	return dma_async_device_register(&engine);
}

/* The engine's users keep this module by it. */
static struct platform_driver driver = {
	.driver = {
		.name = "dma_soft",
		.suppress_bind_attrs = true,
	},
};

static int __init soft_init(void)
{
	struct platform_device *device;

	queue = alloc_workqueue("dma_soft", WQ_UNBOUND, 0);
	if (!queue)
		return -ENOMEM;
	device = platform_create_bundle(&driver, soft_probe, NULL, 0, NULL, 0);
	if (!IS_ERR(device))
		return 0;
	destroy_workqueue(queue);
	return PTR_ERR(device);
}
module_init(soft_init);

static void __exit soft_exit(void)
{
	dma_async_device_unregister(&engine);
	platform_device_unregister(platform);
	platform_driver_unregister(&driver);
	destroy_workqueue(queue);
}
module_exit(soft_exit);

MODULE_DESCRIPTION("A DMA engine of software, for tests");
MODULE_AUTHOR("Crosslane");
MODULE_LICENSE("GPL");

// SPDX-License-Identifier: GPL-2.0
#include "wakers.h"

#include "compat.h"
#include "port.h"

#include <linux/anon_inodes.h>
#include <linux/eventfd.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/slab.h>

struct waker {
	struct eventfd_ctx *event;
	u32 handle;
};

static u32 slot_of(u32 handle)
{
	return handle % WAKERS_SLOTS;
}

void wakers_init(struct wakers *wakers)
{
	xa_init_flags(&wakers->slots, XA_FLAGS_ALLOC | XA_FLAGS_LOCK_IRQ);
	wakers->generation = 0;
}

int wakers_add(struct wakers *wakers, int eventfd, u32 *handle)
{
	struct waker *waker = kzalloc(sizeof(*waker), GFP_KERNEL_ACCOUNT);
	int error;
	u32 slot;

	if (!waker)
		return -ENOMEM;
	waker->event = eventfd_ctx_fdget(eventfd);
	if (IS_ERR(waker->event)) {
		error = PTR_ERR(waker->event);
		goto free;
	}
	xa_lock_irq(&wakers->slots);
	error = __xa_alloc(&wakers->slots, &slot, waker, XA_LIMIT(0, WAKERS_SLOTS - 1), GFP_KERNEL_ACCOUNT);
	if (!error) {
		waker->handle = wakers->generation++ * WAKERS_SLOTS + slot;
		*handle = waker->handle;
	}
	xa_unlock_irq(&wakers->slots);
	if (!error)
		return 0;
	eventfd_ctx_put(waker->event);
free:
	kfree(waker);
	return error == -EBUSY ? -ENOSPC : error;
}

static void release(struct waker *waker)
{
	eventfd_ctx_put(waker->event);
	kfree(waker);
}

int wakers_remove(struct wakers *wakers, u32 handle)
{
	struct waker *waker;

	xa_lock_irq(&wakers->slots);
	waker = xa_load(&wakers->slots, slot_of(handle));
	if (waker && waker->handle == handle)
		__xa_erase(&wakers->slots, slot_of(handle));
	else
		waker = NULL;
	xa_unlock_irq(&wakers->slots);
	if (!waker)
		return -ENOENT;
	release(waker);
	return 0;
}

void wakers_clear(struct wakers *wakers)
{
	struct waker *waker;
	unsigned long slot;

	xa_for_each(&wakers->slots, slot, waker) {
		xa_erase_irq(&wakers->slots, slot);
		release(waker);
	}
	xa_destroy(&wakers->slots);
}

void wakers_wake(struct wakers *wakers, u32 handle)
{
	struct waker *waker;
	unsigned long flags;

	xa_lock_irqsave(&wakers->slots, flags);
	waker = xa_load(&wakers->slots, slot_of(handle));
	if (waker && waker->handle == handle)
		compat_eventfd_signal(waker->event);
	xa_unlock_irqrestore(&wakers->slots, flags);
}

void wakers_wake_all(struct wakers *wakers)
{
	unsigned long flags, slot = 0;
	struct waker *waker;

	do {
		xa_lock_irqsave(&wakers->slots, flags);
		waker = xa_find(&wakers->slots, &slot, WAKERS_SLOTS - 1, XA_PRESENT);
		if (waker)
			compat_eventfd_signal(waker->event);
		xa_unlock_irqrestore(&wakers->slots, flags);
		slot++;
		cond_resched();
	} while (waker);
}

struct bell {
	struct port *port;
	u64 life;
	u32 handle;
};

static ssize_t bell_write(struct file *file, const char __user *buffer, size_t len, loff_t *position)
{
	struct bell *bell = file->private_data;

	return port_wake(bell->port, bell->life, bell->handle) ? len : -ENOTCONN;
}

static int bell_release(struct inode *inode, struct file *file)
{
	struct bell *bell = file->private_data;

	port_put(bell->port);
	kfree(bell);
	return 0;
}

static const struct file_operations bell_fops = {
	.owner = THIS_MODULE,
	.write = bell_write,
	.release = bell_release,
	.llseek = noop_llseek,
};

int bell_descriptor(struct port *port, u64 life, u32 handle)
{
	struct bell *bell = kzalloc(sizeof(*bell), GFP_KERNEL_ACCOUNT);
	int descriptor;

	if (!bell)
		return -ENOMEM;
	bell->port = port;
	bell->life = life;
	bell->handle = handle;
	kref_get(&port->users);
	descriptor = anon_inode_getfd("[crosslane-bell]", &bell_fops, bell, O_WRONLY | O_CLOEXEC);
	if (descriptor < 0) {
		port_put(port);
		kfree(bell);
	}
	return descriptor;
}

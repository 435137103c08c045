// SPDX-License-Identifier: GPL-2.0
#include "wakers.h"

#include "descriptor.h"
#include "port.h"

#include <linux/fs.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/refcount.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uio.h>
#include <net/sock.h>

struct waker {
	refcount_t users;	/* its slot, and who wakes it now */
	struct socket *socket;
	u64 word;
	u32 handle;
};

static u32 slot_of(u32 handle)
{
	return handle % WAKERS_SLOTS;
}

void wakers_init(struct wakers *wakers)
{
	xa_init_flags(&wakers->slots, XA_FLAGS_ALLOC);
	wakers->generation = 0;
}

static void put(struct waker *waker)
{
	if (!refcount_dec_and_test(&waker->users))
		return;
	sockfd_put(waker->socket);
	kfree(waker);
}

static int enter(struct wakers *wakers, struct waker *waker, u32 *handle)
{
	int error;
	u32 slot;

	xa_lock(&wakers->slots);
	error = __xa_alloc(&wakers->slots, &slot, waker, XA_LIMIT(0, WAKERS_SLOTS - 1), GFP_KERNEL_ACCOUNT);
	if (!error) {
		waker->handle = wakers->generation++ * WAKERS_SLOTS + slot;
		*handle = waker->handle;
	}
	xa_unlock(&wakers->slots);
	return error == -EBUSY ? -ENOSPC : error;
}

int wakers_add(struct wakers *wakers, int descriptor, u64 word, u32 *handle)
{
	struct waker *waker;
	struct socket *socket;
	int error;

	socket = sockfd_lookup(descriptor, &error);
	if (!socket)
		return error == -EBADF ? error : -EINVAL;
	waker = kzalloc(sizeof(*waker), GFP_KERNEL_ACCOUNT);
	if (!waker) {
		sockfd_put(socket);
		return -ENOMEM;
	}
	refcount_set(&waker->users, 1);
	waker->socket = socket;
	waker->word = word;
	/* To send by others could wait, or reach another machine. */
	if (socket->sk->sk_family == AF_UNIX && socket->type == SOCK_DGRAM)
		error = enter(wakers, waker, handle);
	else
		error = -EINVAL;
	if (error)
		put(waker);
	return error;
}

int wakers_remove(struct wakers *wakers, u32 handle)
{
	struct waker *waker;

	xa_lock(&wakers->slots);
	waker = xa_load(&wakers->slots, slot_of(handle));
	if (waker && waker->handle == handle)
		__xa_erase(&wakers->slots, slot_of(handle));
	else
		waker = NULL;
	xa_unlock(&wakers->slots);
	if (!waker)
		return -ENOENT;
	put(waker);
	return 0;
}

void wakers_clear(struct wakers *wakers)
{
	struct waker *waker;
	unsigned long slot;

	xa_for_each(&wakers->slots, slot, waker) {
		xa_erase(&wakers->slots, slot);
		put(waker);
	}
	xa_destroy(&wakers->slots);
}

/* A full queue means that the sleeper is awake, or about to be; a sleeper that is gone does not mind. */
static void send(struct waker *waker)
{
	struct msghdr message = { .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL };
	__be64 words[2] = { 0, cpu_to_be64(waker->word) };
	struct kvec bytes = { .iov_base = words, .iov_len = sizeof(words) };

	kernel_sendmsg(waker->socket, &message, &bytes, 1, sizeof(words));
}

void wakers_wake(struct wakers *wakers, u32 handle)
{
	struct waker *waker;

	xa_lock(&wakers->slots);
	waker = xa_load(&wakers->slots, slot_of(handle));
	if (waker && waker->handle == handle)
		refcount_inc(&waker->users);
	else
		waker = NULL;
	xa_unlock(&wakers->slots);
	if (!waker)
		return;
	send(waker);
	put(waker);
}

void wakers_wake_all(struct wakers *wakers)
{
	unsigned long slot = 0;
	struct waker *waker;

	do {
		xa_lock(&wakers->slots);
		waker = xa_find(&wakers->slots, &slot, WAKERS_SLOTS - 1, XA_PRESENT);
		if (waker)
			refcount_inc(&waker->users);
		xa_unlock(&wakers->slots);
		if (waker) {
			send(waker);
			put(waker);
		}
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
	descriptor = descriptor_new(NULL, &bell_fops, bell, O_WRONLY);
	if (descriptor < 0) {
		port_put(port);
		kfree(bell);
	}
	return descriptor;
}

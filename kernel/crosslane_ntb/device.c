// SPDX-License-Identifier: GPL-2.0
/* /dev/crosslaneN: the calls of include/crosslane_ntb.h, checked and handed to the port. */
#include "device.h"

#include "port.h"

#include <linux/fs.h>
#include <linux/idr.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

static DEFINE_IDA(numbers);

static int device_open(struct inode *inode, struct file *file)
{
	struct port_device *node = container_of(file->private_data, struct port_device, misc);
	struct port *port = node->port;
	int error = port_own(port);

	if (error)
		return error;
	kref_get(&port->users);
	file->private_data = port;
	return stream_open(inode, file);
}

static int device_release(struct inode *inode, struct file *file)
{
	struct port *port = file->private_data;

	port_disown(port);
	port_put(port);
	return 0;
}

/* 0 when there may be an event; an error if none can come, or nobody wants to wait for it. */
static int wait_for_event(struct file *file)
{
	struct port *port = file->private_data;

	if (!READ_ONCE(port->ntb))
		return -ENODEV;
	if (file->f_flags & O_NONBLOCK)
		return -EAGAIN;
	return wait_event_interruptible(port->readers, port_has_event(port) || !READ_ONCE(port->ntb));
}

static ssize_t device_read(struct file *file, char __user *buffer, size_t len, loff_t *position)
{
	struct port *port = file->private_data;
	struct crosslane_ntb_event event;
	size_t done = 0;
	int error;

	if (len < sizeof(event))
		return -EINVAL;
	while (len - done >= sizeof(event)) {
		if (!port_event(port, &event)) {
			if (done)
				break;
			error = wait_for_event(file);
			if (error)
				return error;
			continue;
		}
		if (copy_to_user(buffer + done, &event, sizeof(event)))
			return done ?: -EFAULT;
		done += sizeof(event);
	}
	return done;
}

static __poll_t device_poll(struct file *file, poll_table *table)
{
	struct port *port = file->private_data;

	poll_wait(file, &port->readers, table);
	if (!READ_ONCE(port->ntb))
		return EPOLLIN | EPOLLHUP | EPOLLERR;
	return port_has_event(port) ? EPOLLIN | EPOLLRDNORM : 0;
}

union argument {
	struct crosslane_ntb_info info;
	struct crosslane_ntb_translate translate;
	struct crosslane_ntb_range range;
	struct crosslane_ntb_register pad;
	struct crosslane_ntb_waker waker;
	u32 word;
	u64 bits;
};

/* The call `command`; its argument has been copied to `argument`, and is copied back if that is asked for. */
static long call(struct port *port, unsigned int command, union argument *argument)
{
	switch (command) {
	case CROSSLANE_NTB_INFO:
		return port_info(port, &argument->info);
	case CROSSLANE_NTB_TRANSLATE:
		if (argument->translate.reserved)
			return -EINVAL;
		return port_translate(port, argument->translate.window, argument->translate.len);
	case CROSSLANE_NTB_CARVE:
		return port_carve(port, &argument->range);
	case CROSSLANE_NTB_TAKE_BACK:
		return port_take_back(port, &argument->range);
	case CROSSLANE_NTB_LINK:
		return port_link(port, argument->word);
	case CROSSLANE_NTB_READ_PAD:
		return port_read_pad(port, argument->pad.index, &argument->pad.value);
	case CROSSLANE_NTB_WRITE_PEER_PAD:
		return port_write_peer_pad(port, argument->pad.index, argument->pad.value);
	case CROSSLANE_NTB_RING:
		return port_ring(port, argument->bits);
	case CROSSLANE_NTB_MASK:
		port_mask(port, argument->bits);
		return 0;
	case CROSSLANE_NTB_WAKER:
		return port_add_waker(port, argument->waker.socket, argument->waker.word, &argument->waker.handle);
	case CROSSLANE_NTB_DROP_WAKER:
		return port_drop_waker(port, argument->word);
	case CROSSLANE_NTB_BELL:
		return port_bell(port, argument->word);
	default:
		return -ENOTTY;
	}
}

static long device_ioctl(struct file *file, unsigned int command, unsigned long address)
{
	struct port *port = file->private_data;
	void __user *from = (void __user *)address;
	union argument argument = {};
	long result;

	if (_IOC_TYPE(command) != CROSSLANE_NTB_IOC || _IOC_SIZE(command) > sizeof(argument))
		return -ENOTTY;
	if (_IOC_DIR(command) & _IOC_WRITE && copy_from_user(&argument, from, _IOC_SIZE(command)))
		return -EFAULT;
	mutex_lock(&port->lock);
	result = port->ntb ? call(port, command, &argument) : -ENODEV;
	mutex_unlock(&port->lock);
	if (result >= 0 && _IOC_DIR(command) & _IOC_READ && copy_to_user(from, &argument, _IOC_SIZE(command)))
		return -EFAULT;
	return result;
}

static const struct file_operations device_fops = {
	.owner = THIS_MODULE,
	.open = device_open,
	.release = device_release,
	.read = device_read,
	.poll = device_poll,
	.unlocked_ioctl = device_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

struct port_device *device_new(struct port *port, struct device *parent)
{
	struct port_device *node = kzalloc(sizeof(*node), GFP_KERNEL);
	int error;

	if (!node)
		return ERR_PTR(-ENOMEM);
	node->number = ida_alloc(&numbers, GFP_KERNEL);
	if (node->number < 0) {
		error = node->number;
		goto free_node;
	}
	snprintf(node->name, sizeof(node->name), "crosslane%d", node->number);
	node->port = port;
	node->misc.minor = MISC_DYNAMIC_MINOR;
	node->misc.name = node->name;
	node->misc.fops = &device_fops;
	node->misc.parent = parent;
	node->misc.mode = 0600;
	error = misc_register(&node->misc);
	if (error)
		goto free_number;
	return node;

free_number:
	ida_free(&numbers, node->number);
free_node:
	kfree(node);
	return ERR_PTR(error);
}

void device_remove(struct port_device *node)
{
	/* No open is under way behind this: misc_open() holds the lock that it takes. */
	misc_deregister(&node->misc);
	ida_free(&numbers, node->number);
	kfree(node);
}

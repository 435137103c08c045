/* SPDX-License-Identifier: GPL-2.0 */
#ifndef CROSSLANE_DEVICE_H
#define CROSSLANE_DEVICE_H

#include <linux/miscdevice.h>

struct port;

/* /dev/crosslaneN of one port. */
struct port_device {
	struct miscdevice misc;
	struct port *port;
	int number;
	char name[20];	/* "crosslane" and a number of up to 10 digits */
};

/* Makes the device; it holds the port from now on. */
struct port_device *device_new(struct port *port, struct device *parent);
/* Removes it; open descriptors stay, with calls that fail. */
void device_remove(struct port_device *node);

#endif

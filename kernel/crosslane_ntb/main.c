// SPDX-License-Identifier: GPL-2.0
/* crosslane_ntb: gives NTB cables to the Crosslane daemon. One device for each bridge that Linux has a driver for. */
#include "descriptor.h"
#include "device.h"
#include "port.h"

#include <linux/module.h>
#include <linux/ntb.h>
#include <linux/slab.h>

/* What the NTB bus keeps for this client with a bridge is the context of its events, which is the port: the device is found here. */
struct bridge {
	struct list_head link;
	struct ntb_dev *ntb;
	struct port *port;
	struct port_device *device;
};

static LIST_HEAD(bridges);
static DEFINE_MUTEX(bridges_lock);

static int bridge_probe(struct ntb_client *client, struct ntb_dev *ntb)
{
	struct bridge *bridge = kzalloc(sizeof(*bridge), GFP_KERNEL);
	int error;

	if (!bridge)
		return -ENOMEM;
	bridge->ntb = ntb;
	bridge->port = port_new(ntb);
	if (IS_ERR(bridge->port)) {
		error = PTR_ERR(bridge->port);
		goto free_bridge;
	}
	bridge->device = device_new(bridge->port, &ntb->dev);
	if (IS_ERR(bridge->device)) {
		error = PTR_ERR(bridge->device);
		goto free_port;
	}
	mutex_lock(&bridges_lock);
	list_add(&bridge->link, &bridges);
	mutex_unlock(&bridges_lock);
	dev_info(&ntb->dev, "this bridge is /dev/%s\n", bridge->device->name);
	return 0;

free_port:
	port_gone(bridge->port);
	port_put(bridge->port);
free_bridge:
	kfree(bridge);
	return error;
}

static struct bridge *take(struct ntb_dev *ntb)
{
	struct bridge *bridge, *found = NULL;

	mutex_lock(&bridges_lock);
	list_for_each_entry(bridge, &bridges, link)
		if (bridge->ntb == ntb)
			found = bridge;
	if (found)
		list_del(&found->link);
	mutex_unlock(&bridges_lock);
	return found;
}

static void bridge_remove(struct ntb_client *client, struct ntb_dev *ntb)
{
	struct bridge *bridge = take(ntb);

	if (WARN_ON(!bridge))
		return;
	device_remove(bridge->device);
	port_gone(bridge->port);
	port_put(bridge->port);
	kfree(bridge);
}

static struct ntb_client client = {
	.ops = {
		.probe = bridge_probe,
		.remove = bridge_remove,
	},
};

static int __init crosslane_init(void)
{
	int error = descriptor_start();

	if (error)
		return error;
	error = ntb_register_client(&client);
	if (error)
		descriptor_stop();
	return error;
}
module_init(crosslane_init);

static void __exit crosslane_exit(void)
{
	ntb_unregister_client(&client);
	descriptor_stop();
}
module_exit(crosslane_exit);

MODULE_DESCRIPTION("NTB cables for the Crosslane daemon");
MODULE_AUTHOR("Crosslane");
MODULE_LICENSE("GPL");

// SPDX-License-Identifier: GPL-2.0
/* crosslane_ntb: gives NTB cables to the Crosslane daemon. One device for each peer of each bridge that Linux has a driver for. */
#include "bridge.h"
#include "descriptor.h"
#include "device.h"
#include "port.h"

#include <linux/module.h>
#include <linux/ntb.h>
#include <linux/slab.h>

/* What the NTB bus keeps for this client with a bridge is the context of its events: devices are found here. */
struct entry {
	struct list_head link;
	struct bridge *bridge;
	struct port_device *device[];	/* of each port */
};

static LIST_HEAD(entries);
static DEFINE_MUTEX(entries_lock);

static void remove_devices(struct entry *entry)
{
	u32 i;

	for (i = 0; i < entry->bridge->peers; i++)
		if (entry->device[i])
			device_remove(entry->device[i]);
}

static void announce(struct ntb_dev *ntb, struct port_device *device, int peer, u32 peers)
{
	if (peers == 1)
		dev_info(&ntb->dev, "this bridge is /dev/%s\n", device->name);
	else
		dev_info(&ntb->dev, "the way from port %d to port %d is /dev/%s\n", ntb_port_number(ntb),
			 ntb_peer_port_number(ntb, peer), device->name);
}

static int make_devices(struct entry *entry)
{
	struct bridge *bridge = entry->bridge;
	struct port_device *device;
	u32 i;

	for (i = 0; i < bridge->peers; i++) {
		device = device_new(bridge->port[i], &bridge->ntb->dev);
		if (IS_ERR(device))
			return PTR_ERR(device);
		entry->device[i] = device;
		announce(bridge->ntb, device, i, bridge->peers);
	}
	return 0;
}

static int bridge_probe(struct ntb_client *client, struct ntb_dev *ntb)
{
	struct bridge *bridge = bridge_new(ntb);
	struct entry *entry;
	int error = -ENOMEM;

	if (IS_ERR(bridge))
		return PTR_ERR(bridge);
	entry = kzalloc(struct_size(entry, device, bridge->peers), GFP_KERNEL);
	if (!entry)
		goto free_bridge;
	entry->bridge = bridge;
	error = make_devices(entry);
	if (error)
		goto free_entry;
	mutex_lock(&entries_lock);
	list_add(&entry->link, &entries);
	mutex_unlock(&entries_lock);
	return 0;

free_entry:
	remove_devices(entry);
	kfree(entry);
free_bridge:
	bridge_free(bridge);
	return error;
}

static struct entry *take(struct ntb_dev *ntb)
{
	struct entry *entry, *found = NULL;

	mutex_lock(&entries_lock);
	list_for_each_entry(entry, &entries, link)
		if (entry->bridge->ntb == ntb)
			found = entry;
	if (found)
		list_del(&found->link);
	mutex_unlock(&entries_lock);
	return found;
}

static void bridge_remove(struct ntb_client *client, struct ntb_dev *ntb)
{
	struct entry *entry = take(ntb);

	if (WARN_ON(!entry))
		return;
	remove_devices(entry);
	bridge_free(entry->bridge);
	kfree(entry);
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

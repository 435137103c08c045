// SPDX-License-Identifier: GPL-2.0
/*
 * Bridges in one kernel, each joined with each other by memory: devices on a PCI bus of software, since clients ask a bridge for its PCI
 * device. Interrupts are irq_work, so that a client's events come in the context that they come in from hardware.
 *
 * Clients map the peer's window by ioremap_wc(), which x86 allows for memory that the kernel does not manage: keep it away at boot
 * (`memmap=64M$0x10000000`) and name it (`base=0x10000000`).
 */
#include "bridge.h"

#include <linux/io.h>
#include <linux/irq_work.h>
#include <linux/pci.h>
#include <linux/slab.h>
#ifdef CONFIG_X86
#include <asm/pci.h>
#endif

/* Not given to anybody: such a device is on no real bus. */
#define SOFT_VENDOR 0x584c
#define SOFT_DEVICE 0x4e54
#define SOFT_DOMAIN 0x584c

struct end {
	struct soft_bridge bridge;
	struct irq_work interrupt;
	bool registered;
};

/* A pair of ends, as a rule; one more than a bridge has peers. */
static struct pair {
	struct end end[SOFT_PEERS + 1];
	int ends;
	struct soft_registers *registers;
	struct pci_bus *bus;
	struct soft_lander *lander;	/* NULL where stores land at once */
	void *memory;
	u64 len;
	void *shadows;	/* the part of it that clients store into where stores land later */
} *pair;

static int config_read(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 *value)
{
	u32 word = 0;

	if (PCI_FUNC(devfn) || PCI_SLOT(devfn) >= pair->ends) {
		*value = ~0;
		return PCIBIOS_DEVICE_NOT_FOUND;
	}
	switch (where & ~3) {
	case PCI_VENDOR_ID:
		word = SOFT_DEVICE << 16 | SOFT_VENDOR;
		break;
	case PCI_CLASS_REVISION:
		word = PCI_CLASS_BRIDGE_OTHER << 16;
		break;
	}
	*value = (word >> 8 * (where & 3)) & GENMASK(8 * size - 1, 0);
	return PCIBIOS_SUCCESSFUL;
}

static int config_write(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 value)
{
	return PCIBIOS_SUCCESSFUL;
}

static struct pci_ops config = { .read = config_read, .write = config_write };

#ifdef CONFIG_X86
static struct pci_sysdata sysdata = { .domain = SOFT_DOMAIN, .node = NUMA_NO_NODE };
#define SYSDATA (&sysdata)
#else
#define SYSDATA NULL
#endif

static struct end *to_end(struct soft_bridge *bridge)
{
	return container_of(bridge, struct end, bridge);
}

static void interrupt(struct irq_work *work)
{
	soft_bridge_look(&container_of(work, struct end, interrupt)->bridge);
}

static void notify_own(struct soft_bridge *bridge)
{
	irq_work_queue(&to_end(bridge)->interrupt);
}

/* The end that is this peer of another. */
static struct end *peer_end(struct soft_link *link)
{
	int end = to_end(link->bridge) - pair->end;

	return &pair->end[link->number < end ? link->number : link->number + 1];
}

static void notify(struct soft_link *link)
{
	irq_work_queue(&peer_end(link)->interrupt);
}

static bool connected(struct soft_bridge *bridge)
{
	return true;
}

/* Joins an end with its peers; the memory of all ends' windows begins at `base`, `each` bytes for an end. */
static void join(struct end *end, u64 base, u64 each)
{
	struct soft_bridge *bridge = &end->bridge;
	int number = end - pair->end, i;

	bridge->own = &pair->registers[number];
	bridge->inbound = pair->memory + number * each;
	bridge->inbound_base = base + number * each;
	bridge->port = number;
	bridge->notify = notify;
	bridge->notify_own = notify_own;
	bridge->connected = connected;
	init_irq_work(&end->interrupt, interrupt);
	for (i = 0; i < bridge->shape.peers; i++) {
		struct soft_link *link = &bridge->link[i];
		int peer = peer_end(link) - pair->end;

		link->peer = &pair->registers[peer];
		link->own_number = soft_number(number, peer);
		link->memory_base = base + peer * each;
		link->outbound_base = link->memory_base;
		if (bridge->shape.late_us)
			link->outbound_base = base + (pair->shadows - pair->memory) + number * each;
	}
}

/*
 * The memory of all ends' windows. All ends' clients map it write-combined, one of them by its own address. Where stores land later, what
 * clients store into is behind it.
 */
static int map_windows(const struct soft_shape *shape, u64 base)
{
	u64 each = soft_windows_len(shape);
	/* The last allocation may reach beyond its window, too. */
	u64 shadows = pair->ends * each + (shape->xlat_align ? shape->window_len : 0);

	pair->len = shadows + (shape->late_us ? pair->ends * each : 0);
	if (!base || !IS_ALIGNED(base, shape->window_len))
		return -EINVAL;
	pair->memory = memremap(base, pair->len, MEMREMAP_WC);
	if (!pair->memory)
		return -ENOMEM;
	pair->shadows = pair->memory + shadows;
	return 0;
}

static int register_ends(const struct soft_shape *shape, u64 base)
{
	struct pci_dev *pci;
	int i, error;

	/* All are complete before a client of any can ring. */
	for (i = 0; i < pair->ends; i++) {
		pci = pci_get_slot(pair->bus, PCI_DEVFN(i, 0));
		if (!pci)
			return -ENODEV;
		soft_bridge_init(&pair->end[i].bridge, pci, shape);
		join(&pair->end[i], base, soft_windows_len(shape));
		soft_memory_attach(pci, &pair->end[i].bridge);
	}
	if (shape->late_us) {
		pair->lander = soft_lander_start(&pair->end[0].bridge, &pair->end[1].bridge, pair->shadows, soft_windows_len(shape),
						 shape->late_us);
		if (!pair->lander)
			return -ENOMEM;
	}
	for (i = 0; i < pair->ends; i++) {
		error = ntb_register_device(&pair->end[i].bridge.ntb);
		if (error)
			return error;
		pair->end[i].registered = true;
	}
	/* One end's losses are its peers', too. */
	soft_bridge_start(&pair->end[0].bridge);
	return 0;
}

static void remove_bus(struct pci_bus *bus)
{
	struct pci_host_bridge *bridge = to_pci_host_bridge(bus->bridge);

	pci_lock_rescan_remove();
	pci_stop_root_bus(bus);
	pci_remove_root_bus(bus);
	pci_unlock_rescan_remove();
	/* pci_scan_bus() made it, and nobody else gives it back. */
	pci_free_host_bridge(bridge);
}

void soft_pair_stop(void)
{
	int i;

	if (!pair)
		return;
	for (i = 0; i < pair->ends; i++)
		if (pair->end[i].registered)
			ntb_unregister_device(&pair->end[i].bridge.ntb);
	/* All links are disabled, and all ends know it behind this: their timers are not started again. */
	for (i = 0; i < pair->ends; i++)
		irq_work_sync(&pair->end[i].interrupt);
	for (i = 0; i < pair->ends; i++) {
		struct pci_dev *pci = pair->end[i].bridge.ntb.pdev;

		if (!pci)
			continue;
		soft_bridge_stop(&pair->end[i].bridge);
		soft_memory_detach(pci);
		pci_dev_put(pci);
	}
	soft_lander_stop(pair->lander);
	for (i = 0; i < pair->ends; i++)
		irq_work_sync(&pair->end[i].interrupt);
	if (pair->bus)
		remove_bus(pair->bus);
	if (pair->memory)
		memunmap(pair->memory);
	kfree(pair->registers);
	kfree(pair);
	pair = NULL;
}

int soft_pair_start(const struct soft_shape *shape, u64 base)
{
	int error = -ENOMEM;

	pair = kzalloc(sizeof(*pair), GFP_KERNEL);
	if (!pair)
		return -ENOMEM;
	pair->ends = shape->peers + 1;
	pair->registers = kcalloc(pair->ends, sizeof(*pair->registers), GFP_KERNEL);
	if (!pair->registers)
		goto stop;
	error = map_windows(shape, base);
	if (error)
		goto stop;
	pci_lock_rescan_remove();
	pair->bus = pci_scan_bus(0, &config, SYSDATA);
	if (pair->bus)
		pci_bus_add_devices(pair->bus);
	pci_unlock_rescan_remove();
	error = pair->bus ? register_ends(shape, base) : -ENODEV;
	if (!error)
		return 0;
stop:
	soft_pair_stop();
	return error;
}

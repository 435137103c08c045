// SPDX-License-Identifier: GPL-2.0
/*
 * Bridges between virtual machines: QEMU's ivshmem device is a cable, its shared memory (BAR 2) the registers and windows of both
 * ends. With interrupts (ivshmem-doorbell) an end rings the other, behind what it has stored, and the other looks at once; a timer only
 * counts, and sees the peer go. Without (ivshmem-plain) both look on the timer, often. Each end says in the memory where to ring it.
 *
 * Who comes first is end 0. An end shows that it lives by counting up; one that has not counted for a while, in a machine that was
 * reset, has lost its place to whoever comes next, and the link.
 *
 *   0                   header: whose memory this is, both ends
 *   half of the memory  windows of end 0, then windows of end 1
 */
#include "bridge.h"

#include "compat.h"

#include <linux/delay.h>
#include <linux/hrtimer.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/irq_work.h>
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/random.h>
#include <linux/slab.h>

#define CABLE_MAGIC 0x32424e584c53544eull /* "NTSLXNB2" */

/* An end that polls, and found nothing new in so many looks, looks so much less often until it finds something. */
#define QUIET_LOOKS 256
#define QUIET_FACTOR 8

#define REGISTER_POSITION 8	/* number of this machine on the ivshmem server, 16 bits; 0 also without one */
#define REGISTER_DOORBELL 12	/* number of another << 16 | vector */

struct cable_end {
	__u64 owner;		/* who has this end, a random number; 0: nobody */
	__u32 beat;		/* counted up by the owner while it lives */
	__u32 position;		/* where to ring the owner: its number on the server and 1; 0: nowhere, it looks often */
	/* The owner's bridge: the link comes up between equal ones. */
	__u32 windows, pads, doorbells, reserved;
	__u64 window_len;
	struct soft_registers registers;
};

struct cable {
	__u64 magic;
	__u32 cut;		/* not 0 while somebody has pulled the cable, from outside */
	__u32 reserved;
	struct cable_end end[2];
};

struct machine {
	struct soft_bridge bridge;
	struct pci_dev *pci;
	void __iomem *registers;
	struct cable *cable;
	struct cable_end *own, *peer;
	void *windows;
	u64 identity;
	bool rings;		/* this end has interrupts */
	struct irq_work again;	/* looks once more, soon */
	struct hrtimer timer;
	ktime_t period;
	u32 quiet;		/* looks without anything new, up to QUIET_LOOKS */
	/* When the peer's beat changed last, and to what. */
	u32 beat;
	ktime_t beat_at;
	bool registered;
};

static struct soft_shape largest;
static u32 poll_us, alive_ms;

static struct machine *to_machine(struct soft_bridge *bridge)
{
	return container_of(bridge, struct machine, bridge);
}

static bool is_alive(struct machine *machine)
{
	u32 beat = READ_ONCE(machine->peer->beat);
	ktime_t now = ktime_get();

	if (beat != machine->beat) {
		machine->beat = beat;
		machine->beat_at = now;
	}
	return ktime_ms_delta(now, machine->beat_at) < alive_ms;
}

static bool fits(struct machine *machine)
{
	struct cable_end *own = machine->own, *peer = machine->peer;

	if (READ_ONCE(peer->windows) == own->windows && READ_ONCE(peer->window_len) == own->window_len &&
	    READ_ONCE(peer->pads) == own->pads && READ_ONCE(peer->doorbells) == own->doorbells)
		return true;
	dev_warn_once(&machine->pci->dev, "the other end has windows of another number or length, or other registers: no link\n");
	return false;
}

static bool connected(struct soft_bridge *bridge)
{
	struct machine *machine = to_machine(bridge);

	return !READ_ONCE(machine->cable->cut) && READ_ONCE(machine->own->owner) == machine->identity &&
	       READ_ONCE(machine->peer->owner) && is_alive(machine) && fits(machine);
}

/* Whatever the peer says, this rings a machine of this cable's server, or nobody. writel is behind what was stored before. */
static void notify(struct soft_link *link)
{
	struct machine *machine = to_machine(link->bridge);
	u32 position = READ_ONCE(machine->peer->position);

	if (machine->rings && position)
		writel(((position - 1) & 0xffff) << 16, machine->registers + REGISTER_DOORBELL);
}

static void notify_own(struct soft_bridge *bridge)
{
	irq_work_queue(&to_machine(bridge)->again);
}

static void look_again(struct irq_work *work)
{
	soft_bridge_look(&container_of(work, struct machine, again)->bridge);
}

/* Whether the peer, if there is one, rings: only an end with interrupts has a position, and rings others. */
static bool is_rung(struct machine *machine)
{
	return machine->rings && (!READ_ONCE(machine->peer->owner) || READ_ONCE(machine->peer->position));
}

/* The time to the next look of the timer. */
static ktime_t next_look(struct machine *machine, bool news)
{
	ktime_t beat = ms_to_ktime(max(alive_ms / 10, 1u));
	ktime_t seldom = min_t(ktime_t, QUIET_FACTOR * machine->period, beat);

	if (is_rung(machine))
		return beat;
	machine->quiet = news ? 0 : min_t(u32, machine->quiet + 1, QUIET_LOOKS);
	return machine->quiet < QUIET_LOOKS ? machine->period : max_t(ktime_t, machine->period, seldom);
}

static enum hrtimer_restart look(struct hrtimer *timer)
{
	struct machine *machine = container_of(timer, struct machine, timer);
	bool news;

	WRITE_ONCE(machine->own->beat, machine->own->beat + 1);
	news = soft_bridge_look(&machine->bridge);
	hrtimer_forward_now(timer, next_look(machine, news));
	return HRTIMER_RESTART;
}

static irqreturn_t interrupt(int number, void *context)
{
	struct machine *machine = context;

	soft_bridge_look(&machine->bridge);
	return IRQ_HANDLED;
}

/* The shape that fits the memory. */
static int shape_for(u64 len, struct soft_shape *shape)
{
	*shape = largest;
	/* All of the memory is for windows. */
	shape->xlat_align = 0;
	shape->said_align = 0;
	shape->window_len = min(shape->window_len, rounddown_pow_of_two(len / 2 / (2 * shape->windows)));
	return shape->window_len < PAGE_SIZE || len / 2 < sizeof(struct cable) ? -EINVAL : 0;
}

/* Takes an end that nobody has, or whose owner has not counted for a while. */
static int claim_end(struct machine *machine)
{
	int i;

	for (i = 0; i < 2; i++) {
		struct cable_end *end = &machine->cable->end[i];
		u64 owner = READ_ONCE(end->owner);
		u32 beat = READ_ONCE(end->beat);

		if (owner) {
			msleep(alive_ms);
			if (READ_ONCE(end->owner) != owner || READ_ONCE(end->beat) != beat)
				continue;
		}
		if (cmpxchg(&end->owner, owner, machine->identity) != owner)
			continue;
		machine->own = end;
		machine->peer = &machine->cable->end[!i];
		WRITE_ONCE(end->position, 0);
		memset(&end->registers, 0, sizeof(end->registers));
		return i;
	}
	dev_err(&machine->pci->dev, "two other machines have both ends of this cable\n");
	return -EBUSY;
}

static void place(struct machine *machine, int end)
{
	struct soft_bridge *bridge = &machine->bridge;
	phys_addr_t base = pci_resource_start(machine->pci, 2) + pci_resource_len(machine->pci, 2) / 2;
	u64 len = bridge->shape.windows * bridge->shape.window_len;

	machine->own->windows = bridge->shape.windows;
	machine->own->pads = bridge->shape.pads;
	machine->own->doorbells = bridge->shape.doorbells;
	WRITE_ONCE(machine->own->window_len, bridge->shape.window_len);
	bridge->own = &machine->own->registers;
	bridge->link[0].peer = &machine->peer->registers;
	bridge->inbound_base = base + end * len;
	bridge->link[0].outbound_base = base + !end * len;
	bridge->notify = notify;
	bridge->notify_own = notify_own;
	bridge->connected = connected;
}

/* Interrupts, if the device has any. */
static void start_interrupts(struct machine *machine)
{
	u32 position;

	if (pci_alloc_irq_vectors(machine->pci, 1, 1, PCI_IRQ_MSIX) < 1)
		return;
	if (request_irq(pci_irq_vector(machine->pci, 0), interrupt, 0, "ntb_soft", machine)) {
		pci_free_irq_vectors(machine->pci);
		return;
	}
	machine->rings = true;
	position = readl(machine->registers + REGISTER_POSITION) & 0xffff;
	WRITE_ONCE(machine->own->position, position + 1);
}

static void stop(struct machine *machine)
{
	if (machine->registered)
		ntb_unregister_device(&machine->bridge.ntb);
	if (machine->rings) {
		free_irq(pci_irq_vector(machine->pci, 0), machine);
		pci_free_irq_vectors(machine->pci);
	}
	if (machine->own) {
		hrtimer_cancel(&machine->timer);
		irq_work_sync(&machine->again);
		soft_bridge_stop(&machine->bridge);
		WRITE_ONCE(machine->own->registers.line[0].session, 0);
		WRITE_ONCE(machine->own->position, 0);
		cmpxchg(&machine->own->owner, machine->identity, 0);
		soft_memory_detach(machine->pci);
	}
	if (machine->windows)
		memunmap(machine->windows);
	if (machine->cable)
		memunmap(machine->cable);
	if (machine->registers)
		pci_iounmap(machine->pci, machine->registers);
	pci_release_regions(machine->pci);
	pci_disable_device(machine->pci);
	kfree(machine);
}

static int start(struct machine *machine)
{
	struct pci_dev *pci = machine->pci;
	struct soft_bridge *bridge = &machine->bridge;
	u64 len = pci_resource_len(pci, 2);
	struct soft_shape shape;
	int end, error;

	if (largest.peers > 1 || largest.messages || largest.outbound) {
		dev_err(&pci->dev, "between machines there is one peer, without message registers, whose windows each end translates itself\n");
		return -EOPNOTSUPP;
	}
	error = shape_for(len, &shape);
	if (error) {
		dev_err(&pci->dev, "%llu bytes of shared memory are too few\n", len);
		return error;
	}
	machine->registers = pci_iomap(pci, 0, 0);
	machine->cable = memremap(pci_resource_start(pci, 2), PAGE_ALIGN(sizeof(struct cable)), MEMREMAP_WB);
	if (!machine->registers || !machine->cable)
		return -ENOMEM;
	if (cmpxchg(&machine->cable->magic, 0, CABLE_MAGIC) && machine->cable->magic != CABLE_MAGIC) {
		dev_err(&pci->dev, "the shared memory is not a cable: something else is in it\n");
		return -EINVAL;
	}
	soft_bridge_init(bridge, pci, &shape);
	compat_hrtimer_setup(&machine->timer, look, CLOCK_MONOTONIC, HRTIMER_MODE_REL_SOFT);
	init_irq_work(&machine->again, look_again);
	end = claim_end(machine);
	if (end < 0)
		return end;
	place(machine, end);
	soft_memory_attach(pci, bridge);
	/* Where the peer stores to is this machine's own side of the cable: ordinary memory. */
	machine->windows = memremap(bridge->inbound_base, shape.windows * shape.window_len, MEMREMAP_WB);
	if (!machine->windows)
		return -ENOMEM;
	bridge->inbound = machine->windows;
	machine->period = ns_to_ktime((u64)poll_us * NSEC_PER_USEC);
	start_interrupts(machine);
	/* Now: the peer shall see soon that this end lives. */
	hrtimer_start(&machine->timer, 0, HRTIMER_MODE_REL_SOFT);
	error = ntb_register_device(&bridge->ntb);
	machine->registered = !error;
	if (!error)
		soft_bridge_start(bridge);
	return error;
}

static int probe(struct pci_dev *pci, const struct pci_device_id *id)
{
	struct machine *machine;
	int error;

	error = pci_enable_device(pci);
	if (error)
		return error;
	error = pci_request_regions(pci, "ntb_soft");
	if (error)
		goto disable;
	pci_set_master(pci);
	machine = kzalloc(sizeof(*machine), GFP_KERNEL);
	if (!machine) {
		error = -ENOMEM;
		goto release;
	}
	machine->pci = pci;
	machine->identity = get_random_u64() | 1;
	error = start(machine);
	if (error)
		stop(machine);
	return error;

release:
	pci_release_regions(pci);
disable:
	pci_disable_device(pci);
	return error;
}

static void remove(struct pci_dev *pci)
{
	stop(to_machine(pci_get_drvdata(pci)));
}

static const struct pci_device_id devices[] = {
	{ PCI_DEVICE(0x1af4, 0x1110) },
	{},
};
MODULE_DEVICE_TABLE(pci, devices);

static struct pci_driver driver = {
	.name = "ntb_soft",
	.id_table = devices,
	.probe = probe,
	.remove = remove,
};

int soft_ivshmem_start(const struct soft_shape *shape, u32 poll, u32 alive)
{
	largest = *shape;
	poll_us = poll;
	alive_ms = alive;
	return pci_register_driver(&driver);
}

void soft_ivshmem_stop(void)
{
	pci_unregister_driver(&driver);
}

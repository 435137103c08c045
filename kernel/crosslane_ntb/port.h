/* SPDX-License-Identifier: GPL-2.0 */
#ifndef CROSSLANE_PORT_H
#define CROSSLANE_PORT_H

#include "crosslane_ntb.h"

#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

struct ntb_dev;

/* Memory of this host behind one inbound window. */
struct port_inbound {
	void *allocated;
	dma_addr_t allocated_dma;
	size_t allocated_len;
	u8 *memory;	/* the aligned part, for the bridge to translate to */
	dma_addr_t dma;
	u64 len;
};

/* The peer's memory as this host addresses it. */
struct port_outbound {
	phys_addr_t base;
	u64 len;
	/* Mapped by the kernel too: that is what tells x86 that this memory is write-combined, in programs as well. */
	void __iomem *memory;
};

/* One end of a cable. */
struct port {
	struct kref users;	/* the bridge's driver, and the open device */
	struct mutex lock;	/* all up to `segments`, and when a life begins */
	struct ntb_dev *ntb;	/* NULL when the bridge has gone */
	bool owned;		/* some process has the device open */
	u32 windows;
	struct port_inbound inbound[CROSSLANE_NTB_WINDOWS];
	struct port_outbound outbound[CROSSLANE_NTB_WINDOWS];
	struct list_head segments;

	spinlock_t events;	/* all up to `readers`; taken in interrupts */
	bool up;
	u64 life;		/* number of the link's present or last life; 0: there was none */
	bool told_up;		/* the reader has been told that `told_life` began */
	u64 told_life;
	u32 changes;		/* how often the bridge said that the link may have changed */
	u32 rung;		/* doorbells since the last report */
	u32 masked;
	wait_queue_head_t readers;

	struct work_struct changed;	/* ends a life of the link and begins the next */
};

struct port *port_new(struct ntb_dev *ntb);
void port_put(struct port *port);
/* The bridge goes away: all segments end, and the owner's calls fail with ENODEV. */
void port_gone(struct port *port);
/* The owner has gone: what it made ends, the link goes down. */
void port_disown(struct port *port);

int port_info(struct port *port, struct crosslane_ntb_info *info);
int port_translate(struct port *port, u32 window, u64 len);
/* A descriptor in this process. */
int port_carve(struct port *port, const struct crosslane_ntb_range *range);
int port_take_back(struct port *port, const struct crosslane_ntb_range *range);
int port_link(struct port *port, bool on);
int port_read_pad(struct port *port, u32 index, u32 *value);
int port_write_peer_pad(struct port *port, u32 index, u32 value);
int port_ring(struct port *port, u32 bits);
void port_mask(struct port *port, u32 bits);
/* The next event; false if there is none. */
bool port_event(struct port *port, struct crosslane_ntb_event *event);
bool port_has_event(struct port *port);

#endif

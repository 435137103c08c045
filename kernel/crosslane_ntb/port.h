/* SPDX-License-Identifier: GPL-2.0 */
#ifndef CROSSLANE_PORT_H
#define CROSSLANE_PORT_H

#include "control.h"
#include "crosslane_ntb.h"
#include "wakers.h"
#include "windows.h"
#include "words.h"

#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

struct bridge;
struct ntb_dev;

/*
 * One end of a cable: of a bridge to one of its peers.
 *
 * The link has lives. A bridge's own link state is not enough for one: a host that was reset comes back with the link up and memory of a
 * new life, and its peer may have missed that it was away. So each end takes a session number whenever it is ready for a life, tells the
 * peer that number and the peer's that it has accepted (words.h), and a life is while both have accepted each other's. Who is ready has
 * memory behind its windows, translated if its own bridge does that, and its control memory zeroed. Who accepts has its own bridge
 * translate to the peer's memory, if that is how it is done.
 */
struct port {
	struct kref users;	/* the bridge's driver, the open device, bells */
	struct bridge *bridge;
	int peer;		/* the bridge's index of it */
	u32 number, own_number;	/* see struct bridge */
	bool linked;		/* bridge->lock: wants the bridge's link */
	struct mutex lock;	/* all up to `step` */
	struct ntb_dev *ntb;	/* NULL when the bridge has gone */
	bool owned;		/* some process has the device open */
	bool enabled;		/* the owner wants a link */
	bool ready;
	u16 sessions;		/* the last session number that was taken */
	u16 session, accepted;	/* of this life, or the next; 0: none */
	u16 translated;		/* the peer's session whose memory this end translates outbound windows to; 0: none */
	struct words words;
	u32 windows;
	struct port_inbound inbound[CROSSLANE_NTB_WINDOWS];
	struct port_outbound outbound[CROSSLANE_NTB_WINDOWS];
	unsigned long search_again;	/* jiffies: not to be searched for memory in one piece before */
	struct list_head segments;
	struct copies *copies;	/* while the port is owned: of a DMA engine; NULL: there was none free */
	struct delayed_work step;	/* looks at the link, and takes a step towards a life or ends one */

	struct control_state control;
	struct wakers wakers;
	struct work_struct wakes;	/* serves wakes, which an interrupt cannot */
	u64 data_bell, session_bell;	/* the bridge's doorbells that the peer hears: for `control`, and for a new session word */

	spinlock_t events;	/* all below; taken in interrupts */
	bool up;
	u64 life;		/* number of the link's present or last life; 0: there was none */
	bool told_up;		/* the reader has been told that `told_life` began */
	u64 told_life;
	u32 changes;		/* how often the bridge said that the link may have changed */
	u64 rung;		/* doorbells since the last report */
	u64 masked;
	wait_queue_head_t readers;
};

/* NULL if there is no memory. */
struct port *port_new(struct bridge *bridge, int peer);
/* The bridge has shared out what it has: finds the port's windows. */
int port_open(struct port *port);
void port_put(struct port *port);
/* The bridge goes away: all segments end, and the owner's calls fail with ENODEV. */
void port_gone(struct port *port);
/* A process has opened the device: EBUSY if one has already. */
int port_own(struct port *port);
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
int port_ring(struct port *port, u64 bits);
void port_mask(struct port *port, u64 bits);
int port_add_waker(struct port *port, int descriptor, u64 word, u32 *handle);
int port_drop_waker(struct port *port, u32 handle);
/* A descriptor in this process. */
int port_bell(struct port *port, u32 handle);
/* Wakes a sleeper of the peer; false behind the life. In any context. */
bool port_wake(struct port *port, u64 life, u32 handle);
/* The next event; false if there is none. */
bool port_event(struct port *port, struct crosslane_ntb_event *event);
bool port_has_event(struct port *port);

#endif

/* SPDX-License-Identifier: GPL-2.0 */
#ifndef NTB_SOFT_BRIDGE_H
#define NTB_SOFT_BRIDGE_H

#include <linux/atomic.h>
#include <linux/ntb.h>
#include <linux/spinlock.h>
#include <linux/timer.h>

#define SOFT_WINDOWS 8	/* most memory windows of a bridge */
#define SOFT_PADS 128	/* most scratchpads */
#define SOFT_DOORBELLS 32
#define SOFT_MESSAGES 8	/* most message registers */
#define SOFT_PEERS 3	/* most peers of a bridge */
/*
 * How long a link trains, from when it is enabled or has gone down, ms. Stock ntb_transport clears its scratchpads some time after it
 * hears that a link is down; a peer that has written to them by then is not heard.
 */
#define SOFT_TRAINING 200

/* What a bridge is like: module parameters. */
struct soft_shape {
	u32 windows;
	u64 window_len;	/* a power of two: stock ntb_perf needs that */
	u32 pads;
	u32 doorbells;
	u32 messages;	/* message registers; 0: none */
	u32 peers;
	bool outbound;	/* an end translates its outbound windows only, not its inbound ones */
	/* Alignment that translation demands of an address, bytes; 0: memory is given out aligned to the window's length. */
	u64 xlat_align;
	/* What clients are told of it, bytes; 0: the truth. */
	u64 said_align;
	/* Of a pair: a store lands up to so long after it was made, us; 0: at once. */
	u32 late_us;
	/* The link goes down by itself every flap_ms (0: never), `flaps` times at most. */
	u32 flap_ms;
	u32 flaps;
};

/*
 * From one window's memory to the next, bytes. Where memory is given out unaligned, each window has room of its own length before it:
 * for the page before its start, and for the end of an allocation of the window before that was made longer to be aligned.
 */
static inline u64 soft_stride(const struct soft_shape *shape)
{
	return shape->xlat_align ? 2 * shape->window_len : shape->window_len;
}

/*
 * Windows of several peers. An end's outbound window w leads to its peer w % peers, which has memory for it among that of its own windows:
 * in a slot for each of its peers and each of their windows. With one peer a window's slot is its number.
 */
static inline u32 soft_slots(const struct soft_shape *shape)
{
	return roundup(shape->windows, shape->peers);
}

/* The slot behind window `window` of the end that has the number `source` among the peers of the memory's owner. */
static inline u32 soft_slot(const struct soft_shape *shape, u32 window, u32 source)
{
	return window / shape->peers * shape->peers + source;
}

/* Memory of an end's windows, bytes. */
static inline u64 soft_windows_len(const struct soft_shape *shape)
{
	return soft_slots(shape) * soft_stride(shape);
}

/* Where a slot begins in the memory of its end, bytes. */
static inline u64 soft_slot_at(const struct soft_shape *shape, u32 slot)
{
	return slot * soft_stride(shape) + (shape->xlat_align ? shape->window_len : 0);
}

/*
 * What one end says to one of its peers.
 *
 * The link is up when each end has accepted the other's present session: an end takes a new session number whenever its link is enabled
 * or has gone down, so that a life ends at both ends, also when one of them was stopped and saw nothing.
 */
struct soft_line {
	__u32 session;		/* 0 while the link is disabled */
	__u32 accepted;		/* the peer's session that was accepted; 0: none */
};

enum soft_message_state {
	SOFT_EMPTY,
	SOFT_WRITING,		/* somebody has taken it, and writes to it */
	SOFT_POSTED,		/* what was written has not landed */
	SOFT_FULL,
};

struct soft_message {
	__u32 state;		/* enum soft_message_state */
	__u32 sender;		/* its number among the owner's peers */
	__u32 data;
};

/* Registers of one end, in memory that all ends see. */
struct soft_registers {
	struct soft_line line[SOFT_PEERS];	/* stored by their owner */
	__u32 doorbell;		/* bits, set by peers and taken by the owner */
	struct soft_message message[SOFT_MESSAGES];	/* filled by peers, emptied by the owner */
	__u32 pad[SOFT_PADS];	/* stored by peers, read by the owner */
};

struct soft_bridge;
struct soft_posted;

/* The way from one end to one of its peers. */
struct soft_link {
	struct soft_bridge *bridge;
	u32 number;		/* of the peer among this end's */
	u32 own_number;		/* of this end among the peer's */
	struct soft_registers *peer;
	phys_addr_t outbound_base;	/* where this end stores to the peer's windows */
	phys_addr_t memory_base;	/* their memory: the same, but where stores land late */
	/* The bridge's lock: */
	u32 session;		/* own line's while enabled, which the peer could overwrite */
	u32 accepted;
	bool up;
	struct timer_list training;	/* while it runs the link cannot come up */
};

/* One end of a cable, as an NTB device. */
struct soft_bridge {
	struct ntb_dev ntb;
	struct ntb_dev_ops ops;	/* what a bridge of this shape can do */
	struct soft_shape shape;
	struct soft_registers *own;
	struct soft_link link[SOFT_PEERS];	/* shape.peers of them */
	int port;		/* port number, where there are more than two ends */
	/* Memory of this end's windows, one behind the other: where its peers' stores land. */
	u8 *inbound;
	phys_addr_t inbound_base;
	/* Has a peer, or this end, look at its registers, soon; from any context. */
	void (*notify)(struct soft_link *link);
	void (*notify_own)(struct soft_bridge *bridge);
	/* Whether the cable is whole, with somebody at the other end. In an interrupt. */
	bool (*connected)(struct soft_bridge *bridge);
	struct soft_posted *posted;	/* of a pair: what lands later; NULL: all lands at once */

	spinlock_t lock;	/* all below; taken in interrupts */
	u64 pending;		/* doorbell bits that have come and were not cleared */
	u64 masked;
	u64 failed;		/* status bits of messages that found their register full */
	u64 messages;		/* unmasked status bits of messages that have come, when they were looked at last */
	u64 messages_masked;
	bool enabled;
	struct timer_list flapping;	/* its next end takes the link down */
	u32 flaps;			/* how often it still does */
	unsigned long allocated;	/* slots whose memory a client has, one bit each */
	/* Who asked last how memory for a window of this peer is aligned: that task allocates it next. */
	struct task_struct *asked[SOFT_PEERS];
};

/* The doorbell bits that there are. */
static inline u64 soft_doorbells(const struct soft_shape *shape)
{
	return GENMASK_ULL(shape->doorbells - 1, 0);
}

static inline struct soft_bridge *to_soft_bridge(struct ntb_dev *ntb)
{
	return container_of(ntb, struct soft_bridge, ntb);
}

/* The link to the peer of this index; NULL if there is none. */
static inline struct soft_link *soft_link_to(struct ntb_dev *ntb, int peer)
{
	struct soft_bridge *bridge = to_soft_bridge(ntb);

	return peer >= 0 && peer < bridge->shape.peers ? &bridge->link[peer] : NULL;
}

/* The number of end `of` among the peers of end `at`: all ends but itself, in their order. */
static inline u32 soft_number(u32 of, u32 at)
{
	return of < at ? of : of - 1;
}

/* Fills in what does not depend on how the ends are joined. */
void soft_bridge_init(struct soft_bridge *bridge, struct pci_dev *pci, const struct soft_shape *shape);
/* From here on its link may go down by itself. */
void soft_bridge_start(struct soft_bridge *bridge);
/* Nothing of it runs any more. */
void soft_bridge_stop(struct soft_bridge *bridge);
/* Operations of windows, of doorbells and scratchpads, and of message registers if there are any, of a bridge whose shape is known. */
void soft_windows_init(struct soft_bridge *bridge);
void soft_registers_init(struct soft_bridge *bridge);
void soft_messages_init(struct soft_bridge *bridge);
/* Whether the client is to hear of messages; the bridge's lock is held. */
bool soft_messages_came(struct soft_bridge *bridge);
/* Looks at the registers, and tells the client what is new; in an interrupt, or as one. Returns whether something was. */
bool soft_bridge_look(struct soft_bridge *bridge);

/* Has `pci` allocate its coherent memory from the bridge's windows, so that stock clients' buffers are what the peer stores into. */
void soft_memory_attach(struct pci_dev *pci, struct soft_bridge *bridge);
void soft_memory_detach(struct pci_dev *pci);

/*
 * Has stores of two bridges land up to late_us later. What an end stores into is memory of its own, `len` bytes, one end's behind the
 * other's at `shadows`. NULL if there is no memory.
 */
struct soft_lander *soft_lander_start(struct soft_bridge *a, struct soft_bridge *b, u8 *shadows, u64 len, u32 late_us);
/* Nobody uses the bridges any more. */
void soft_lander_stop(struct soft_lander *lander);
/*
 * Whether the link may come up, or stay so: both ends agree on it, and what this end reads of its peer's memory is of this life. The
 * bridge's lock is held.
 */
bool soft_posted_agree(struct soft_posted *posted, bool agreed);
/* Registers of the peer's, behind all stores that were made before. */
void soft_posted_ring(struct soft_posted *posted, u32 bits);
void soft_posted_write_pad(struct soft_posted *posted, u32 pad, u32 value);
/* What this end has written and has not landed; false: nothing. */
bool soft_posted_read_pad(struct soft_posted *posted, u32 pad, u32 *value);

/* Bridges in this kernel, each joined with each other, in memory from the physical address `base` on. */
int soft_pair_start(const struct soft_shape *shape, u64 base);
void soft_pair_stop(void);

/* A bridge for each ivshmem device of this (virtual) machine; windows are as long as its memory allows, up to `shape`. */
int soft_ivshmem_start(const struct soft_shape *shape, u32 poll_us, u32 alive_ms);
void soft_ivshmem_stop(void);

#endif

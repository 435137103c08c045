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
	/* Alignment that translation demands of an address, bytes; 0: memory is given out aligned to the window's length. */
	u64 xlat_align;
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

/* Memory of an end's windows, bytes. */
static inline u64 soft_windows_len(const struct soft_shape *shape)
{
	return shape->windows * soft_stride(shape);
}

/* Where a window begins in the memory of its end, bytes. */
static inline u64 soft_window_at(const struct soft_shape *shape, u32 window)
{
	return window * soft_stride(shape) + (shape->xlat_align ? shape->window_len : 0);
}

/*
 * Registers of one end, in memory that both ends see.
 *
 * The link is up when each end has accepted the other's present session: an end takes a new session number whenever its link is enabled
 * or has gone down, so that a life ends at both ends, also when one of them was stopped and saw nothing.
 */
struct soft_registers {
	__u32 session;		/* stored by its owner: 0 while it has the link disabled */
	__u32 accepted;		/* stored by its owner: the peer's session that it has accepted; 0: none */
	__u32 doorbell;		/* bits, set by the peer and taken by the owner */
	__u32 pad[SOFT_PADS];	/* stored by the peer, read by the owner */
};

struct soft_posted;

/* One end of a cable, as an NTB device. */
struct soft_bridge {
	struct ntb_dev ntb;
	struct soft_shape shape;
	struct soft_registers *own, *peer;
	/* Memory of this end's windows, one behind the other: where the peer's stores land. */
	u8 *inbound;
	phys_addr_t inbound_base;
	phys_addr_t outbound_base;
	/* Has the peer, or this end, look at its registers, soon; from any context. */
	void (*notify)(struct soft_bridge *bridge);
	void (*notify_own)(struct soft_bridge *bridge);
	/* Whether the cable is whole, with somebody at the other end. In an interrupt. */
	bool (*connected)(struct soft_bridge *bridge);
	struct soft_posted *posted;	/* what lands later; NULL: all lands at once */

	spinlock_t lock;	/* all below; taken in interrupts */
	u64 pending;		/* doorbell bits that have come and were not cleared */
	u64 masked;
	bool enabled;
	u32 session;		/* own->session while enabled, which the peer could overwrite */
	struct timer_list training;	/* while it runs the link cannot come up */
	struct timer_list flapping;	/* its next end takes the link down */
	u32 flaps;			/* how often it still does */
	u32 accepted;
	bool up;
	unsigned long allocated;	/* windows whose memory a client has, one bit each */
};

/* Fills in what does not depend on how the ends are joined. */
void soft_bridge_init(struct soft_bridge *bridge, struct pci_dev *pci, const struct soft_shape *shape);
/* From here on its link may go down by itself. */
void soft_bridge_start(struct soft_bridge *bridge);
/* Nothing of it runs any more. */
void soft_bridge_stop(struct soft_bridge *bridge);
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

/* Two bridges in this kernel, in memory from the physical address `base` on. */
int soft_pair_start(const struct soft_shape *shape, u64 base);
void soft_pair_stop(void);

/* A bridge for each ivshmem device of this (virtual) machine; windows are as long as its memory allows, up to `shape`. */
int soft_ivshmem_start(const struct soft_shape *shape, u32 poll_us, u32 alive_ms);
void soft_ivshmem_stop(void);

#endif

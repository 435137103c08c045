/* SPDX-License-Identifier: GPL-2.0 */
#ifndef CROSSLANE_WINDOWS_H
#define CROSSLANE_WINDOWS_H

#include <linux/types.h>

struct port;

/*
 * Memory of this host behind one inbound window. How it must be aligned a bridge tells while its link is up: what the owner wants before is
 * allocated then.
 */
struct port_inbound {
	u64 wanted;	/* by the owner; 0: none */
	void *allocated;
	dma_addr_t allocated_dma;
	size_t allocated_len;
	bool contiguous;	/* of pages in one piece, not by the DMA interface */
	bool stale;	/* not wanted any more, but the peer may still store there */
	u8 *memory;	/* the aligned part, for the bridge to translate to */
	dma_addr_t dma;
	u64 len;	/* of that part; the owner's and the modules' own */
};

/* The peer's memory as this host addresses it. */
struct port_outbound {
	phys_addr_t base;
	u64 len;
	/* Mapped by the kernel too: that is what tells x86 that this memory is write-combined, in programs as well. */
	void __iomem *memory;
};

/* Finds and maps the outbound windows. What is found before an error is there for windows_forget(). */
int windows_find(struct port *port);
void windows_forget(struct port *port);

/* The rest with port->lock held. */

/* Bytes at a window's start that are not the owner's. */
u64 windows_reserved(u32 window);
/* The longest memory that the owner can have behind an inbound window; 0 while the bridge does not say. */
u64 windows_inbound_max(struct port *port, u32 window);
/*
 * Has the bridge, or its peer when it is told, translate the window to the memory that the owner wants behind it, which is allocated if it
 * was not yet.
 */
int windows_set(struct port *port, u32 window);
/* Frees what is behind a window: at once, or when the peer stores there no more. */
void windows_free(struct port *port, u32 window);
/* Frees what had to be kept, if it has not to any more. */
void windows_free_stale(struct port *port);
/* Nothing that this end translates leads anywhere any more: what the peer stores, or this host. */
void windows_clear(struct port *port);
/* Whether outbound windows lead to the memory of this session of the peer's, or the peer sees to that. */
bool windows_of(struct port *port, u16 session);
/* Has them lead there; false if it cannot be, or not yet. */
bool windows_reach(struct port *port, u16 session);
/* Takes translations of all sessions of the peer's but this one away. */
void windows_turn(struct port *port, u16 session);

#endif

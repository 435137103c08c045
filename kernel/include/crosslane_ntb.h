/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * /dev/crosslane0, ..: one end of an NTB cable, to one peer, as the kernel module crosslane_ntb gives it to the Crosslane daemon.
 *
 * One process at a time has the device open, and owns all that it makes by it: closing the device, or dying, takes everything
 * back. All numbers are in the host's byte order; all lengths and offsets are bytes. Reserved fields must be 0.
 */
#ifndef _UAPI_CROSSLANE_NTB_H
#define _UAPI_CROSSLANE_NTB_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Version of this interface. Only a module of the same version serves a daemon: CROSSLANE_NTB_INFO says it. */
#define CROSSLANE_NTB_VERSION 3
/* Most memory windows of a port. */
#define CROSSLANE_NTB_WINDOWS 8
/* Scratchpads and doorbells of every port: the modules make them of memory where a bridge has fewer. */
#define CROSSLANE_NTB_PADS 32
#define CROSSLANE_NTB_DOORBELLS 64

/* What statfs() says of the descriptor of a carved range, and of a bell: nobody but the module can make one. */
#define CROSSLANE_NTB_SEGMENT_MAGIC 0x584c5347

/* One memory window, of both directions. */
struct crosslane_ntb_window {
	__u64 inbound_max;	/* longest memory that the bridge can translate to; 0: not known while its link is down */
	__u64 inbound_len;	/* memory that CROSSLANE_NTB_TRANSLATE wants behind the window; 0: none */
	__u64 outbound_len;	/* the peer's memory that this host can address */
};

struct crosslane_ntb_info {
	__u32 version;		/* CROSSLANE_NTB_VERSION */
	__u32 windows;		/* how many of window[] there are */
	struct crosslane_ntb_window window[CROSSLANE_NTB_WINDOWS];
	__u64 copy_max;		/* longest CROSSLANE_NTB_COPY; 0: this port has no DMA engine */
	__s32 port, peer_port;	/* the bridge's numbers of this end and of the peer; where there are two ends, both may be 0 */
};

/*
 * Memory of the host's own, whole pages, for the peer to store into; len 0 takes it away. Before the link is up it is only noted, and
 * what cannot be had keeps the link down, with a line in the kernel's log. EBUSY while segments are carved from it, and, for window 0,
 * while the link is up: the modules keep a part of that for themselves, and no link comes up without it. So for all windows where the
 * bridge translates outbound windows only, since then the peer has to know of the memory before the link is up.
 */
struct crosslane_ntb_translate {
	__u32 window;
	__u32 reserved;
	__u64 len;
};

enum crosslane_ntb_side {
	CROSSLANE_NTB_INBOUND = 0,	/* memory of this host that the peer stores into */
	CROSSLANE_NTB_OUTBOUND = 1,	/* the peer's memory: stores only, write-combined where the processor can */
};

/* A range of a window or of inbound memory: whole pages. */
struct crosslane_ntb_range {
	__u32 window;
	__u32 side;		/* enum crosslane_ntb_side */
	__u64 offset;
	__u64 len;
};

struct crosslane_ntb_register {
	__u32 index;
	__u32 value;
};

/* A sleeper that programs of the peer's host may wake. */
struct crosslane_ntb_waker {
	__s32 socket;		/* a datagram socket of family AF_UNIX, connected to the sleeper's */
	__u32 handle;		/* filled in: by it the peer's daemon gets a bell (CROSSLANE_NTB_BELL); no later waker has the same */
	__u64 word;		/* what wakes: a datagram of 16 bytes, eight zeros and this word, the highest byte first */
};

/*
 * A copy by a DMA engine between this process's memory and a carved range: into an outbound one, out of an inbound one. The memory must
 * stay as it is until the copy is over.
 */
struct crosslane_ntb_copy {
	__u64 address;		/* of the process's memory */
	__u64 len;		/* 1 to copy_max */
	__u64 offset;		/* in the range */
	__s32 over;		/* an eventfd, which counts one when the copy is over, however it ended */
	__s32 failed;		/* another one, which has counted one before that if it is not known what was copied */
};

enum crosslane_ntb_event_kind {
	CROSSLANE_NTB_LINK_DOWN = 1,
	CROSSLANE_NTB_LINK_UP = 2,
	CROSSLANE_NTB_DOORBELL = 3,
};

/* What read() gives: as many as fit. The device is readable (poll) while there are any. */
struct crosslane_ntb_event {
	__u32 kind;		/* enum crosslane_ntb_event_kind */
	__u32 reserved;
	__u64 doorbells;	/* CROSSLANE_NTB_DOORBELL: the bits, none of them masked, which are clear again */
	__u64 life;		/* number of the link's life that begins, ends, or that the doorbells belong to */
};

#define CROSSLANE_NTB_IOC 0xe7
#define CROSSLANE_NTB_INFO _IOR(CROSSLANE_NTB_IOC, 0, struct crosslane_ntb_info)
#define CROSSLANE_NTB_TRANSLATE _IOW(CROSSLANE_NTB_IOC, 1, struct crosslane_ntb_translate)
/*
 * A descriptor of a range, which can be passed to another process and mapped there (MAP_SHARED), and nothing beyond it. EEXIST if
 * it overlaps one of the same side that is carved, ENOTCONN while the link is down. The range ends with CROSSLANE_NTB_TAKE_BACK,
 * with the link's life, or with the owner: then each process that maps it has pages of its own there, at once and without a
 * signal: of an inbound range with what had arrived, of another with zeroes. An inbound range is zero when it is carved.
 */
#define CROSSLANE_NTB_CARVE _IOW(CROSSLANE_NTB_IOC, 2, struct crosslane_ntb_range)
#define CROSSLANE_NTB_TAKE_BACK _IOW(CROSSLANE_NTB_IOC, 3, struct crosslane_ntb_range)
/* Switches the link on (not 0) or off. */
#define CROSSLANE_NTB_LINK _IOW(CROSSLANE_NTB_IOC, 4, __u32)
/* A scratchpad of this host (read; value is filled in) and of the peer (write). */
#define CROSSLANE_NTB_READ_PAD _IOWR(CROSSLANE_NTB_IOC, 5, struct crosslane_ntb_register)
#define CROSSLANE_NTB_WRITE_PEER_PAD _IOW(CROSSLANE_NTB_IOC, 6, struct crosslane_ntb_register)
/* Sets doorbell bits at the peer. */
#define CROSSLANE_NTB_RING _IOW(CROSSLANE_NTB_IOC, 7, __u64)
/* The doorbell bits that make no event; initially none. */
#define CROSSLANE_NTB_MASK _IOW(CROSSLANE_NTB_IOC, 8, __u64)
/*
 * Makes a waker of a socket; it ends with CROSSLANE_NTB_DROP_WAKER (its handle), or with the link's life. EINVAL if it is no such socket,
 * ENOSPC beyond 65536. It may be woken without having been rung, where many were.
 */
#define CROSSLANE_NTB_WAKER _IOWR(CROSSLANE_NTB_IOC, 9, struct crosslane_ntb_waker)
#define CROSSLANE_NTB_DROP_WAKER _IOW(CROSSLANE_NTB_IOC, 10, __u32)
/*
 * A descriptor for a handle of the peer's, which can be passed to another process: each write() to it, of whatever, wakes that sleeper,
 * and all that was stored through windows before is there when it wakes. A write never waits. ENOTCONN behind the link's life.
 */
#define CROSSLANE_NTB_BELL _IOW(CROSSLANE_NTB_IOC, 11, __u32)
/*
 * Of the descriptor of a carved range, not of the device: begins a copy, by whoever holds it. EOPNOTSUPP without a DMA engine; EINVAL
 * beyond the range, or where the engine cannot copy because of how both sides are aligned; EAGAIN while as many copies as a range may have
 * (8), or all ranges of the port (128), are under way; ENOTCONN behind the range's end; EIO from when the engine stood still. When a range
 * ends its copies are over.
 */
#define CROSSLANE_NTB_COPY _IOW(CROSSLANE_NTB_IOC, 12, struct crosslane_ntb_copy)

#endif

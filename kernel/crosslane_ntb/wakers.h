/* SPDX-License-Identifier: GPL-2.0 */
#ifndef CROSSLANE_WAKERS_H
#define CROSSLANE_WAKERS_H

#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/xarray.h>

struct port;

/*
 * Sleepers of this host that programs of the peer may wake: an eventfd each, by a handle. A handle is a slot and how often the slot was
 * used, so that a wake that comes late wakes nobody else.
 */
#define WAKERS_SLOTS 65536

struct wakers {
	struct xarray slots;	/* its lock may be taken in interrupts */
	u32 generation;
};

void wakers_init(struct wakers *wakers);
/* A handle for an eventfd of this process; an error if it is none, or there is no slot. */
int wakers_add(struct wakers *wakers, int eventfd, u32 *handle);
int wakers_remove(struct wakers *wakers, u32 handle);
void wakers_clear(struct wakers *wakers);
/* Wakes one; a handle that is none does nothing. In any context. */
void wakers_wake(struct wakers *wakers, u32 handle);
/* Not in an interrupt. */
void wakers_wake_all(struct wakers *wakers);

/* A descriptor in this process: each write() to it wakes the sleeper that has this handle at the peer, in the link's present life. */
int bell_descriptor(struct port *port, u64 life, u32 handle);

#endif

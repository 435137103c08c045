/* SPDX-License-Identifier: GPL-2.0 */
#ifndef CROSSLANE_WAKERS_H
#define CROSSLANE_WAKERS_H

#include <linux/types.h>
#include <linux/xarray.h>

struct port;

/*
 * Sleepers of this host that programs of the peer may wake: a socket each, connected to the sleeper's, by a handle. A handle is a slot and
 * how often the slot was used, so that a wake that comes late wakes nobody else. None of this is called in interrupts: to send may sleep.
 */
#define WAKERS_SLOTS 65536

struct wakers {
	struct xarray slots;
	u32 generation;
};

void wakers_init(struct wakers *wakers);
/* A handle for a socket of this process, and the word that it is to send; an error if it is no such socket, or there is no slot. */
int wakers_add(struct wakers *wakers, int descriptor, u64 word, u32 *handle);
int wakers_remove(struct wakers *wakers, u32 handle);
void wakers_clear(struct wakers *wakers);
/* Wakes one; a handle that is none does nothing. */
void wakers_wake(struct wakers *wakers, u32 handle);
void wakers_wake_all(struct wakers *wakers);

/* A descriptor in this process: each write() to it wakes the sleeper that has this handle at the peer, in the link's present life. */
int bell_descriptor(struct port *port, u64 life, u32 handle);

#endif

/* SPDX-License-Identifier: GPL-2.0 */
#ifndef CROSSLANE_MESSAGES_H
#define CROSSLANE_MESSAGES_H

#include <linux/types.h>

struct bridge;

/* Message registers of a bridge, if words go by them: one message fits into each, and stays there until the receiver has taken it. */
void messages_init(struct bridge *bridge);
void messages_start(struct bridge *bridge);
/* Messages stay where they are from now on; the bridge's events have been stopped. */
void messages_stop(struct bridge *bridge);
/* The bridge says that there are messages; in an interrupt. */
void messages_came(struct bridge *bridge);
/* Sends one by register `number`; false if the peer has not taken the last one from it. bridge->sending is held. */
bool messages_send(struct bridge *bridge, int peer, u32 number, u32 message);

#endif

/* SPDX-License-Identifier: GPL-2.0 */
#ifndef CROSSLANE_LIFE_H
#define CROSSLANE_LIFE_H

#include <linux/types.h>

struct port;

void life_init(struct port *port);
/* Nothing of this runs any more; the bridge's events have been stopped. */
void life_detach(struct port *port);
/* The bridge's link has changed, or that of another of its ports; in an interrupt. */
void life_link(struct port *port);
/* Serves what has come by the control memory, if anything has; in an interrupt, or as one. */
void life_hear(struct port *port);
/* Whether the bridge has a link to the port's peer. */
bool life_bridge_is_up(struct port *port);
/* Looks at the link, soon; from any context. */
void life_step(struct port *port);
/*
 * Ends the present life, or the readiness for one; port->lock is held. What the peer stores from now on reaches nobody, and what it
 * has stored stays readable to those who map it.
 */
void life_end(struct port *port);

#endif

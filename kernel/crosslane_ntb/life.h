/* SPDX-License-Identifier: GPL-2.0 */
#ifndef CROSSLANE_LIFE_H
#define CROSSLANE_LIFE_H

struct port;

/* The peer of a bridge with one. */
#define PEER 0

/* Hears of the bridge's events from now on. */
int life_attach(struct port *port);
/* Nothing of this runs any more; the bridge's events have been stopped. */
void life_detach(struct port *port);
/* Looks at the link, soon; from any context. */
void life_step(struct port *port);
/*
 * Ends the present life, or the readiness for one; port->lock is held. What the peer stores from now on reaches nobody, and what it
 * has stored stays readable to those who map it.
 */
void life_end(struct port *port);

#endif

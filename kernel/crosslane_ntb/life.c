// SPDX-License-Identifier: GPL-2.0
/* Lives of the link to a peer, and what comes over it: doorbells and wakes. See struct port. */
#include "life.h"

#include "bridge.h"
#include "port.h"
#include "segment.h"

#include <linux/delay.h>
#include <linux/ktime.h>
#include <linux/minmax.h>
#include <linux/ntb.h>
#include <linux/string.h>

/* Pause of a worker that has served a full queue of wakes: so many times as long as that took, within these bounds, us. */
#define PAUSE_FACTOR 4
#define PAUSE_LEAST 500
#define PAUSE_MOST 200000

bool life_bridge_is_up(struct port *port)
{
	return ntb_link_is_up(port->bridge->ntb, NULL, NULL) & BIT_ULL(port->peer);
}

static void set_down(struct port *port)
{
	unsigned long flags;

	spin_lock_irqsave(&port->events, flags);
	port->up = false;
	port->rung = 0;
	spin_unlock_irqrestore(&port->events, flags);
	wake_up_interruptible(&port->readers);
}

static void end_segments(struct port *port, u32 side)
{
	struct segment *segment, *next;

	list_for_each_entry_safe(segment, next, &port->segments, link) {
		if (segment->side != side)
			continue;
		list_del(&segment->link);
		segment_end(segment, true);
		segment_put(segment);
	}
}

void life_end(struct port *port)
{
	lockdep_assert_held(&port->lock);
	set_down(port);
	control_end(&port->control);
	port->ready = false;
	port->accepted = 0;
	if (port->ntb)
		windows_clear(port);
	end_segments(port, CROSSLANE_NTB_OUTBOUND);
	/* Before the other segments, or a store could arrive between the copies of two pages. */
	if (port->ntb && port->session)
		words_end(port);
	end_segments(port, CROSSLANE_NTB_INBOUND);
	wakers_clear(&port->wakers);
}

/* What the peer stores behind this arrives. */
static bool make_ready(struct port *port)
{
	u32 window;

	/* The peer may not know yet that the last session has ended. */
	if (words_exposed(port))
		return false;
	windows_free_stale(port);
	for (window = 0; window < port->windows; window++) {
		int error = windows_set(port, window);

		if (!error)
			continue;
		dev_err_ratelimited(&port->ntb->dev, "window %u cannot have memory of %llu bytes: error %d; the link stays down\n",
				    window, port->inbound[window].wanted, error);
		return false;
	}
	memset(port->inbound[0].memory, 0, sizeof(struct control));
	/* Not the number of any life that the peer may still be in; all ones are what a lost link reads. */
	do
		port->session = ++port->sessions;
	while (!port->session || port->session == U16_MAX);
	port->ready = true;
	return true;
}

/* Serves as many wakes as the queue has room for; false if there may be more. */
static bool serve_wakes(struct port *port)
{
	u32 handle, served;

	for (served = 0; served < CONTROL_QUEUE; served++) {
		switch (control_next_wake(&port->control, &handle)) {
		case CONTROL_ONE:
			wakers_wake(&port->wakers, handle);
			continue;
		case CONTROL_ALL:
			wakers_wake_all(&port->wakers);
			return false;
		case CONTROL_NONE:
			if (served)
				control_acknowledge(&port->control);
			return true;
		}
	}
	return false;
}

/*
 * A peer that rings without end has a fifth of a worker's time, and what it rings for comes late. Each sleeper is woken once for each time
 * that it sleeps, however often it is rung.
 */
static void serve(struct work_struct *work)
{
	struct port *port = container_of(work, struct port, wakes);
	ktime_t begun = ktime_get();
	s64 pause;

	if (serve_wakes(port))
		return;
	pause = clamp_t(s64, PAUSE_FACTOR * ktime_us_delta(ktime_get(), begun), PAUSE_LEAST, PAUSE_MOST);
	usleep_range(pause, 2 * pause);
	control_acknowledge(&port->control);
	queue_work(system_highpri_wq, &port->wakes);
}

void life_hear(struct port *port)
{
	unsigned long flags;
	u64 heard;

	if (control_has_wake(&port->control))
		queue_work(system_highpri_wq, &port->wakes);
	heard = control_heard(&port->control);
	if (!heard)
		return;
	spin_lock_irqsave(&port->events, flags);
	port->rung |= heard;
	spin_unlock_irqrestore(&port->events, flags);
	wake_up_interruptible(&port->readers);
}

/* Both ends have accepted each other. */
static void life_begin(struct port *port, u32 changes)
{
	struct control *own = (struct control *)port->inbound[0].memory;
	unsigned long flags;

	control_begin(&port->control, own, port->outbound[0].memory, port->ntb, port->data_bell);
	spin_lock_irqsave(&port->events, flags);
	if (port->changes == changes) {
		port->up = true;
		port->rung = 0;
		port->life++;
	}
	spin_unlock_irqrestore(&port->events, flags);
	wake_up_interruptible(&port->readers);
	/* The peer may have begun before this end. */
	life_hear(port);
}

/* Whether the present life goes on, with what the peer says. */
static bool goes_on(struct port *port, const struct words_said *said)
{
	return READ_ONCE(port->up) && said->session == port->accepted && said->accepted == port->session;
}

/* Towards a life, if the owner and the bridge want one. */
static void approach(struct port *port, const struct words_said *said, u32 changes)
{
	if (!port->enabled || !port->inbound[0].wanted || !life_bridge_is_up(port))
		return;
	if (!port->ready && !make_ready(port))
		return;
	port->accepted = windows_reach(port, said->session) ? said->session : 0;
	words_tell(port, said);
	if (port->accepted && said->accepted == port->session)
		life_begin(port, changes);
}

static void take_step(struct port *port)
{
	u32 changes = READ_ONCE(port->changes);
	struct words_said said;

	words_said(port, &said);
	if (goes_on(port, &said))
		return;
	if (port->control.own)
		life_end(port);
	windows_turn(port, said.session);
	if (port->owned)
		approach(port, &said, changes);
}

static void step(struct work_struct *work)
{
	struct port *port = container_of(to_delayed_work(work), struct port, step);
	bool again;

	mutex_lock(&port->lock);
	if (port->ntb) {
		/* Of what has been asked by now, the answer is true behind the step. */
		bool asked = words_asked(port);

		take_step(port);
		again = words_deliver(port, asked);
		windows_free_stale(port);
		if (again || (port->enabled && !READ_ONCE(port->up)))
			queue_delayed_work(system_highpri_wq, &port->step, msecs_to_jiffies(WORDS_AGAIN));
	}
	mutex_unlock(&port->lock);
}

void life_step(struct port *port)
{
	mod_delayed_work(system_highpri_wq, &port->step, 0);
}

void life_link(struct port *port)
{
	unsigned long flags;

	if (!life_bridge_is_up(port)) {
		spin_lock_irqsave(&port->events, flags);
		port->changes++;
		port->up = false;
		spin_unlock_irqrestore(&port->events, flags);
		wake_up_interruptible(&port->readers);
	}
	life_step(port);
}

void life_init(struct port *port)
{
	INIT_DELAYED_WORK(&port->step, step);
	INIT_WORK(&port->wakes, serve);
}

void life_detach(struct port *port)
{
	cancel_delayed_work_sync(&port->step);
	cancel_work_sync(&port->wakes);
}

/* What the next event is; port->events is held. */
static u32 next_event(struct port *port)
{
	if (port->told_up && (!port->up || port->told_life != port->life))
		return CROSSLANE_NTB_LINK_DOWN;
	if (port->up && !port->told_up)
		return CROSSLANE_NTB_LINK_UP;
	if (port->told_up && port->rung & ~port->masked)
		return CROSSLANE_NTB_DOORBELL;
	return 0;
}

bool port_event(struct port *port, struct crosslane_ntb_event *event)
{
	unsigned long flags;

	memset(event, 0, sizeof(*event));
	spin_lock_irqsave(&port->events, flags);
	event->kind = next_event(port);
	switch (event->kind) {
	case CROSSLANE_NTB_LINK_DOWN:
		event->life = port->told_life;
		port->told_up = false;
		break;
	case CROSSLANE_NTB_LINK_UP:
		port->told_life = port->life;
		event->life = port->told_life;
		port->told_up = true;
		break;
	case CROSSLANE_NTB_DOORBELL:
		event->life = port->life;
		event->doorbells = port->rung & ~port->masked;
		port->rung &= port->masked;
		break;
	}
	spin_unlock_irqrestore(&port->events, flags);
	return event->kind;
}

bool port_has_event(struct port *port)
{
	unsigned long flags;
	bool has;

	spin_lock_irqsave(&port->events, flags);
	has = next_event(port);
	spin_unlock_irqrestore(&port->events, flags);
	return has;
}

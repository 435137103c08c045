// SPDX-License-Identifier: GPL-2.0
/* Lives of the link, and what comes over it: doorbells and wakes. See struct port. */
#include "life.h"

#include "port.h"
#include "segment.h"

#include <linux/delay.h>
#include <linux/ktime.h>
#include <linux/minmax.h>
#include <linux/ntb.h>
#include <linux/string.h>

/* How soon an end looks again for a peer that is not ready, ms. Whoever has news rings; this is for what was lost. */
#define AGAIN 20
/* Pause of a worker that has served a full queue of wakes: so many times as long as that took, within these bounds, us. */
#define PAUSE_FACTOR 4
#define PAUSE_LEAST 500
#define PAUSE_MOST 200000
/* Scratchpad of the session words. */
#define SESSION_PAD 0

static bool bridge_is_up(struct port *port)
{
	return ntb_link_is_up(port->ntb, NULL, NULL) & BIT_ULL(PEER);
}

/* The peer's session word; 0 if it has none. */
static u32 session_word(struct port *port)
{
	u32 word = bridge_is_up(port) ? ntb_spad_read(port->ntb, SESSION_PAD) : 0;

	/* What a bridge reads whose link has just gone. */
	return word == ~0u ? 0 : word;
}

static void tell_session(struct port *port)
{
	ntb_peer_spad_write(port->ntb, PEER, SESSION_PAD, (u32)port->session << 16 | port->accepted);
	ntb_peer_db_set(port->ntb, port->session_bell);
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

void life_end(struct port *port)
{
	struct segment *segment, *next;
	u32 window;

	lockdep_assert_held(&port->lock);
	set_down(port);
	control_end(&port->control);
	/* Before the segments, or a store could arrive between the copies of two pages. */
	for (window = 0; port->ntb && window < port->windows; window++)
		if (port->inbound[window].allocated)
			ntb_mw_clear_trans(port->ntb, PEER, window);
	list_for_each_entry_safe(segment, next, &port->segments, link) {
		list_del(&segment->link);
		segment_end(segment, true);
		segment_put(segment);
	}
	wakers_clear(&port->wakers);
	port->ready = false;
	port->accepted = 0;
	if (port->ntb && port->session) {
		port->session = 0;
		tell_session(port);
	}
}

/* What the peer stores behind this arrives. */
static bool make_ready(struct port *port)
{
	u32 window;

	for (window = 0; window < port->windows; window++) {
		int error = port_set_translation(port, window);

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

/* Serves what has come by the control memory. */
static void hear(struct port *port)
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
	hear(port);
}

/* Whether the present life goes on, with this word of the peer's. */
static bool goes_on(struct port *port, u32 word)
{
	return READ_ONCE(port->up) && word >> 16 == port->accepted && (u16)word == port->session;
}

static void take_step(struct port *port)
{
	u32 changes = READ_ONCE(port->changes), word = session_word(port);

	if (goes_on(port, word))
		return;
	if (port->control.own)
		life_end(port);
	if (!port->enabled || !port->inbound[0].wanted || !bridge_is_up(port))
		return;
	if (!port->ready && !make_ready(port))
		return;
	port->accepted = word >> 16;
	tell_session(port);
	if (port->accepted && (u16)word == port->session)
		life_begin(port, changes);
}

static void step(struct work_struct *work)
{
	struct port *port = container_of(to_delayed_work(work), struct port, step);

	mutex_lock(&port->lock);
	if (port->owned && port->ntb) {
		take_step(port);
		if (port->enabled && !READ_ONCE(port->up))
			queue_delayed_work(system_highpri_wq, &port->step, msecs_to_jiffies(AGAIN));
	}
	mutex_unlock(&port->lock);
}

void life_step(struct port *port)
{
	mod_delayed_work(system_highpri_wq, &port->step, 0);
}

static void on_link(void *context)
{
	struct port *port = context;
	unsigned long flags;

	if (!bridge_is_up(port)) {
		spin_lock_irqsave(&port->events, flags);
		port->changes++;
		port->up = false;
		spin_unlock_irqrestore(&port->events, flags);
		wake_up_interruptible(&port->readers);
	}
	life_step(port);
}

static void on_doorbell(void *context, int vector)
{
	struct port *port = context;
	u64 bits = ntb_db_read(port->ntb);

	ntb_db_clear(port->ntb, bits);
	if (bits & port->session_bell)
		life_step(port);
	hear(port);
}

static const struct ntb_ctx_ops port_ops = {
	.link_event = on_link,
	.db_event = on_doorbell,
};

int life_attach(struct port *port)
{
	u64 bells = ntb_db_valid_mask(port->ntb);
	int error;

	if (ntb_spad_count(port->ntb) < 1 || hweight64(bells) < 2) {
		dev_err(&port->ntb->dev, "this bridge has fewer than one scratchpad and two doorbells\n");
		return -EOPNOTSUPP;
	}
	/* What a driver says of bridges with errata; there is nothing else to use. */
	if (ntb_db_is_unsafe(port->ntb) || ntb_spad_is_unsafe(port->ntb))
		dev_warn(&port->ntb->dev, "this bridge's driver advises against its doorbells or scratchpads, which are used all the same\n");
	port->data_bell = BIT_ULL(__ffs64(bells));
	port->session_bell = BIT_ULL(__ffs64(bells & ~port->data_bell));
	INIT_DELAYED_WORK(&port->step, step);
	INIT_WORK(&port->wakes, serve);
	error = ntb_set_ctx(port->ntb, port, &port_ops);
	if (!error)
		ntb_db_clear_mask(port->ntb, port->data_bell | port->session_bell);
	return error;
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

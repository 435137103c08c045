// SPDX-License-Identifier: GPL-2.0
/*
 * Messages are taken by a worker and not in interrupts: while it is at it they are masked, and behind each look it makes a pause. So a
 * peer that sends without end has a small part of one worker's time, and its messages wait in their registers.
 */
#include "messages.h"

#include "bridge.h"
#include "life.h"
#include "port.h"
#include "words.h"

#include <linux/bitops.h>
#include <linux/delay.h>
#include <linux/ktime.h>
#include <linux/minmax.h>
#include <linux/ntb.h>

/* The pause behind a look: so many times as long as the look took, and at least this, us. */
#define PAUSE_FACTOR 4
#define PAUSE_LEAST 50
#define PAUSE_MOST 5000

/* The status bit of register `number`. */
static u64 status_bit(u64 bits, u32 number)
{
	while (number--)
		bits &= bits - 1;
	return bits & -bits;
}

static u64 status(struct bridge *bridge)
{
	return ntb_msg_read_sts(bridge->ntb) & bridge->inbits;
}

/* Takes the message of one register. Who sent it is what the bridge says, and it is looked at. */
static void take(struct bridge *bridge, u32 number)
{
	int peer = -1;
	u32 message = ntb_msg_read(bridge->ntb, &peer, number);

	if (peer >= 0 && peer < bridge->peers)
		words_hear(bridge->port[peer], message);
	ntb_msg_clear_sts(bridge->ntb, status_bit(bridge->inbits, number));
}

static void receive(struct work_struct *work)
{
	struct bridge *bridge = container_of(work, struct bridge, receive);
	ktime_t begun = ktime_get();
	u64 came = status(bridge);
	s64 pause;
	u32 i;

	for (i = 0; i < bridge->registers; i++)
		if (came & status_bit(bridge->inbits, i))
			take(bridge, i);
	for (i = 0; came && i < bridge->peers; i++)
		life_step(bridge->port[i]);
	pause = clamp_t(s64, PAUSE_FACTOR * ktime_us_delta(ktime_get(), begun), PAUSE_LEAST, PAUSE_MOST);
	usleep_range(pause, 2 * pause);
	ntb_msg_clear_mask(bridge->ntb, bridge->inbits);
	/* A bridge may say nothing of what came while they were masked. */
	if (status(bridge))
		queue_work(system_highpri_wq, &bridge->receive);
}

void messages_init(struct bridge *bridge)
{
	mutex_init(&bridge->sending);
	INIT_WORK(&bridge->receive, receive);
}

void messages_start(struct bridge *bridge)
{
	if (!bridge->registers)
		return;
	ntb_msg_set_mask(bridge->ntb, bridge->inbits | bridge->outbits);
	/* Also what has come before. */
	queue_work(system_highpri_wq, &bridge->receive);
}

void messages_stop(struct bridge *bridge)
{
	cancel_work_sync(&bridge->receive);
	if (bridge->registers)
		ntb_msg_set_mask(bridge->ntb, bridge->inbits);
}

void messages_came(struct bridge *bridge)
{
	if (!bridge->registers)
		return;
	ntb_msg_set_mask(bridge->ntb, bridge->inbits);
	queue_work(system_highpri_wq, &bridge->receive);
}

bool messages_send(struct bridge *bridge, int peer, u32 number, u32 message)
{
	u64 failed = status_bit(bridge->outbits, number);

	lockdep_assert_held(&bridge->sending);
	ntb_msg_clear_sts(bridge->ntb, failed);
	return !ntb_peer_msg_write(bridge->ntb, peer, number, message) && !(ntb_msg_read_sts(bridge->ntb) & failed);
}

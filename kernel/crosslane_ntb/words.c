// SPDX-License-Identifier: GPL-2.0
#include "words.h"

#include "bridge.h"
#include "life.h"
#include "messages.h"
#include "port.h"

#include <linux/delay.h>
#include <linux/ntb.h>
#include <linux/string.h>

/* How often one call tries to send what is unsaid: the peer takes a message within some 0.1 ms. */
#define TRIES 32
/* How long the end of a life waits for the peer to confirm it, ms. */
#define CONFIRMED_WITHIN 100
#define TAG_BITS 10

static u16 tag_of(u16 number)
{
	return number & GENMASK(TAG_BITS - 1, 0);
}

static u32 message(u32 item, u16 number, u16 value)
{
	return item << 26 | (u32)tag_of(number) << 16 | value;
}

static u32 item_of(u32 message)
{
	return message >> 26;
}

static u16 value_of(u32 message)
{
	return message;
}

static u16 message_tag(u32 message)
{
	return tag_of(message >> 16);
}

/* The value that the peer has told in this session of its own; 0 if it has not. */
static u16 heard_in(struct port *port, u32 item, u16 session)
{
	u32 message = READ_ONCE(port->words.heard[item]);

	return message_tag(message) == tag_of(session) ? value_of(message) : 0;
}

/* A session number that the peer has told; 0 if it has not. */
static u16 heard_session(struct port *port, u32 item)
{
	u32 message = READ_ONCE(port->words.heard[item]);

	return message_tag(message) == tag_of(value_of(message)) ? value_of(message) : 0;
}

void words_hear(struct port *port, u32 message)
{
	u32 item = item_of(message);

	/* Also what a bridge reads whose link has just gone: all ones. */
	if (!item || item >= WORDS_ITEMS)
		return;
	WRITE_ONCE(port->words.heard[item], message);
	if (item != WORDS_END)
		return;
	/* Also an earlier one, if of that which has ended nothing has come. */
	WRITE_ONCE(port->words.heard[WORDS_SESSION], 0);
	/* Who sees in words_asked() that it is asked sees of what. */
	smp_store_release(&port->words.asked, true);
}

bool words_asked(struct port *port)
{
	return xchg(&port->words.asked, false);
}

static void pad_said(struct port *port, struct words_said *said)
{
	u32 word = ntb_spad_read(port->ntb, port->number);

	/* What a bridge reads whose link has just gone. */
	if (word == ~0u)
		return;
	said->session = word >> 16;
	said->accepted = word;
}

void words_said(struct port *port, struct words_said *said)
{
	*said = (struct words_said){};
	if (!life_bridge_is_up(port))
		return;
	if (!port->bridge->registers) {
		pad_said(port, said);
		return;
	}
	said->session = heard_session(port, WORDS_SESSION);
	/* Messages come in any order. */
	if (said->session == heard_session(port, WORDS_END))
		said->session = 0;
	if (said->session)
		said->accepted = heard_in(port, WORDS_ACCEPTED, said->session);
}

static u16 piece(const struct words_window *window, u32 part)
{
	return (part < 3 ? window->address : window->len) >> (WORDS_UNIT + 16 * (part % 3));
}

static u16 crc(u16 crc, u16 value)
{
	u32 bit;

	crc ^= value;
	for (bit = 0; bit < 16; bit++)
		crc = crc & 1 ? crc >> 1 ^ 0xa001 : crc >> 1;
	return crc;
}

/* Of all pieces: those of which some are missing, or of another session, have another one. */
static u16 check_of(u16 session, const struct words_window *windows)
{
	u16 check = crc(U16_MAX, session);
	u32 i;

	for (i = 0; i < WORDS_PARTS * CROSSLANE_NTB_WINDOWS; i++)
		check = crc(check, piece(&windows[i / WORDS_PARTS], i % WORDS_PARTS));
	return check;
}

static u64 heard_number(struct port *port, u32 item, u16 session)
{
	u64 low = heard_in(port, item, session), middle = heard_in(port, item + 1, session), high = heard_in(port, item + 2, session);

	return (low | middle << 16 | high << 32) << WORDS_UNIT;
}

bool words_places(struct port *port, u16 session, struct words_window *windows)
{
	u32 check = READ_ONCE(port->words.heard[WORDS_CHECK]), i;

	for (i = 0; i < CROSSLANE_NTB_WINDOWS; i++) {
		windows[i].address = heard_number(port, WORDS_WINDOWS + WORDS_PARTS * i, session);
		windows[i].len = heard_number(port, WORDS_WINDOWS + WORDS_PARTS * i + 3, session);
	}
	return check && message_tag(check) == tag_of(session) && value_of(check) == check_of(session, windows);
}

static void own_places(struct port *port, struct words_window *windows)
{
	u32 i;

	memset(windows, 0, CROSSLANE_NTB_WINDOWS * sizeof(*windows));
	for (i = 0; i < port->windows; i++)
		if (port->inbound[i].allocated)
			windows[i] = (struct words_window){ port->inbound[i].dma, port->inbound[i].len };
}

/* The message that says this item as it is now. */
static u32 message_of(struct port *port, u32 item)
{
	struct words_window windows[CROSSLANE_NTB_WINDOWS];
	u32 part = item - WORDS_WINDOWS;

	switch (item) {
	case WORDS_SESSION:
		return message(item, port->session, port->session);
	case WORDS_ACCEPTED:
		return message(item, port->session, port->accepted);
	case WORDS_END:
		return message(item, port->words.ending, port->words.ending);
	case WORDS_ENDED:
		return message(item, port->words.answer, port->words.answer);
	}
	own_places(port, windows);
	if (item == WORDS_CHECK)
		return message(item, port->session, check_of(port->session, windows));
	return message(item, port->session, piece(&windows[part / WORDS_PARTS], part % WORDS_PARTS));
}

/* Tries each register once. */
static void send_some(struct port *port)
{
	struct words *words = &port->words;
	u32 i;

	mutex_lock(&port->bridge->sending);
	for (i = 0; i < port->bridge->registers && words->unsaid; i++) {
		u32 item = __ffs64(words->unsaid);

		if (messages_send(port->bridge, port->peer, i, message_of(port, item)))
			words->unsaid &= ~BIT_ULL(item);
	}
	mutex_unlock(&port->bridge->sending);
}

/* What of a session that has ended is not settled. */
static void look_after_end(struct port *port)
{
	struct words *words = &port->words;

	if (!words->ending)
		return;
	if (!words->exposed) {
		/* That it has been told is enough. */
		if (!(words->unsaid & BIT_ULL(WORDS_END)))
			words->ending = 0;
	} else if (heard_session(port, WORDS_ENDED) == words->ending) {
		words->exposed = false;
		words->ending = 0;
		words->unsaid &= ~BIT_ULL(WORDS_END);
	} else if (!time_before(jiffies, words->told_at + msecs_to_jiffies(WORDS_AGAIN))) {
		words->told_at = jiffies;
		words->unsaid |= BIT_ULL(WORDS_END);
	}
}

/* Nothing goes over a link that is down, and what came before it went is of no use. */
static void forget(struct words *words)
{
	memset(words->heard, 0, sizeof(words->heard));
	words->unsaid = 0;
	words->ending = 0;
	words->exposed = false;
	words->told = 0;
}

bool words_deliver(struct port *port, bool answer)
{
	struct words *words = &port->words;
	u32 tries;

	if (!port->bridge->registers)
		return false;
	if (!life_bridge_is_up(port)) {
		forget(words);
		return false;
	}
	if (answer) {
		words->answer = heard_session(port, WORDS_END);
		words->unsaid |= BIT_ULL(WORDS_ENDED);
	}
	for (tries = 0; words->unsaid && tries < TRIES; tries++) {
		if (tries)
			usleep_range(50, 100);
		send_some(port);
	}
	look_after_end(port);
	return words->unsaid || words->ending;
}

bool words_exposed(struct port *port)
{
	if (!life_bridge_is_up(port))
		port->words.exposed = false;
	return port->words.exposed;
}

static void tell_pad(struct port *port, u32 word)
{
	ntb_peer_spad_write(port->ntb, port->peer, port->own_number, word);
	ntb_peer_db_set(port->ntb, port->session_bell);
}

/* The items that say where this host's memory is; of windows without memory nothing is told. */
static u64 place_items(struct port *port)
{
	u64 items = BIT_ULL(WORDS_CHECK);
	u32 i;

	for (i = 0; i < port->windows; i++)
		if (port->inbound[i].allocated)
			items |= GENMASK_ULL(WORDS_PARTS - 1, 0) << (WORDS_WINDOWS + WORDS_PARTS * i);
	return items;
}

void words_tell(struct port *port, const struct words_said *said)
{
	struct words *words = &port->words;
	u32 word = (u32)port->session << 16 | port->accepted;
	/* What is told again before all of it was told would keep the rest from registers that are slow. */
	bool again = !words->unsaid && !time_before(jiffies, words->told_at + msecs_to_jiffies(WORDS_AGAIN) / 2);

	/* Else ends that ring each other would do so without a pause. */
	if (word == words->told && said->session == words->told_to && !again)
		return;
	words->told = word;
	words->told_to = said->session;
	words->told_at = jiffies;
	if (!port->bridge->registers) {
		tell_pad(port, word);
		return;
	}
	words->unsaid &= ~BIT_ULL(WORDS_END);
	words->unsaid |= BIT_ULL(WORDS_SESSION) | BIT_ULL(WORDS_ACCEPTED);
	/* Of use to who has a session, until it has accepted this one. */
	if (port->bridge->outbound && said->session && said->accepted != port->session) {
		words->exposed = true;
		words->unsaid |= place_items(port);
	}
}

void words_end(struct port *port)
{
	struct words *words = &port->words;
	unsigned long until = jiffies + msecs_to_jiffies(CONFIRMED_WITHIN);

	words->told = 0;
	words->told_at = jiffies;
	if (!port->bridge->registers) {
		port->session = 0;
		tell_pad(port, 0);
		return;
	}
	words->ending = port->session;
	WRITE_ONCE(words->heard[WORDS_ENDED], 0);
	port->session = 0;
	words->unsaid = (words->unsaid & BIT_ULL(WORDS_ENDED)) | BIT_ULL(WORDS_END);
	/* The peer may wait for this end just as long. */
	while (words_deliver(port, words_asked(port)) && words->exposed && time_before(jiffies, until))
		usleep_range(100, 200);
}

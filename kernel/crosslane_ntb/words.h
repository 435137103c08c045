/* SPDX-License-Identifier: GPL-2.0 */
#ifndef CROSSLANE_WORDS_H
#define CROSSLANE_WORDS_H

#include "crosslane_ntb.h"

#include <linux/jiffies.h>
#include <linux/types.h>

struct port;

/* How soon an end tells again what its peer has not answered, ms. */
#define WORDS_AGAIN 20

/*
 * What ends tell each other before a life, and to end one: session words. By a scratchpad (session << 16 | the peer's session that was
 * accepted), or by messages, each of which is complete by itself and is kept until the next of its kind comes:
 *
 *   31..26  what it says, enum words_item
 *   25..16  the low bits of the number that it belongs to: the sender's session, or the one in the message
 *   15..0   the value
 *
 * So messages may come in any order, more than once and by any register, and those of two sessions do not mix. Where the bridge translates
 * outbound only, the peer has to be told where this host's memory is: place and length of each window in pieces of 16 bits, with a check
 * word over all of them. It stores there until it says that it does not any more, so the end of such a session is told until it is
 * confirmed, and the memory is kept until then.
 */
enum words_item {
	WORDS_SESSION = 1,
	WORDS_ACCEPTED,
	WORDS_END,	/* this session of the sender has ended */
	WORDS_ENDED,	/* this session of the receiver has ended here, too: nothing more is stored into its memory */
	WORDS_CHECK,	/* of all places and lengths */
	WORDS_WINDOWS = 8,	/* of window w from WORDS_WINDOWS + WORDS_PARTS * w on: place, then length, low pieces first */
};

#define WORDS_PARTS 6
#define WORDS_ITEMS (WORDS_WINDOWS + WORDS_PARTS * CROSSLANE_NTB_WINDOWS)
/* Places and lengths are told in units of so many bits, whatever a page is on either host; up to 48 bits of them. */
#define WORDS_UNIT 12

static_assert(WORDS_ITEMS <= 63);

/* Memory behind a window, as its owner tells it: an address on the owner's bus. */
struct words_window {
	u64 address, len;
};

/* What the peer has said; 0: nothing. */
struct words_said {
	u16 session, accepted;
};

/* Of a port; port->lock is held for all but the first two. */
struct words {
	u32 heard[WORDS_ITEMS];	/* the last message of each kind */
	bool asked;	/* the peer waits for WORDS_ENDED */
	u64 unsaid;	/* items that the peer's registers have not taken, one bit each */
	u16 ending;	/* own session whose end the peer has not confirmed; 0: none */
	u16 answer;	/* the peer's session that WORDS_ENDED is said of */
	bool exposed;	/* the peer may have been told where this host's memory is, and may store there */
	u32 told, told_to;	/* what was told last, and to which session */
	unsigned long told_at;	/* jiffies */
};

/* A message of the peer's has come. */
void words_hear(struct port *port, u32 message);
void words_said(struct port *port, struct words_said *said);
/* Places of all windows in that session of the peer's; false if they are not known. */
bool words_places(struct port *port, u16 session, struct words_window *windows);
/* Tells the peer of the port's session and what it has accepted: at once if that is new, else now and again. */
void words_tell(struct port *port, const struct words_said *said);
/*
 * The port's session has ended, and nothing is stored into the peer's memory any more. May wait a while until that is true of the peer,
 * too.
 */
void words_end(struct port *port);
/* Whether the peer waits to hear that its session has ended here; once. */
bool words_asked(struct port *port);
/* Sends what can be sent; `answer`: also that. Whether there is more. */
bool words_deliver(struct port *port, bool answer);
/* Whether the peer may store into this host's memory, as far as the bridge lets it. */
bool words_exposed(struct port *port);

#endif

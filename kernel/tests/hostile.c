// SPDX-License-Identifier: GPL-2.0
/*
 * A peer that tells nonsense by message registers. It is this program: stock ntb_tool has the other end of a pair, whose registers are files
 * of debugfs (see kernel/crosslane_ntb/words.h for what a message says).
 */
#include "harness.h"

#include <time.h>

#define TOOL "/sys/kernel/debug/ntb_tool/584c:00:01.0"
#define REGISTERS 4
#define WINDOWS 8
#define PARTS 6

/* Where this end's memory begins, behind two windows of the other end of 4 MB. */
#define PLACE 0x10800000UL

enum { SESSION = 1, ACCEPTED, END, ENDED, CHECK_WORD, PLACES = 8 };

static void put(const char *name, const char *text)
{
	char path[128];
	int file;

	snprintf(path, sizeof(path), "%s/%s", TOOL, name);
	file = open(path, O_WRONLY);
	CHECK(file >= 0 && write(file, text, strlen(text)) > 0);
	close(file);
}

static uint32_t got(const char *name)
{
	char path[128], text[64] = "";
	int file;

	snprintf(path, sizeof(path), "%s/%s", TOOL, name);
	file = open(path, O_RDONLY);
	CHECK(file >= 0 && read(file, text, sizeof(text) - 1) > 0);
	close(file);
	return strtoul(text, NULL, 16);
}

/* Whether the register took it; also if not, the next one may. */
static int try_to_send(unsigned number, uint32_t message)
{
	char name[32], text[32];

	snprintf(name, sizeof(name), "peer0/msg%u", number);
	snprintf(text, sizeof(text), "%#x", message);
	put("msg_sts", "c 0xf0");
	put(name, text);
	return !(got("msg_sts") & 0x10 << number);
}

static void send_message(uint32_t message)
{
	unsigned tries = 0;

	while (!try_to_send(tries % REGISTERS, message)) {
		CHECK(++tries < 100000);
		usleep(100);
	}
}

static void send_item(uint32_t item, uint16_t session, uint16_t value)
{
	send_message(item << 26 | (session & 0x3ffu) << 16 | value);
}

/* What the module tells: the last message of each kind. */
static uint32_t told[64];

static void listen_for(int ms)
{
	char name[16];
	unsigned i;

	for (; ms > 0; ms--, usleep(1000)) {
		uint32_t full = got("msg_sts") & 0xf;

		for (i = 0; i < REGISTERS; i++) {
			uint32_t message;

			snprintf(name, sizeof(name), "msg%u", i);
			message = full & 1u << i ? got(name) : 0;
			told[message >> 26] = message;
		}
		if (full)
			put("msg_sts", "c 0xf");
	}
}

/* The session that the module has accepted. */
static uint16_t accepted(void)
{
	listen_for(100);
	return told[ACCEPTED];
}

static uint16_t crc(uint16_t check, uint16_t value)
{
	int bit;

	check ^= value;
	for (bit = 0; bit < 16; bit++)
		check = check & 1 ? check >> 1 ^ 0xa001 : check >> 1;
	return check;
}

/* Tells that window 0 is `len` bytes at `address`, both of whole units of 4 KB, with a check word that is right or not. */
static void tell_place(uint16_t session, uint64_t address, uint64_t len, int right)
{
	uint64_t units[2] = { address >> 12, len >> 12 };
	uint16_t check = crc(0xffff, session);
	unsigned i;

	send_item(SESSION, session, session);
	for (i = 0; i < PARTS * WINDOWS; i++) {
		uint16_t piece = i < PARTS ? units[i / 3] >> 16 * (i % 3) : 0;

		check = crc(check, piece);
		if (i < PARTS)
			send_item(PLACES + i, session, piece);
	}
	send_item(CHECK_WORD, session, check ^ !right);
}

static void up_alone(void)
{
	a = open_device(device_a);
	CHECK(a >= 0 && !translate(a, 0, WINDOW) && !link_port(a, 1));
	put("link", "1");
	usleep(500000);
	/* Who waits for a session tells its own. */
	listen_for(200);
	CHECK((uint16_t)told[SESSION]);
}

void places_that_cannot_be_are_refused(void)
{
	up_alone();
	/* Beyond the window, shorter than the modules' own part, elsewhere, torn, all ones. */
	tell_place(11, 0x10000000, 1UL << 40, 1);
	CHECK(!accepted());
	tell_place(12, 0x10000000, PAGE, 1);
	CHECK(!accepted());
	tell_place(13, 0xfee00000, 1UL << 20, 1);
	CHECK(!accepted());
	tell_place(14, PLACE, 1UL << 20, 0);
	CHECK(!accepted());
	tell_place(15, ~0xfffUL, ~0xfffUL, 1);
	CHECK(!accepted());
	/* That it understands this peer at all: it accepts what can be, and confirms an end. */
	tell_place(16, PLACE, 1UL << 20, 1);
	CHECK(accepted() == 16);
	send_item(END, 16, 16);
	CHECK(!accepted() && (uint16_t)told[ENDED] == 16);
	CHECK(event_within(a, 0).kind == 0);
}

/* A peer that has been told where memory is may store there until it says that it does not: before that there is no other session. */
void session_that_has_ended_waits_for_the_peer(void)
{
	uint16_t session;

	up_alone();
	session = told[SESSION];
	send_item(SESSION, 21, 21);
	listen_for(200);
	CHECK(told[PLACES] && told[CHECK_WORD]);
	/* Other memory: the session ends. */
	CHECK(!translate(a, 0, WINDOW / 2));
	listen_for(300);
	CHECK((uint16_t)told[END] == session && (uint16_t)told[SESSION] == session);
	send_item(ENDED, session + 1, session + 1);
	listen_for(300);
	CHECK((uint16_t)told[SESSION] == session);
	send_item(ENDED, session, session);
	listen_for(300);
	CHECK((uint16_t)told[SESSION] != session);
}

/* As fast as they are taken, for 3 s: the port's owner is served meanwhile, and no life begins. */
void messages_without_end_keep_nobody(void)
{
	uint64_t random = 1, sent = 0, until, calls = 0;
	struct crosslane_ntb_info info;
	struct timespec now;

	up_alone();
	clock_gettime(CLOCK_MONOTONIC, &now);
	for (until = now.tv_sec + 3; (uint64_t)now.tv_sec < until; clock_gettime(CLOCK_MONOTONIC, &now)) {
		random = random * 6364136223846793005ULL + 1442695040888963407ULL;
		/* Half of them in turn what a peer may say, of a session or two. */
		if (random >> 63)
			sent += try_to_send(random >> 40 & 3, random >> 32);
		else
			sent += try_to_send(random >> 40 & 3, (1 + (random >> 50) % 55) << 26 | (random >> 49 & 1) << 16 | (random >> 49 & 1));
		if (random >> 44 & 1)
			put("msg_sts", "c 0xf");
		CHECK(!ioctl(a, CROSSLANE_NTB_INFO, &info));
		calls++;
	}
	CHECK(sent > 100 && calls > 100);
	CHECK(event_within(a, 0).kind == 0);
}

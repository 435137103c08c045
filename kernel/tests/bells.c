// SPDX-License-Identifier: GPL-2.0
/* Doorbells, scratchpads, and bells that wake sleepers of the other end. */
#include "harness.h"

#include <sys/socket.h>
#include <sys/vfs.h>

void doorbells_come_masked_and_unmasked(void)
{
	uint64_t bits = 1ul << 63 | 1, mask = 1ul << 63, none = 0;
	struct crosslane_ntb_event seen;

	CHECK(!ioctl(a, CROSSLANE_NTB_RING, &bits));
	seen = event(b);
	CHECK(seen.kind == CROSSLANE_NTB_DOORBELL && seen.doorbells == bits);
	CHECK(!ioctl(b, CROSSLANE_NTB_MASK, &mask));
	CHECK(!ioctl(a, CROSSLANE_NTB_RING, &bits));
	seen = event(b);
	CHECK(seen.kind == CROSSLANE_NTB_DOORBELL && seen.doorbells == 1);
	CHECK(!ioctl(b, CROSSLANE_NTB_MASK, &none));
	seen = event(b);
	CHECK(seen.kind == CROSSLANE_NTB_DOORBELL && seen.doorbells == mask);
}

void scratchpads_are_the_peers_to_write(void)
{
	struct crosslane_ntb_register pad = { .index = 3, .value = 0xdeadbeef }, bad = { .index = -1 };

	CHECK(!ioctl(a, CROSSLANE_NTB_WRITE_PEER_PAD, &pad));
	pad.value = 0;
	CHECK(!ioctl(b, CROSSLANE_NTB_READ_PAD, &pad) && pad.value == 0xdeadbeef);
	CHECK(ioctl(a, CROSSLANE_NTB_READ_PAD, &bad) < 0 && errno == ENXIO);
	CHECK(ioctl(a, CROSSLANE_NTB_WRITE_PEER_PAD, &bad) < 0 && errno == ENXIO);
}

static const uint64_t word = 0x0123456789abcdef;

/* Who sleeps at B: its socket, one that is connected to it, and the waker that was made of that. */
struct sleeper {
	int own, connected;
	struct crosslane_ntb_waker waker;
};

/* Whether a sleeper is woken within `ms`, by the right datagram; it is not any more behind this. */
static int woken(const struct sleeper *sleeper, int ms)
{
	static const unsigned char right[16] = { 0, 0, 0, 0, 0, 0, 0, 0, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef };
	struct pollfd readable = { .fd = sleeper->own, .events = POLLIN };
	unsigned char got[32];
	int count = 0;

	if (poll(&readable, 1, ms) != 1)
		return 0;
	while (recv(sleeper->own, got, sizeof(got), MSG_DONTWAIT) == sizeof(right)) {
		CHECK(!memcmp(got, right, sizeof(right)));
		count++;
	}
	return count > 0;
}

/* A sleeper at B, and a bell for it at A. */
static struct sleeper sleep_at_b(int *bell)
{
	int pair[2];
	struct sleeper sleeper;

	CHECK(!socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
	sleeper = (struct sleeper){ .own = pair[0], .connected = pair[1], .waker = { .socket = pair[1], .word = word } };
	CHECK(!ioctl(b, CROSSLANE_NTB_WAKER, &sleeper.waker));
	*bell = ioctl(a, CROSSLANE_NTB_BELL, &sleeper.waker.handle);
	CHECK(*bell >= 0);
	return sleeper;
}

void bell_wakes_its_sleeper_and_nobody_else(void)
{
	int first_bell, second_bell, status;
	struct sleeper first = sleep_at_b(&first_bell), second = sleep_at_b(&second_bell);
	struct statfs is;
	pid_t child;

	CHECK(write(first_bell, "", 1) == 1);
	CHECK(woken(&first, 2000) && !woken(&second, 50));
	/* By another process of another user, and without the socket, which the module has. */
	close(second.connected);
	child = fork();
	if (!child)
		_exit(setuid(65534) || write(second_bell, "", 1) != 1);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(woken(&second, 2000) && !woken(&first, 50));
	/* What a program knows a bell by. */
	CHECK(!fstatfs(first_bell, &is) && is.f_type == CROSSLANE_NTB_SEGMENT_MAGIC);
	CHECK(read(first_bell, &is, 1) < 0 && mmap(0, PAGE, PROT_WRITE, MAP_SHARED, first_bell, 0) == MAP_FAILED);
}

void bell_of_a_waker_that_was_dropped_wakes_nobody(void)
{
	int old_bell, bell, i;
	struct sleeper old = sleep_at_b(&old_bell), next;
	uint32_t guesses[] = { 0, 1, 65535, 65536, 1u << 31, ~0u };

	CHECK(!ioctl(b, CROSSLANE_NTB_DROP_WAKER, &old.waker.handle));
	CHECK(ioctl(b, CROSSLANE_NTB_DROP_WAKER, &old.waker.handle) < 0 && errno == ENOENT);
	next = sleep_at_b(&bell);
	CHECK(next.waker.handle != old.waker.handle);
	CHECK(write(old_bell, "", 1) == 1);
	for (i = 0; i < 6; i++) {
		int guess = guesses[i] == next.waker.handle ? -1 : ioctl(a, CROSSLANE_NTB_BELL, &guesses[i]);

		CHECK(guess < 0 || write(guess, "", 1) == 1);
	}
	CHECK(!woken(&next, 100) && !woken(&old, 0));
	CHECK(write(bell, "", 1) == 1 && woken(&next, 2000));
}

/* What the module would have to wait for, or reach others by. */
void waker_of_anything_but_a_local_datagram_socket_is_refused(void)
{
	int stream[2], others[] = { 0, eventfd(0, 0), socket(AF_INET, SOCK_DGRAM, 0), open("/dev/null", O_WRONLY), a, -1 };
	struct crosslane_ntb_waker waker = { .word = word };
	unsigned i;

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, stream));
	others[0] = stream[0];
	for (i = 0; i < sizeof(others) / sizeof(*others); i++) {
		waker.socket = others[i];
		CHECK(ioctl(b, CROSSLANE_NTB_WAKER, &waker) < 0 && (errno == EINVAL || errno == EBADF));
	}
}

/* One that is not connected, one whose sleeper has gone, and one whose sleeper reads nothing: the others are woken all the same. */
void sleeper_that_cannot_be_woken_keeps_nobody(void)
{
	int bell, gone_bell, full_bell, lonely_bell, i;
	struct sleeper lonely = { .waker = { .socket = socket(AF_UNIX, SOCK_DGRAM, 0), .word = word } };
	struct sleeper sleeper = sleep_at_b(&bell), gone = sleep_at_b(&gone_bell), full = sleep_at_b(&full_bell);

	CHECK(!ioctl(b, CROSSLANE_NTB_WAKER, &lonely.waker));
	lonely_bell = ioctl(a, CROSSLANE_NTB_BELL, &lonely.waker.handle);
	close(gone.own);
	for (i = 0; i < 300; i++)
		CHECK(write(full_bell, "", 1) == 1);
	CHECK(write(gone_bell, "", 1) == 1 && write(lonely_bell, "", 1) == 1);
	CHECK(write(bell, "", 1) == 1 && woken(&sleeper, 2000));
	CHECK(woken(&full, 2000));
}

/* More at once than the queue between the modules holds: each sleeper is woken, some perhaps once too often. */
void flood_of_bells_loses_none(void)
{
	struct sleeper sleepers[64];
	int bells[64], i, round;

	for (i = 0; i < 64; i++)
		sleepers[i] = sleep_at_b(&bells[i]);
	for (round = 0; round < 500; round++)
		for (i = 0; i < 64; i++)
			CHECK(write(bells[i], "", 1) == 1);
	for (i = 0; i < 64; i++)
		CHECK(woken(&sleepers[i], 2000));
	usleep(200000);
	for (i = 0; i < 64; i++)
		woken(&sleepers[i], 0);
	for (i = 0; i < 64; i++) {
		CHECK(write(bells[i], "", 1) == 1);
		CHECK(woken(&sleepers[i], 2000));
	}
}

void bells_end_with_the_links_life(void)
{
	struct sleeper old;
	int bell;

	old = sleep_at_b(&bell);
	CHECK(!link_port(b, 0) && event(a).kind == CROSSLANE_NTB_LINK_DOWN && event(b).kind == CROSSLANE_NTB_LINK_DOWN);
	CHECK(write(bell, "", 1) < 0 && errno == ENOTCONN);
	CHECK(!link_port(b, 1) && event(a).kind == CROSSLANE_NTB_LINK_UP && event(b).kind == CROSSLANE_NTB_LINK_UP);
	CHECK(write(bell, "", 1) < 0 && errno == ENOTCONN);
	CHECK(!woken(&old, 50));
}

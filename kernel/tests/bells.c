// SPDX-License-Identifier: GPL-2.0
/* Doorbells, scratchpads, and bells that wake sleepers of the other end. */
#include "harness.h"

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

/* Whether an eventfd is signalled within `ms`; it is not any more behind this. */
static int woken(int eventfd, int ms)
{
	struct pollfd readable = { .fd = eventfd, .events = POLLIN };
	uint64_t count;

	return poll(&readable, 1, ms) == 1 && read(eventfd, &count, sizeof(count)) == sizeof(count);
}

/* A waker at B, and a bell for it at A. */
static struct crosslane_ntb_waker waker(int *bell)
{
	struct crosslane_ntb_waker waker = { .eventfd = eventfd(0, EFD_NONBLOCK) };

	CHECK(waker.eventfd >= 0 && !ioctl(b, CROSSLANE_NTB_WAKER, &waker));
	*bell = ioctl(a, CROSSLANE_NTB_BELL, &waker.handle);
	CHECK(*bell >= 0);
	return waker;
}

void bell_wakes_its_sleeper_and_nobody_else(void)
{
	int first_bell, second_bell, status;
	struct crosslane_ntb_waker first = waker(&first_bell), second = waker(&second_bell);
	pid_t child;

	CHECK(write(first_bell, "", 1) == 1);
	CHECK(woken(first.eventfd, 2000) && !woken(second.eventfd, 50));
	/* By another process of another user. */
	child = fork();
	if (!child)
		_exit(setuid(65534) || write(second_bell, "", 1) != 1);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(woken(second.eventfd, 2000) && !woken(first.eventfd, 50));
}

void bell_of_a_waker_that_was_dropped_wakes_nobody(void)
{
	int old_bell, bell, i;
	struct crosslane_ntb_waker old = waker(&old_bell), next;
	uint32_t guesses[] = { 0, 1, 65535, 65536, 1u << 31, ~0u };

	CHECK(!ioctl(b, CROSSLANE_NTB_DROP_WAKER, &old.handle));
	CHECK(ioctl(b, CROSSLANE_NTB_DROP_WAKER, &old.handle) < 0 && errno == ENOENT);
	next = waker(&bell);
	CHECK(next.handle != old.handle);
	CHECK(write(old_bell, "", 1) == 1);
	for (i = 0; i < 6; i++) {
		int guess = guesses[i] == next.handle ? -1 : ioctl(a, CROSSLANE_NTB_BELL, &guesses[i]);

		CHECK(guess < 0 || write(guess, "", 1) == 1);
	}
	CHECK(!woken(next.eventfd, 100) && !woken(old.eventfd, 0));
	CHECK(write(bell, "", 1) == 1 && woken(next.eventfd, 2000));
	old.eventfd = 0;
	CHECK(ioctl(b, CROSSLANE_NTB_WAKER, &old) < 0 && errno == EINVAL);
}

/* More at once than the queue between the modules holds: each sleeper is woken, some perhaps once too often. */
void flood_of_bells_loses_none(void)
{
	struct crosslane_ntb_waker wakers[64];
	int bells[64], i, round;

	for (i = 0; i < 64; i++)
		wakers[i] = waker(&bells[i]);
	for (round = 0; round < 500; round++)
		for (i = 0; i < 64; i++)
			CHECK(write(bells[i], "", 1) == 1);
	for (i = 0; i < 64; i++)
		CHECK(woken(wakers[i].eventfd, 2000));
	usleep(200000);
	for (i = 0; i < 64; i++)
		woken(wakers[i].eventfd, 0);
	for (i = 0; i < 64; i++) {
		CHECK(write(bells[i], "", 1) == 1);
		CHECK(woken(wakers[i].eventfd, 2000));
	}
}

void bells_end_with_the_links_life(void)
{
	struct crosslane_ntb_waker old;
	int bell;

	old = waker(&bell);
	CHECK(!link_port(b, 0) && event(a).kind == CROSSLANE_NTB_LINK_DOWN && event(b).kind == CROSSLANE_NTB_LINK_DOWN);
	CHECK(write(bell, "", 1) < 0 && errno == ENOTCONN);
	CHECK(!link_port(b, 1) && event(a).kind == CROSSLANE_NTB_LINK_UP && event(b).kind == CROSSLANE_NTB_LINK_UP);
	CHECK(write(bell, "", 1) < 0 && errno == ENOTCONN);
	CHECK(!woken(old.eventfd, 50));
}

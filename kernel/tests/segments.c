// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of crosslane_ntb: what a descriptor of a carved range lets its holder do, and that it ends when it is taken back.
 *
 *   segments          on a pair of bridges in one kernel, both ends in this program
 *   segments first    on one end of a cable to another machine, where `segments second` runs
 *
 * Prints a line for each test, `ok NAME` or `FAILED NAME: why`; exit status 1 if one failed.
 */
#define _GNU_SOURCE
#include "crosslane_ntb.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096UL
#define WINDOW (1UL << 19)

static const char *test;
static int failures, any_failed;
static jmp_buf failed;

#define CHECK(what)                                                                           \
	do {                                                                                  \
		if (!(what)) {                                                                \
			printf("FAILED %s: line %d: %s (errno %d)\n", test, __LINE__, #what, errno); \
			failures++;                                                           \
			longjmp(failed, 1);                                                   \
		}                                                                             \
	} while (0)

static int a = -1, b = -1;

/* The next event of a port; its kind 0 if there is none within `ms`. */
static struct crosslane_ntb_event event_within(int port, int ms)
{
	struct pollfd readable = { .fd = port, .events = POLLIN };
	struct crosslane_ntb_event event = { 0 };

	if (poll(&readable, 1, ms) == 1 && read(port, &event, sizeof(event)) != sizeof(event))
		event.kind = 0;
	return event;
}

static struct crosslane_ntb_event event(int port)
{
	return event_within(port, 2000);
}

static int link_port(int port, uint32_t on)
{
	return ioctl(port, CROSSLANE_NTB_LINK, &on);
}

static int translate(int port, uint32_t window, uint64_t len)
{
	struct crosslane_ntb_translate to = { .window = window, .len = len };

	return ioctl(port, CROSSLANE_NTB_TRANSLATE, &to);
}

static int carve(int port, uint32_t side, uint64_t offset, uint64_t len)
{
	struct crosslane_ntb_range range = { .side = side, .offset = offset, .len = len };

	return ioctl(port, CROSSLANE_NTB_CARVE, &range);
}

static int take_back(int port, uint32_t side, uint64_t offset, uint64_t len)
{
	struct crosslane_ntb_range range = { .side = side, .offset = offset, .len = len };

	return ioctl(port, CROSSLANE_NTB_TAKE_BACK, &range);
}

static volatile uint64_t *map(int segment, uint64_t len)
{
	return mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, segment, 0);
}

/* Opens both ends, brings the link up and gives each end's window 0 memory. */
static void up(void)
{
	a = open("/dev/crosslane0", O_RDWR | O_CLOEXEC);
	b = open("/dev/crosslane1", O_RDWR | O_CLOEXEC);
	CHECK(a >= 0 && b >= 0);
	CHECK(!translate(a, 0, WINDOW) && !translate(b, 0, WINDOW));
	CHECK(!link_port(a, 1) && !link_port(b, 1));
	CHECK(event(a).kind == CROSSLANE_NTB_LINK_UP && event(b).kind == CROSSLANE_NTB_LINK_UP);
}

static void down(void)
{
	close(a);
	close(b);
	a = b = -1;
}

/* Both views of one range: what A stores through its window is loaded from B's memory. */
struct views {
	int out_fd, in_fd;
	volatile uint64_t *out, *in;
};

static struct views carve_both(uint64_t offset, uint64_t len)
{
	struct views views = {
		.out_fd = carve(a, CROSSLANE_NTB_OUTBOUND, offset, len),
		.in_fd = carve(b, CROSSLANE_NTB_INBOUND, offset, len),
	};

	CHECK(views.out_fd >= 0 && views.in_fd >= 0);
	views.out = map(views.out_fd, len);
	views.in = map(views.in_fd, len);
	CHECK(views.out != MAP_FAILED && views.in != MAP_FAILED);
	return views;
}

static void stores_through_a_segment_arrive(void)
{
	struct views views = carve_both(16 * PAGE, 4 * PAGE);
	unsigned i;

	for (i = 0; i < 4 * PAGE / 8; i++)
		CHECK(views.in[i] == 0);
	for (i = 0; i < 4 * PAGE / 8; i++)
		views.out[i] = i + 1;
	__builtin_ia32_sfence();
	for (i = 0; i < 4 * PAGE / 8; i++)
		CHECK(views.in[i] == i + 1);
}

static void segment_in_another_process_arrives(void)
{
	struct views views = carve_both(0, PAGE);
	int status;
	pid_t child = fork();

	if (!child) {
		volatile uint64_t *own = map(views.out_fd, PAGE);

		/* By the inherited mapping, and by one of its own as another user. */
		views.out[0] = 7;
		if (setuid(65534) || own == MAP_FAILED || (own = map(views.out_fd, PAGE)) == MAP_FAILED)
			_exit(1);
		own[1] = 8;
		__builtin_ia32_sfence();
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(views.in[0] == 7 && views.in[1] == 8);
}

static void mapping_reaches_nothing_beyond_its_range(void)
{
	int segment = carve(a, CROSSLANE_NTB_OUTBOUND, 8 * PAGE, 2 * PAGE);
	void *whole;

	CHECK(segment >= 0);
	CHECK(mmap(NULL, 3 * PAGE, PROT_WRITE, MAP_SHARED, segment, 0) == MAP_FAILED && errno == ENXIO);
	CHECK(mmap(NULL, 2 * PAGE, PROT_WRITE, MAP_SHARED, segment, PAGE) == MAP_FAILED && errno == ENXIO);
	CHECK(mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, segment, 2 * PAGE) == MAP_FAILED && errno == ENXIO);
	CHECK(mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, segment, -PAGE) == MAP_FAILED);
	CHECK(mmap(NULL, PAGE, PROT_WRITE, MAP_PRIVATE, segment, 0) == MAP_FAILED);
	CHECK(mmap(NULL, PAGE, PROT_EXEC, MAP_SHARED, segment, 0) == MAP_FAILED);
	whole = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, segment, 0);
	CHECK(whole != MAP_FAILED);
	CHECK(mremap(whole, 2 * PAGE, 3 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED);
	CHECK(mprotect(whole, PAGE, PROT_EXEC | PROT_READ));
	CHECK(ftruncate(segment, 4 * PAGE) && write(segment, "x", 1) < 0 && read(segment, &whole, 1) < 0);
}

static void range_that_was_taken_back_is_the_holders_own(void)
{
	struct views views = carve_both(4 * PAGE, 2 * PAGE);
	struct views next;

	views.out[0] = 1;
	__builtin_ia32_sfence();
	CHECK(views.in[0] == 1);
	CHECK(!take_back(a, CROSSLANE_NTB_OUTBOUND, 4 * PAGE, 2 * PAGE));
	CHECK(views.out[0] == 0 && views.out[PAGE / 8] == 0);
	views.out[0] = 2;
	CHECK(views.out[0] == 2 && views.in[0] == 1);
	CHECK(!take_back(b, CROSSLANE_NTB_INBOUND, 4 * PAGE, 2 * PAGE));
	CHECK(views.in[0] == 0);
	/* Who has the range next and who had it do not see each other. */
	next = carve_both(4 * PAGE, 2 * PAGE);
	CHECK(next.in[0] == 0);
	next.out[0] = 3;
	views.out[0] = 4;
	views.in[0] = 5;
	__builtin_ia32_sfence();
	CHECK(next.in[0] == 3 && views.out[0] == 4 && views.in[0] == 5);
	/* A new mapping of the old descriptor is its own, too. */
	CHECK(map(views.out_fd, PAGE)[0] == 0);
	CHECK(take_back(a, CROSSLANE_NTB_OUTBOUND, 4 * PAGE, PAGE) && errno == ENOENT);
}

/* Loads and stores without end through a segment that is taken back meanwhile: no signal, and nothing arrives behind it. */
static void taking_back_beside_stores_signals_nobody(void)
{
	int round, status;

	for (round = 0; round < 50; round++) {
		struct views views = carve_both(0, 8 * PAGE);
		pid_t child = fork();
		uint64_t at[8];
		int i;

		if (!child) {
			uint64_t number = 1;

			alarm(20);
			for (;; number++)
				for (i = 0; i < 8; i++)
					views.out[i * PAGE / 8] = number;
		}
		while (!views.in[0])
			;
		usleep(random() % 3000);
		CHECK(!take_back(a, CROSSLANE_NTB_OUTBOUND, 0, 8 * PAGE));
		__builtin_ia32_sfence();
		for (i = 0; i < 8; i++)
			at[i] = views.in[i * PAGE / 8];
		usleep(2000);
		for (i = 0; i < 8; i++)
			CHECK(views.in[i * PAGE / 8] == at[i]);
		CHECK(waitpid(child, &status, WNOHANG) == 0);
		kill(child, SIGKILL);
		CHECK(waitpid(child, &status, 0) == child && WTERMSIG(status) == SIGKILL);
		CHECK(!take_back(b, CROSSLANE_NTB_INBOUND, 0, 8 * PAGE));
		munmap((void *)views.out, 8 * PAGE);
		munmap((void *)views.in, 8 * PAGE);
		close(views.out_fd);
		close(views.in_fd);
	}
}

static void segments_end_with_the_links_life(void)
{
	struct views views = carve_both(0, PAGE);
	struct crosslane_ntb_event seen;
	struct views next;
	uint64_t life;

	views.out[0] = 1;
	__builtin_ia32_sfence();
	CHECK(views.in[0] == 1);
	CHECK(!link_port(b, 0));
	seen = event(a);
	CHECK(seen.kind == CROSSLANE_NTB_LINK_DOWN);
	life = seen.life;
	CHECK(event(b).kind == CROSSLANE_NTB_LINK_DOWN);
	usleep(50000);
	/* What had arrived is there for who reads it late; what is stored from now on arrives nowhere. */
	CHECK(views.out[0] == 0 && views.in[0] == 1);
	CHECK(carve(a, CROSSLANE_NTB_OUTBOUND, 0, PAGE) < 0 && errno == ENOTCONN);
	CHECK(!link_port(b, 1));
	seen = event(a);
	CHECK(seen.kind == CROSSLANE_NTB_LINK_UP && seen.life == life + 1);
	CHECK(event(b).kind == CROSSLANE_NTB_LINK_UP);
	views.out[0] = 2;
	next = carve_both(0, PAGE);
	CHECK(next.in[0] == 0);
	next.out[0] = 3;
	__builtin_ia32_sfence();
	CHECK(next.in[0] == 3 && views.in[0] == 1 && views.out[0] == 2);
}

static void segments_end_with_their_owner(void)
{
	struct views views = carve_both(0, PAGE);

	views.out[0] = 1;
	__builtin_ia32_sfence();
	CHECK(views.in[0] == 1);
	close(a);
	CHECK(views.out[0] == 0);
	views.out[0] = 2;
	CHECK(views.in[0] == 1);
	CHECK(event(b).kind == CROSSLANE_NTB_LINK_DOWN);
	a = open("/dev/crosslane0", O_RDWR);
	CHECK(a >= 0);
}

static void owner_that_is_killed_leaves_nothing(void)
{
	struct crosslane_ntb_info info;
	volatile uint64_t *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status;
	pid_t child;

	down();
	child = fork();
	if (!child) {
		if (setjmp(failed))
			_exit(1);
		up();
		carve_both(0, 16 * PAGE).out[0] = 1;
		shared[0] = 1;
		pause();
	}
	while (!shared[0] && !waitpid(child, &status, WNOHANG))
		usleep(1000);
	CHECK(shared[0]);
	kill(child, SIGKILL);
	CHECK(waitpid(child, &status, 0) == child);
	up();
	CHECK(!ioctl(a, CROSSLANE_NTB_INFO, &info) && info.window[1].inbound_len == 0);
	carve_both(0, 16 * PAGE);
}

static void one_process_owns_a_port(void)
{
	CHECK(open("/dev/crosslane0", O_RDWR) < 0 && errno == EBUSY);
}

static void ranges_of_one_side_do_not_overlap(void)
{
	CHECK(carve(a, CROSSLANE_NTB_OUTBOUND, 2 * PAGE, 2 * PAGE) >= 0);
	CHECK(carve(a, CROSSLANE_NTB_OUTBOUND, 3 * PAGE, PAGE) < 0 && errno == EEXIST);
	CHECK(carve(a, CROSSLANE_NTB_OUTBOUND, PAGE, 4 * PAGE) < 0 && errno == EEXIST);
	CHECK(carve(a, CROSSLANE_NTB_OUTBOUND, PAGE, PAGE) >= 0 && carve(a, CROSSLANE_NTB_OUTBOUND, 4 * PAGE, PAGE) >= 0);
	CHECK(carve(a, CROSSLANE_NTB_INBOUND, 2 * PAGE, 2 * PAGE) >= 0);
}

static void bad_ranges_are_refused(void)
{
	static const uint64_t bad[][2] = {
		{ 0, 0 }, { 1, PAGE }, { 0, PAGE + 1 }, { WINDOW, PAGE }, { 0, -PAGE }, { -PAGE, 2 * PAGE }, { PAGE, -PAGE },
		{ WINDOW - PAGE, 2 * PAGE },
	};
	struct crosslane_ntb_range range = { .window = 99, .len = PAGE };
	unsigned i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK(carve(b, CROSSLANE_NTB_INBOUND, bad[i][0], bad[i][1]) < 0 && errno == EINVAL);
	CHECK(ioctl(a, CROSSLANE_NTB_CARVE, &range) < 0 && errno == ENXIO);
	CHECK(carve(a, 2, 0, PAGE) < 0 && errno == ENXIO);
	CHECK(carve(a, CROSSLANE_NTB_OUTBOUND, 1UL << 40, PAGE) < 0 && errno == EINVAL);
	CHECK(ioctl(a, CROSSLANE_NTB_CARVE, NULL) < 0 && errno == EFAULT);
	CHECK(ioctl(a, _IOWR(CROSSLANE_NTB_IOC, 3, char[4000]), &range) < 0 && errno == ENOTTY);
	CHECK(ioctl(a, _IO(CROSSLANE_NTB_IOC, 200), &range) < 0 && errno == ENOTTY);
}

static void memory_in_use_is_not_taken_away(void)
{
	struct crosslane_ntb_range range = { .window = 1, .side = CROSSLANE_NTB_INBOUND, .len = PAGE };

	/* The modules' own part of window 0 is in use while the link is up. */
	CHECK(translate(a, 0, 0) < 0 && errno == EBUSY);
	CHECK(!translate(a, 1, WINDOW));
	CHECK(ioctl(a, CROSSLANE_NTB_CARVE, &range) >= 0);
	CHECK(translate(a, 1, 0) < 0 && errno == EBUSY);
	CHECK(!ioctl(a, CROSSLANE_NTB_TAKE_BACK, &range));
	CHECK(!translate(a, 1, 0));
	CHECK(ioctl(a, CROSSLANE_NTB_CARVE, &range) < 0 && errno == EINVAL);
	CHECK(translate(a, 1, 1UL << 40) < 0 && errno == EINVAL);
	CHECK(translate(a, 1, -PAGE) < 0 && errno == EINVAL);
	CHECK(translate(a, 1, PAGE + 1) < 0 && errno == EINVAL);
	CHECK(translate(a, 77, PAGE) < 0 && errno == ENXIO);
}

/* Nobody keeps a page of a window by pinning it. */
static void pages_cannot_be_pinned(void)
{
	struct views views = carve_both(0, PAGE);
	struct iovec piece = { .iov_base = (void *)views.out, .iov_len = PAGE };
	int ends[2];

	CHECK(!pipe(ends));
	views.out[0] = 1;
	CHECK(vmsplice(ends[1], &piece, 1, 0) < 0 && errno == EFAULT);
}

static void doorbells_come_masked_and_unmasked(void)
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

static void scratchpads_are_the_peers_to_write(void)
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

static void bell_wakes_its_sleeper_and_nobody_else(void)
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

static void bell_of_a_waker_that_was_dropped_wakes_nobody(void)
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
static void flood_of_bells_loses_none(void)
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

static void bells_end_with_the_links_life(void)
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

/* Waits until the peer has rung this bit; bells that came together are one event. */
static void wait_for_bell(uint64_t bit)
{
	static uint64_t rung;

	while (!(rung & bit)) {
		struct crosslane_ntb_event seen = event_within(a, 30000);

		CHECK(seen.kind == CROSSLANE_NTB_DOORBELL);
		rung |= seen.doorbells;
	}
}

/* What each end of a cable between two machines does; the first ends before the second. */
static void cable_end(int first)
{
	struct crosslane_ntb_register pad = { .index = 0, .value = 0x600d };
	struct views views;
	uint64_t stored = 1, compared = 2;
	unsigned i, patience;

	a = b = open("/dev/crosslane0", O_RDWR | O_CLOEXEC);
	CHECK(a >= 0 && !translate(a, 0, WINDOW) && !link_port(a, 1));
	CHECK(event_within(a, 30000).kind == CROSSLANE_NTB_LINK_UP);
	views = carve_both(PAGE, 16 * PAGE);
	/* The peer stores when it knows that there is memory. */
	CHECK(!ioctl(a, CROSSLANE_NTB_WRITE_PEER_PAD, &pad));
	for (patience = 3000, pad.value = 0; pad.value != 0x600d; patience--) {
		CHECK(patience && !ioctl(a, CROSSLANE_NTB_READ_PAD, &pad));
		usleep(10000);
	}
	for (i = 0; i < 16 * PAGE / 8; i++)
		views.out[i] = i * 3 + 1;
	__builtin_ia32_sfence();
	CHECK(!ioctl(a, CROSSLANE_NTB_RING, &stored));
	wait_for_bell(stored);
	for (i = 0; i < 16 * PAGE / 8; i++)
		CHECK(views.in[i] == i * 3 + 1);
	CHECK(!ioctl(a, CROSSLANE_NTB_RING, &compared));
	wait_for_bell(compared);
	if (first)
		return;
	CHECK(event_within(a, 30000).kind == CROSSLANE_NTB_LINK_DOWN);
	usleep(50000);
	CHECK(views.out[0] == 0 && views.in[0] == 1);
}

static void stores_and_bells_reach_another_machine(void)
{
	cable_end(1);
}

static void segments_end_when_the_other_machine_leaves(void)
{
	cable_end(0);
}

#define TEST(name) { #name, name }
struct test {
	const char *name;
	void (*run)(void);
};

static const struct test alone[] = {
	TEST(stores_through_a_segment_arrive),
	TEST(segment_in_another_process_arrives),
	TEST(mapping_reaches_nothing_beyond_its_range),
	TEST(range_that_was_taken_back_is_the_holders_own),
	TEST(taking_back_beside_stores_signals_nobody),
	TEST(segments_end_with_the_links_life),
	TEST(segments_end_with_their_owner),
	TEST(owner_that_is_killed_leaves_nothing),
	TEST(one_process_owns_a_port),
	TEST(ranges_of_one_side_do_not_overlap),
	TEST(bad_ranges_are_refused),
	TEST(memory_in_use_is_not_taken_away),
	TEST(pages_cannot_be_pinned),
	TEST(doorbells_come_masked_and_unmasked),
	TEST(scratchpads_are_the_peers_to_write),
	TEST(bell_wakes_its_sleeper_and_nobody_else),
	TEST(bell_of_a_waker_that_was_dropped_wakes_nobody),
	TEST(flood_of_bells_loses_none),
	TEST(bells_end_with_the_links_life),
};

static const struct test first[] = { TEST(stores_and_bells_reach_another_machine) };
static const struct test second[] = { TEST(segments_end_when_the_other_machine_leaves) };

/* One test in a process of its own, whose end gives everything back. */
static void run_child(const struct test *one, int opens)
{
	test = one->name;
	alarm(120);
	if (!setjmp(failed)) {
		if (opens)
			up();
		one->run();
		printf("ok %s\n", test);
	}
	_exit(failures != 0);
}

static void run(const struct test *tests, unsigned count, int opens)
{
	for (; count; count--, tests++) {
		int status;
		pid_t child = fork();

		if (!child)
			run_child(tests, opens);
		if (waitpid(child, &status, 0) != child || (status && !WIFEXITED(status)))
			printf("FAILED %s: status %#x\n", tests->name, status);
		any_failed |= status != 0;
	}
}

#define RUN(tests, opens) run(tests, sizeof(tests) / sizeof(tests[0]), opens)

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 1 && !strcmp(argv[1], "first"))
		RUN(first, 0);
	else if (argc > 1)
		RUN(second, 0);
	else
		RUN(alone, 1);
	return any_failed;
}

// SPDX-License-Identifier: GPL-2.0
/*
 * Three ends in one kernel, each joined with each other: end e has the devices 2 e and 2 e + 1, which lead to its peers in the order of
 * their numbers.
 */
#include "harness.h"

#define DEVICES 6
#define MARK 0x1000UL

/* The other end of each device's cable. */
static const int other[DEVICES] = { 2, 4, 0, 5, 1, 3 };
static int device[DEVICES];

static int open_number(int number)
{
	char name[32];

	snprintf(name, sizeof(name), "/dev/crosslane%d", number);
	return open_device(name);
}

static void prepare(int number)
{
	device[number] = open_number(number);
	CHECK(device[number] >= 0 && !translate(device[number], 0, WINDOW) && !link_port(device[number], 1));
}

static void all_up(void)
{
	int i;

	for (i = 0; i < DEVICES; i++)
		prepare(i);
	for (i = 0; i < DEVICES; i++)
		CHECK(event(device[i]).kind == CROSSLANE_NTB_LINK_UP);
}

/* One page of each device's window and memory. */
struct page {
	volatile uint64_t *out, *in;
};

static struct page carve_page(int number)
{
	struct page page = {
		.out = map(carve(device[number], CROSSLANE_NTB_OUTBOUND, 0, PAGE), PAGE),
		.in = map(carve(device[number], CROSSLANE_NTB_INBOUND, 0, PAGE), PAGE),
	};

	CHECK(page.out != MAP_FAILED && page.in != MAP_FAILED);
	return page;
}

/* A store by one device arrives at its cable's other end. */
static void check_way(struct page *page, int number, uint64_t value)
{
	page[number].out[1] = value;
	__builtin_ia32_sfence();
	CHECK(page[other[number]].in[1] == value);
}

void each_device_leads_to_one_peer(void)
{
	struct crosslane_ntb_range beyond = { .side = CROSSLANE_NTB_OUTBOUND, .len = PAGE };
	struct crosslane_ntb_info info;
	int i;

	all_up();
	for (i = 0; i < DEVICES; i++) {
		CHECK(!ioctl(device[i], CROSSLANE_NTB_INFO, &info));
		CHECK(info.port == i / 2 && info.peer_port == other[i] / 2);
		/* The bridge has more, of which half are the other peer's. */
		beyond.window = info.windows;
		CHECK(info.windows >= 1 && ioctl(device[i], CROSSLANE_NTB_CARVE, &beyond) < 0 && errno == ENXIO);
	}
}

void stores_reach_that_peer_and_no_other(void)
{
	struct page page[DEVICES];
	unsigned i, j;

	all_up();
	for (i = 0; i < DEVICES; i++)
		page[i] = carve_page(i);
	for (i = 0; i < DEVICES; i++)
		page[i].out[0] = MARK + i;
	__builtin_ia32_sfence();
	for (i = 0; i < DEVICES; i++)
		for (j = 0; j < PAGE / 8; j++)
			CHECK(page[i].in[j] == (j ? 0 : MARK + other[i]));
}

/* No event comes for devices that are not of the cable of `number`. */
static void check_others_are_quiet(int number)
{
	int i;

	for (i = 0; i < DEVICES; i++)
		if (i != number && i != other[number])
			CHECK(event_within(device[i], 0).kind == 0);
}

/* A cable's life ends at one end, and another begins: the four other devices see nothing of it, and their ways stay. */
void life_of_one_peer_ends_alone(void)
{
	struct page page[DEVICES];
	int number, i;

	all_up();
	for (i = 0; i < DEVICES; i++)
		page[i] = carve_page(i);
	for (number = 0; number < DEVICES; number++) {
		CHECK(!link_port(device[number], 0));
		CHECK(event(device[number]).kind == CROSSLANE_NTB_LINK_DOWN);
		CHECK(event(device[other[number]]).kind == CROSSLANE_NTB_LINK_DOWN);
		for (i = 0; i < DEVICES; i++)
			if (i != number && i != other[number])
				check_way(page, i, 100 * number + i);
		CHECK(!link_port(device[number], 1));
		CHECK(event(device[number]).kind == CROSSLANE_NTB_LINK_UP);
		CHECK(event(device[other[number]]).kind == CROSSLANE_NTB_LINK_UP);
		check_others_are_quiet(number);
		page[number] = carve_page(number);
		page[other[number]] = carve_page(other[number]);
		check_way(page, number, 1);
		check_way(page, other[number], 2);
	}
}

void bells_ring_at_one_peer(void)
{
	struct crosslane_ntb_event seen;
	uint64_t bits;
	int i;

	all_up();
	for (i = 0; i < DEVICES; i++) {
		bits = 1ul << i | 1ul << 63;
		CHECK(!ioctl(device[i], CROSSLANE_NTB_RING, &bits));
		seen = event(device[other[i]]);
		CHECK(seen.kind == CROSSLANE_NTB_DOORBELL && seen.doorbells == bits);
	}
	usleep(50000);
	for (i = 0; i < DEVICES; i++)
		CHECK(event_within(device[i], 0).kind == 0);
}

void owner_of_one_peer_that_is_killed_leaves_the_others(void)
{
	volatile uint64_t *ready = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct page page[DEVICES];
	int i, status;
	pid_t child = fork();

	if (!child) {
		if (setjmp(failed))
			_exit(1);
		prepare(0);
		CHECK(event(device[0]).kind == CROSSLANE_NTB_LINK_UP);
		carve_page(0).out[0] = 1;
		ready[0] = 1;
		pause();
	}
	for (i = 1; i < DEVICES; i++)
		prepare(i);
	for (i = 1; i < DEVICES; i++)
		CHECK(event(device[i]).kind == CROSSLANE_NTB_LINK_UP);
	for (i = 1; i < DEVICES; i++)
		page[i] = carve_page(i);
	while (!ready[0] && !waitpid(child, &status, WNOHANG))
		usleep(1000);
	CHECK(ready[0] && !kill(child, SIGKILL) && waitpid(child, &status, 0) == child);
	CHECK(event(device[2]).kind == CROSSLANE_NTB_LINK_DOWN);
	check_way(page, 1, 5);
	check_way(page, 3, 6);
	/* Who comes next has the cable. */
	prepare(0);
	CHECK(event(device[0]).kind == CROSSLANE_NTB_LINK_UP && event(device[2]).kind == CROSSLANE_NTB_LINK_UP);
	page[0] = carve_page(0);
	page[2] = carve_page(2);
	check_way(page, 0, 7);
	check_others_are_quiet(0);
}

// SPDX-License-Identifier: GPL-2.0
/* What init.sh does over and over: a process that maps a segment, to be killed, and a link that goes down and comes up. */
#include "harness.h"

/*
 * Maps segments of both ends, stores and has a DMA engine copy without end, and waits for its death; what it prints says that it has begun.
 */
void hold_until_killed(void)
{
	struct crosslane_ntb_copy copy = { .len = 4 * PAGE };
	static uint8_t memory[4 * PAGE];
	struct views views;
	unsigned i;

	copy.address = (uintptr_t)memory;
	copy.over = copy.failed = eventfd(0, 0);
	up();
	views = carve_both(0, 16 * PAGE);
	views.out[0] = 1;
	__builtin_ia32_sfence();
	CHECK(views.in[0] == 1);
	printf("holds\n");
	for (;; usleep(100)) {
		for (i = 0; i < 16 * PAGE / 8; i += PAGE / 8)
			views.out[i] = views.in[i] + 1;
		/* Some are under way when it dies: EAGAIN while they are as many as may be. */
		CHECK(!ioctl(views.out_fd, CROSSLANE_NTB_COPY, &copy) || errno == EAGAIN || errno == ENOTCONN);
	}
}

void link_goes_down_and_comes_up(void)
{
	struct views views;

	up();
	views = carve_both(0, PAGE);
	CHECK(!link_port(a, 0) && event(a).kind == CROSSLANE_NTB_LINK_DOWN && event(b).kind == CROSSLANE_NTB_LINK_DOWN);
	CHECK(!link_port(a, 1) && event(a).kind == CROSSLANE_NTB_LINK_UP && event(b).kind == CROSSLANE_NTB_LINK_UP);
	CHECK(views.out[0] == 0);
	views = carve_both(0, PAGE);
	views.out[0] = 1;
	__builtin_ia32_sfence();
	CHECK(views.in[0] == 1);
}

/* On a bridge that flaps 5 times: at least 3 lives end (some losses fall between), what is carved in the last one works. */
void lives_follow_the_flaps_of_a_link(void)
{
	unsigned ended = 0;
	struct crosslane_ntb_event seen;
	struct views views;

	up();
	while ((seen = event_within(a, 5000)).kind) {
		CHECK(seen.kind != CROSSLANE_NTB_DOORBELL);
		ended += seen.kind == CROSSLANE_NTB_LINK_DOWN;
	}
	CHECK(ended >= 3 && ended <= 5);
	views = carve_both(0, PAGE);
	views.out[0] = 1;
	__builtin_ia32_sfence();
	CHECK(views.in[0] == 1);
}

// SPDX-License-Identifier: GPL-2.0
/* Each end of a cable between two machines. */
#include "harness.h"

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

void stores_and_bells_reach_another_machine(void)
{
	cable_end(1);
}

void segments_end_when_the_other_machine_leaves(void)
{
	cable_end(0);
}

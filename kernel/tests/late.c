// SPDX-License-Identifier: GPL-2.0
/* On a pair whose stores land late (late_us of ntb_soft): what the device promises of their order holds. */
#include "harness.h"

/* Up to how long a store is under way, us. */
static unsigned late_us(void)
{
	FILE *file = fopen("/sys/module/ntb_soft/parameters/late_us", "r");
	unsigned us = 0;

	CHECK(file && fscanf(file, "%u", &us) == 1 && us);
	fclose(file);
	return us;
}

/* Until all that is under way has landed, and windows show what the peer's memory has. */
static void settle(void)
{
	usleep(4 * late_us() + 20000);
}

static void ring(int port)
{
	uint64_t bit = 1;

	CHECK(!ioctl(port, CROSSLANE_NTB_RING, &bit));
}

static void hear(int port)
{
	struct crosslane_ntb_event seen = event(port);

	CHECK(seen.kind == CROSSLANE_NTB_DOORBELL && seen.doorbells == 1);
}

void late_stores_land_later(void)
{
	struct views views = carve_both(0, 2 * PAGE);
	int late = 0, waited;
	uint64_t round;

	settle();
	for (round = 1; round <= 20; round++) {
		views.out[0] = round;
		__builtin_ia32_sfence();
		late += views.in[0] != round;
		CHECK(views.out[0] == round);
		for (waited = 0; views.in[0] != round; waited++, usleep(1000))
			CHECK(waited < 5000);
	}
	CHECK(late > 0);
}

/* Single bytes, and those beside them, which the peer changes itself. */
void late_bytes_leave_those_beside_them(void)
{
	struct views views = carve_both(0, PAGE);
	volatile uint8_t *out = (volatile uint8_t *)views.out, *in = (volatile uint8_t *)views.in;
	int i;

	settle();
	for (i = 0; i < 64; i++)
		*(i % 2 ? &out[i] : &in[i]) = i + 1;
	__builtin_ia32_sfence();
	settle();
	for (i = 0; i < 64; i++)
		CHECK(in[i] == i + 1 && out[i] == i + 1);
}

/* From the lowest and the highest address on: whichever way a lander went, it would have met some of them too early. */
void late_stores_are_there_when_their_doorbell_is(void)
{
	struct views views = carve_both(0, 64 * PAGE);
	uint64_t round;
	int i;

	settle();
	for (round = 1; round <= 60; round++) {
		for (i = 0; i < 64; i++)
			views.out[(round % 2 ? i : 63 - i) * PAGE / 8] = round;
		ring(a);
		hear(b);
		for (i = 0; i < 64; i++)
			CHECK(views.in[i * PAGE / 8] == round);
	}
}

/* A child stores two words without end, the first before the second: whoever sees a value of the second finds the first no older. */
void late_stores_land_in_their_order(void)
{
	struct views views = carve_both(0, WINDOW);
	volatile uint64_t *first = views.in + WINDOW / 8 - 1, *second = views.in;
	uint64_t seen = 0, changes = 0;
	int status;
	pid_t child;

	settle();
	child = fork();
	if (!child) {
		uint64_t number = 1;

		alarm(60);
		for (;; number++) {
			views.out[WINDOW / 8 - 1] = number;
			__builtin_ia32_sfence();
			views.out[0] = number;
			__builtin_ia32_sfence();
		}
	}
	while (changes < 300) {
		uint64_t now = *second;

		__builtin_ia32_lfence();
		if (*first < now) {
			kill(child, SIGKILL);
			CHECK(!"the second store was seen before the first");
		}
		changes += now != seen;
		seen = now;
	}
	kill(child, SIGKILL);
	CHECK(waitpid(child, &status, 0) == child);
}

void late_store_of_a_value_that_was_taken_lands_again(void)
{
	struct views views = carve_both(0, PAGE);
	int round;

	settle();
	for (round = 0; round < 20; round++) {
		views.out[0] = 1;
		ring(a);
		hear(b);
		CHECK(views.in[0] == 1);
		views.in[0] = 0;
		ring(b);
		hear(a);
		CHECK(views.out[0] == 0);
	}
}

/* What is under way when the link goes is lost or there, and nothing of it comes in the next life. */
void late_stores_do_not_land_in_the_next_life(void)
{
	struct views views = carve_both(0, PAGE), next;

	settle();
	views.out[0] = 1;
	__builtin_ia32_sfence();
	CHECK(!link_port(b, 0));
	CHECK(event(a).kind == CROSSLANE_NTB_LINK_DOWN && event(b).kind == CROSSLANE_NTB_LINK_DOWN);
	CHECK(!link_port(b, 1));
	CHECK(event(a).kind == CROSSLANE_NTB_LINK_UP && event(b).kind == CROSSLANE_NTB_LINK_UP);
	next = carve_both(0, PAGE);
	settle();
	CHECK(next.in[0] == 0 && next.out[0] == 0);
	next.out[1] = 3;
	ring(a);
	hear(b);
	CHECK(next.in[0] == 0 && next.in[1] == 3);
}

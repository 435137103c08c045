// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of crosslane_ntb by its device.
 *
 *   segments          on a pair of bridges in one kernel, both ends in this program
 *   segments outbound the same, on bridges that translate outbound windows only
 *   segments peers    on three ends in one kernel, each joined with each other
 *   segments hostile  on a pair that translates outbound windows only, whose second end stock ntb_tool has
 *   segments first    on one end of a cable to another machine, where `segments second` runs
 *
 *   segments copies   on a pair, with the DMA engine dma_soft
 *   segments aligned  the same, with an engine that wants addresses aligned
 *   segments late     on a pair whose stores land late
 *   segments flaps    on a pair whose link goes down by itself
 *   segments cycle    brings the link up, down and up once
 *   segments hold     prints a line when it maps segments of both ends, and stores there until it is killed
 *   segments fuzz SECONDS [SEED]
 *
 * Prints a line for each test, `ok NAME` or `FAILED NAME: why`; exit status 1 if one failed.
 */
#include "harness.h"

#include <time.h>

static int any_failed;

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
	TEST(memory_that_cannot_be_is_refused),
	TEST(pages_cannot_be_pinned),
	TEST(no_byte_beside_a_mapping_is_reached),
	TEST(mremap_and_offsets_reach_nothing_more),
	TEST(madvise_and_mprotect_reach_nothing_more),
	TEST(descriptor_has_no_other_way_in),
	TEST(memory_calls_of_other_processes_reach_nothing),
	TEST(descriptor_passed_to_another_user_is_no_more),
	TEST(inherited_mapping_ends_when_taken_back),
	TEST(inherited_mapping_ends_with_the_link),
	TEST(doorbells_come_masked_and_unmasked),
	TEST(scratchpads_are_the_peers_to_write),
	TEST(bell_wakes_its_sleeper_and_nobody_else),
	TEST(bell_of_a_waker_that_was_dropped_wakes_nobody),
	TEST(waker_of_anything_but_a_local_datagram_socket_is_refused),
	TEST(sleeper_that_cannot_be_woken_keeps_nobody),
	TEST(flood_of_bells_loses_none),
	TEST(bells_end_with_the_links_life),
	TEST(copies_need_a_dma_engine),
};

/* Which of them, depends on who translates. */
static const struct test inbound[] = { TEST(memory_in_use_is_not_taken_away) };
static const struct test outbound[] = { TEST(memory_that_was_told_stays_while_the_link_is_up) };

static const struct test peers[] = {
	TEST(each_device_leads_to_one_peer),
	TEST(stores_reach_that_peer_and_no_other),
	TEST(life_of_one_peer_ends_alone),
	TEST(bells_ring_at_one_peer),
	TEST(owner_of_one_peer_that_is_killed_leaves_the_others),
};

static const struct test hostile[] = {
	TEST(places_that_cannot_be_are_refused),
	TEST(session_that_has_ended_waits_for_the_peer),
	TEST(messages_without_end_keep_nobody),
};

static const struct test copies[] = {
	TEST(copies_into_a_window_arrive),
	TEST(copies_out_of_inbound_memory_arrive),
	TEST(bad_copies_are_refused),
	TEST(copies_reach_no_memory_but_the_processes_own),
	TEST(copies_of_another_user_need_no_device),
	TEST(faults_of_the_engine_are_told),
	TEST(copies_of_one_range_are_bounded),
	TEST(copies_of_all_ranges_are_bounded),
	TEST(copies_are_over_when_a_range_is_taken_back),
	TEST(copies_are_over_when_the_link_goes),
	TEST(copies_are_over_when_the_owner_goes),
	TEST(memory_that_is_gone_is_kept_for_its_copy),
	TEST(engine_that_stands_still_is_given_up),
};

static const struct test aligned[] = { TEST(copies_that_the_engine_cannot_align_are_refused) };
static const struct test flaps[] = { TEST(lives_follow_the_flaps_of_a_link) };
static const struct test late[] = {
	TEST(late_stores_land_later),
	TEST(late_bytes_leave_those_beside_them),
	TEST(late_stores_are_there_when_their_doorbell_is),
	TEST(late_stores_land_in_their_order),
	TEST(late_store_of_a_value_that_was_taken_lands_again),
	TEST(late_stores_do_not_land_in_the_next_life),
	TEST(doorbells_come_masked_and_unmasked),
	TEST(bell_wakes_its_sleeper_and_nobody_else),
	TEST(bell_of_a_waker_that_was_dropped_wakes_nobody),
	TEST(flood_of_bells_loses_none),
	TEST(bells_end_with_the_links_life),
	TEST(owner_that_is_killed_leaves_nothing),
};

static const struct test cycle[] = { TEST(link_goes_down_and_comes_up) };
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

/* In this process, whose end is its parent's to see. */
static int run_here(const char *name, unsigned seconds, uint64_t seed)
{
	test = name;
	if (!setjmp(failed)) {
		if (!seconds)
			hold_until_killed();
		fuzz(seconds, seed);
		printf("ok %s\n", name);
	}
	return failures != 0;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	choose_devices();
	if (argc > 1 && !strcmp(argv[1], "first"))
		RUN(first, 0);
	else if (argc > 1 && !strcmp(argv[1], "copies"))
		RUN(copies, 1);
	else if (argc > 1 && !strcmp(argv[1], "aligned"))
		RUN(aligned, 1);
	else if (argc > 1 && !strcmp(argv[1], "late"))
		RUN(late, 1);
	else if (argc > 1 && !strcmp(argv[1], "flaps"))
		RUN(flaps, 0);
	else if (argc > 1 && !strcmp(argv[1], "cycle"))
		RUN(cycle, 0);
	else if (argc > 1 && !strcmp(argv[1], "hold"))
		return run_here("hold", 0, 0);
	else if (argc > 2 && !strcmp(argv[1], "fuzz"))
		return run_here("random_calls_break_nothing", atoi(argv[2]), argc > 3 ? strtoull(argv[3], NULL, 0) : (uint64_t)time(NULL));
	else if (argc > 1 && !strcmp(argv[1], "peers"))
		RUN(peers, 0);
	else if (argc > 1 && !strcmp(argv[1], "hostile"))
		RUN(hostile, 0);
	else if (argc > 1 && !strcmp(argv[1], "second"))
		RUN(second, 0);
	else if (argc > 1 && !strcmp(argv[1], "outbound"))
		RUN(alone, 1), RUN(outbound, 1);
	else
		RUN(alone, 1), RUN(inbound, 1);
	return any_failed;
}

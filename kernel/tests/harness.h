/* SPDX-License-Identifier: GPL-2.0 */
/* What the tests of the device share: both ends of a pair, and how a test fails. */
#ifndef HARNESS_H
#define HARNESS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
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

extern const char *test;
extern int failures;
extern jmp_buf failed;
/* The two ends, and their devices: /dev/crosslane0 and 1, or those that ENDS in the environment says (`ENDS="0 2"`). */
extern int a, b;
extern char device_a[], device_b[];

#define CHECK(what)                                                                           \
	do {                                                                                  \
		if (!(what)) {                                                                \
			printf("FAILED %s: line %d: %s (errno %d)\n", test, __LINE__, #what, errno); \
			failures++;                                                           \
			longjmp(failed, 1);                                                   \
		}                                                                             \
	} while (0)

/* Both views of one range: what A stores through its window is loaded from B's memory. */
struct views {
	int out_fd, in_fd;
	volatile uint64_t *out, *in;
};

/* The next event of a port; its kind is 0 if there is none in time (`event`: 20 s, for what must come). */
struct crosslane_ntb_event event_within(int port, int ms);
struct crosslane_ntb_event event(int port);
/* An end's device, opened. */
int open_device(const char *name);
/* Reads ENDS. */
void choose_devices(void);
int link_port(int port, uint32_t on);
int translate(int port, uint32_t window, uint64_t len);
int carve(int port, uint32_t side, uint64_t offset, uint64_t len);
int take_back(int port, uint32_t side, uint64_t offset, uint64_t len);
volatile uint64_t *map(int segment, uint64_t len);
void up(void);
void down(void);
struct views carve_both(uint64_t offset, uint64_t len);

/* segments.c */
void stores_through_a_segment_arrive(void);
void segment_in_another_process_arrives(void);
void mapping_reaches_nothing_beyond_its_range(void);
void range_that_was_taken_back_is_the_holders_own(void);
void taking_back_beside_stores_signals_nobody(void);
void segments_end_with_the_links_life(void);
void segments_end_with_their_owner(void);
void owner_that_is_killed_leaves_nothing(void);
void one_process_owns_a_port(void);
void ranges_of_one_side_do_not_overlap(void);
void bad_ranges_are_refused(void);
void memory_in_use_is_not_taken_away(void);
void memory_that_cannot_be_is_refused(void);
void memory_that_was_told_stays_while_the_link_is_up(void);
void pages_cannot_be_pinned(void);
/* isolation.c */
void no_byte_beside_a_mapping_is_reached(void);
void mremap_and_offsets_reach_nothing_more(void);
void madvise_and_mprotect_reach_nothing_more(void);
void descriptor_has_no_other_way_in(void);
void memory_calls_of_other_processes_reach_nothing(void);
void descriptor_passed_to_another_user_is_no_more(void);
void inherited_mapping_ends_when_taken_back(void);
void inherited_mapping_ends_with_the_link(void);
/* bells.c */
void doorbells_come_masked_and_unmasked(void);
void scratchpads_are_the_peers_to_write(void);
void bell_wakes_its_sleeper_and_nobody_else(void);
void bell_of_a_waker_that_was_dropped_wakes_nobody(void);
void waker_of_anything_but_a_local_datagram_socket_is_refused(void);
void sleeper_that_cannot_be_woken_keeps_nobody(void);
void flood_of_bells_loses_none(void);
void bells_end_with_the_links_life(void);
/* copies.c */
void copies_need_a_dma_engine(void);
void copies_into_a_window_arrive(void);
void copies_out_of_inbound_memory_arrive(void);
void bad_copies_are_refused(void);
void copies_reach_no_memory_but_the_processes_own(void);
void copies_of_another_user_need_no_device(void);
void faults_of_the_engine_are_told(void);
void copies_of_one_range_are_bounded(void);
void copies_of_all_ranges_are_bounded(void);
void copies_are_over_when_a_range_is_taken_back(void);
void copies_are_over_when_the_link_goes(void);
void copies_are_over_when_the_owner_goes(void);
void memory_that_is_gone_is_kept_for_its_copy(void);
void engine_that_stands_still_is_given_up(void);
void copies_that_the_engine_cannot_align_are_refused(void);
/* late.c */
void late_stores_land_later(void);
void late_bytes_leave_those_beside_them(void);
void late_stores_are_there_when_their_doorbell_is(void);
void late_stores_land_in_their_order(void);
void late_store_of_a_value_that_was_taken_lands_again(void);
void late_stores_do_not_land_in_the_next_life(void);
/* peers.c: on three ends, each joined with each other. */
void each_device_leads_to_one_peer(void);
void stores_reach_that_peer_and_no_other(void);
void life_of_one_peer_ends_alone(void);
void bells_ring_at_one_peer(void);
void owner_of_one_peer_that_is_killed_leaves_the_others(void);
/* hostile.c */
void places_that_cannot_be_are_refused(void);
void session_that_has_ended_waits_for_the_peer(void);
void messages_without_end_keep_nobody(void);
/* between.c */
void stores_and_bells_reach_another_machine(void);
void segments_end_when_the_other_machine_leaves(void);
/* cycles.c */
void hold_until_killed(void);
void link_goes_down_and_comes_up(void);
void lives_follow_the_flaps_of_a_link(void);
/* fuzz.c: random calls for so many seconds. */
void fuzz(unsigned seconds, uint64_t seed);

#endif

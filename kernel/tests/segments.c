// SPDX-License-Identifier: GPL-2.0
/* What a descriptor of a carved range lets its holder do, and that it ends when it is taken back. */
#include "harness.h"

void stores_through_a_segment_arrive(void)
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

void segment_in_another_process_arrives(void)
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

void mapping_reaches_nothing_beyond_its_range(void)
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

void range_that_was_taken_back_is_the_holders_own(void)
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
	/* What had arrived stays for those who have not read it yet. */
	CHECK(views.in[0] == 1 && views.in[PAGE / 8] == 0);
	CHECK(map(views.in_fd, PAGE)[0] == 1);
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
void taking_back_beside_stores_signals_nobody(void)
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

void segments_end_with_the_links_life(void)
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

void segments_end_with_their_owner(void)
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
	a = open(device_a, O_RDWR);
	CHECK(a >= 0);
}

void owner_that_is_killed_leaves_nothing(void)
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

void one_process_owns_a_port(void)
{
	CHECK(open(device_a, O_RDWR) < 0 && errno == EBUSY);
}

void ranges_of_one_side_do_not_overlap(void)
{
	CHECK(carve(a, CROSSLANE_NTB_OUTBOUND, 2 * PAGE, 2 * PAGE) >= 0);
	CHECK(carve(a, CROSSLANE_NTB_OUTBOUND, 3 * PAGE, PAGE) < 0 && errno == EEXIST);
	CHECK(carve(a, CROSSLANE_NTB_OUTBOUND, PAGE, 4 * PAGE) < 0 && errno == EEXIST);
	CHECK(carve(a, CROSSLANE_NTB_OUTBOUND, PAGE, PAGE) >= 0 && carve(a, CROSSLANE_NTB_OUTBOUND, 4 * PAGE, PAGE) >= 0);
	CHECK(carve(a, CROSSLANE_NTB_INBOUND, 2 * PAGE, 2 * PAGE) >= 0);
}

void bad_ranges_are_refused(void)
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

void memory_in_use_is_not_taken_away(void)
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
}

void memory_that_cannot_be_is_refused(void)
{
	CHECK(!link_port(a, 0));
	CHECK(translate(a, 1, 1UL << 47) < 0 && errno == EINVAL);
	CHECK(translate(a, 1, -PAGE) < 0 && errno == EINVAL);
	CHECK(translate(a, 1, PAGE + 1) < 0 && errno == EINVAL);
	CHECK(translate(a, 77, PAGE) < 0 && errno == ENXIO);
}

/* Where the peer translates it has been told of all memory before the link came up. */
void memory_that_was_told_stays_while_the_link_is_up(void)
{
	struct crosslane_ntb_range range = { .window = 1, .side = CROSSLANE_NTB_INBOUND, .len = PAGE };
	struct crosslane_ntb_range out = { .window = 1, .side = CROSSLANE_NTB_OUTBOUND, .len = PAGE };
	volatile uint64_t *in, *at;

	CHECK(translate(a, 0, 0) < 0 && errno == EBUSY);
	CHECK(translate(a, 1, WINDOW) < 0 && errno == EBUSY);
	CHECK(!link_port(a, 0) && event(a).kind == CROSSLANE_NTB_LINK_DOWN && event(b).kind == CROSSLANE_NTB_LINK_DOWN);
	CHECK(!translate(a, 1, WINDOW) && !link_port(a, 1));
	CHECK(event(a).kind == CROSSLANE_NTB_LINK_UP && event(b).kind == CROSSLANE_NTB_LINK_UP);
	in = map(ioctl(a, CROSSLANE_NTB_CARVE, &range), PAGE);
	at = map(ioctl(b, CROSSLANE_NTB_CARVE, &out), PAGE);
	CHECK(in != MAP_FAILED && at != MAP_FAILED);
	at[0] = 1;
	__builtin_ia32_sfence();
	CHECK(in[0] == 1);
	CHECK(translate(a, 1, 0) < 0 && errno == EBUSY);
}

/* Nobody keeps a page of a window by pinning it. */
void pages_cannot_be_pinned(void)
{
	struct views views = carve_both(0, PAGE);
	struct iovec piece = { .iov_base = (void *)views.out, .iov_len = PAGE };
	int ends[2];

	CHECK(!pipe(ends));
	views.out[0] = 1;
	CHECK(vmsplice(ends[1], &piece, 1, 0) < 0 && errno == EFAULT);
}

// SPDX-License-Identifier: GPL-2.0
/* Copies by a DMA engine: of dma_soft, whose parameters these tests set. */
#include "harness.h"

#define LEN (64 * PAGE)

/* Both eventfds of the copies of a test. */
static int over, faults;

static void engine(const char *parameter, unsigned value)
{
	char path[64], text[16];
	int file, len = snprintf(text, sizeof(text), "%u", value);

	snprintf(path, sizeof(path), "/sys/module/dma_soft/parameters/%s", parameter);
	file = open(path, O_WRONLY);
	CHECK(file >= 0 && write(file, text, len) == len);
	close(file);
}

static struct views begin(void)
{
	engine("delay_us", 0);
	engine("fail", 0);
	engine("stuck", 0);
	over = eventfd(0, EFD_NONBLOCK);
	faults = eventfd(0, EFD_NONBLOCK);
	CHECK(over >= 0 && faults >= 0);
	return carve_both(0, LEN);
}

static int copy(int segment, const void *memory, uint64_t len, uint64_t offset)
{
	struct crosslane_ntb_copy copy = {
		.address = (uintptr_t)memory, .len = len, .offset = offset, .over = over, .failed = faults,
	};

	return ioctl(segment, CROSSLANE_NTB_COPY, &copy);
}

/* What an eventfd counts within `ms`; 0: nothing. */
static uint64_t counted(int eventfd, int ms)
{
	struct pollfd readable = { .fd = eventfd, .events = POLLIN };
	uint64_t count = 0;

	if (poll(&readable, 1, ms) == 1 && read(eventfd, &count, sizeof(count)) != sizeof(count))
		count = 0;
	return count;
}

static uint8_t byte_at(uint64_t at)
{
	return (at * 0x9e3779b97f4a7c15ULL) >> 56 | 1;
}

/* Memory of this process, filled, of LEN bytes. */
static uint8_t *filled(void)
{
	uint8_t *memory = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t i;

	CHECK(memory != MAP_FAILED);
	for (i = 0; i < LEN; i++)
		memory[i] = byte_at(i);
	return memory;
}

static const struct piece {
	uint64_t memory, offset, len;
} pieces[] = {
	{ 0, 0, 1 }, { 5, 3, 7 }, { 1, PAGE - 1, 2 }, { PAGE - 3, 9, PAGE + 5 }, { 0, 0, LEN }, { 17, 1001, 40 * PAGE + 333 },
	{ PAGE, LEN - PAGE, PAGE }, { 1, 0, LEN - 1 },
};

#define PIECES (sizeof(pieces) / sizeof(pieces[0]))

void copies_need_a_dma_engine(void)
{
	struct crosslane_ntb_info info;
	struct views views = carve_both(0, LEN);

	CHECK(!ioctl(a, CROSSLANE_NTB_INFO, &info) && info.copy_max == 0);
	CHECK(copy(views.out_fd, "x", 1, 0) && errno == EOPNOTSUPP);
}

void copies_into_a_window_arrive(void)
{
	struct views views = begin();
	uint8_t *memory = filled(), *seen = (uint8_t *)views.in;
	struct crosslane_ntb_info info;
	unsigned i;
	uint64_t at;

	CHECK(!ioctl(a, CROSSLANE_NTB_INFO, &info) && info.copy_max >= LEN);
	for (i = 0; i < PIECES; i++) {
		const struct piece *piece = &pieces[i];

		memset(seen, 0, LEN);
		CHECK(!copy(views.out_fd, memory + piece->memory, piece->len, piece->offset));
		CHECK(counted(over, 5000) == 1 && !counted(faults, 0));
		for (at = 0; at < LEN; at++) {
			uint64_t in = at - piece->offset;

			CHECK(seen[at] == (in < piece->len ? byte_at(piece->memory + in) : 0));
		}
	}
}

void copies_out_of_inbound_memory_arrive(void)
{
	struct views views = begin();
	uint8_t *memory = filled();
	unsigned i;
	uint64_t at;

	for (at = 0; at < LEN; at++)
		((volatile uint8_t *)views.out)[at] = byte_at(at);
	__builtin_ia32_sfence();
	for (i = 0; i < PIECES; i++) {
		const struct piece *piece = &pieces[i];

		memset(memory, 0, LEN);
		CHECK(!copy(views.in_fd, memory + piece->memory, piece->len, piece->offset));
		CHECK(counted(over, 5000) == 1 && !counted(faults, 0));
		for (at = 0; at < LEN; at++) {
			uint64_t in = at - piece->memory;

			CHECK(memory[at] == (in < piece->len ? byte_at(piece->offset + in) : 0));
		}
	}
}

void bad_copies_are_refused(void)
{
	struct views views = begin();
	uint8_t *memory = filled();
	static const uint64_t bad[][2] = {
		{ 0, 0 }, { 1, LEN }, { LEN + 1, 0 }, { LEN, 1 }, { 1, -1 }, { -1, 1 }, { -1, -1 }, { PAGE, -PAGE }, { 1UL << 40, 0 },
	};
	unsigned i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK(copy(views.out_fd, memory, bad[i][0], bad[i][1]) && errno == EINVAL);
	/* Of the range, not of the device. */
	CHECK(copy(a, memory, PAGE, 0) && errno == ENOTTY);
}

/* Only what the process could read, or write, by itself. */
void copies_reach_no_memory_but_the_processes_own(void)
{
	struct views views = begin();
	uint8_t *memory = filled();
	int real = over;

	CHECK(copy(views.out_fd, NULL, 1, 0) && errno == EFAULT);
	CHECK(copy(views.out_fd, (void *)0xffff888000000000UL, 8, 0) && errno == EFAULT);
	CHECK(copy(views.out_fd, (void *)-8UL, 8, 0) && errno == EFAULT);
	CHECK(!munmap(memory + LEN - PAGE, PAGE) && copy(views.out_fd, memory, LEN, 0) && errno == EFAULT);
	/* Windows are no memory that can be held. */
	CHECK(copy(views.out_fd, (void *)views.in, 8, 0) && errno == EFAULT);
	CHECK(copy(views.in_fd, (void *)views.out, 8, 0) && errno == EFAULT);
	CHECK(!mprotect(memory, PAGE, PROT_READ) && copy(views.in_fd, memory, 8, 0) && errno == EFAULT);
	CHECK(!copy(views.out_fd, memory, 8, 0) && counted(over, 5000) == 1);
	CHECK(!mprotect(memory, PAGE, PROT_NONE) && copy(views.out_fd, memory, 8, 0) && errno == EFAULT);
	over = -1;
	CHECK(copy(views.out_fd, memory + PAGE, 8, 0) && errno == EBADF);
	over = a;
	CHECK(copy(views.out_fd, memory + PAGE, 8, 0) && errno == EINVAL);
	over = real;
	faults = 99;
	CHECK(copy(views.out_fd, memory + PAGE, 8, 0) && errno == EBADF);
}

void copies_of_another_user_need_no_device(void)
{
	struct views views = begin();
	uint8_t *memory = filled();
	int status;
	pid_t child = fork();

	if (!child) {
		close(a);
		close(b);
		if (setuid(65534))
			_exit(1);
		_exit(copy(views.out_fd, memory, LEN, 0) || counted(over, 5000) != 1);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(!memcmp((void *)views.in, memory, LEN));
}

void faults_of_the_engine_are_told(void)
{
	struct views views = begin();
	uint8_t *memory = filled();

	engine("fail", 1);
	CHECK(!copy(views.out_fd, memory, LEN, 0));
	CHECK(counted(over, 5000) == 1 && counted(faults, 0) == 1);
	engine("fail", 0);
	CHECK(!copy(views.out_fd, memory, LEN, 0));
	CHECK(counted(over, 5000) == 1 && !counted(faults, 0));
}

/* As many as a range may have; those of another one go on. */
void copies_of_one_range_are_bounded(void)
{
	struct views views = begin(), other = carve_both(LEN, PAGE);
	uint8_t *memory = filled();
	uint64_t done = 0;
	unsigned begun;

	engine("delay_us", 20000);
	for (begun = 0; begun < 100 && !copy(views.out_fd, memory, 8, 8 * begun); begun++)
		;
	CHECK(begun >= 8 && begun < 100 && errno == EAGAIN);
	CHECK(!copy(other.out_fd, memory, 8, 0));
	while (done < begun + 1) {
		uint64_t more = counted(over, 5000);

		CHECK(more);
		done += more;
	}
	CHECK(done == begun + 1);
	CHECK(!copy(views.out_fd, memory, 8, 0) && counted(over, 5000) == 1);
}

/* As many as all ranges of a port may have, however many ranges somebody has; none is lost. */
void copies_of_all_ranges_are_bounded(void)
{
	uint8_t *memory = filled();
	uint64_t begun = 0, done = 0;
	unsigned range, refused = 0;
	int fd;

	begin();
	engine("delay_us", 20000);
	for (range = 0; range < 32; range++) {
		fd = carve(a, CROSSLANE_NTB_OUTBOUND, LEN + range * PAGE, PAGE);
		CHECK(fd >= 0);
		while (!copy(fd, memory, 8, 0))
			begun++;
		CHECK(errno == EAGAIN);
		refused += begun < 8 * (range + 1);
	}
	CHECK(begun >= 128 && refused);
	engine("delay_us", 0);
	while (done < begun) {
		uint64_t more = counted(over, 5000);

		CHECK(more);
		done += more;
	}
	CHECK(done == begun && !counted(faults, 0));
}

/* Nothing is written behind the end of a range, by copies that had begun before it. */
static void copies_are_over_with(struct views *views, int (*end)(void), volatile uint64_t *seen)
{
	uint8_t *memory = filled();
	unsigned i;

	engine("delay_us", 20000);
	for (i = 0; i < 4; i++)
		CHECK(!copy(views->out_fd, memory, 2 * PAGE, 2 * PAGE * i));
	CHECK(!end());
	CHECK(counted(over, 5000));
	for (i = 0; i < 4 * 2 * PAGE / 8; i++)
		((volatile uint64_t *)seen)[i] = 0;
	usleep(200000);
	for (i = 0; i < 4 * 2 * PAGE / 8; i++)
		CHECK(((volatile uint64_t *)seen)[i] == 0);
	CHECK(copy(views->out_fd, memory, 8, 0) && errno == ENOTCONN);
	engine("delay_us", 0);
}

static int take_back_out(void)
{
	return take_back(a, CROSSLANE_NTB_OUTBOUND, 0, LEN);
}

void copies_are_over_when_a_range_is_taken_back(void)
{
	struct views views = begin();

	copies_are_over_with(&views, take_back_out, views.in);
	CHECK(counted(over, 0) + counted(faults, 0) == 0);
}

static int link_off(void)
{
	return link_port(a, 0);
}

void copies_are_over_when_the_link_goes(void)
{
	struct views views = begin();

	copies_are_over_with(&views, link_off, views.in);
}

static int owner_closes(void)
{
	return close(a);
}

void copies_are_over_when_the_owner_goes(void)
{
	struct views views = begin();

	copies_are_over_with(&views, owner_closes, views.in);
	a = open(device_a, O_RDWR);
	CHECK(a >= 0);
}

/* The memory of a process that has ended, or has unmapped it, is the copy's until that is over. */
void memory_that_is_gone_is_kept_for_its_copy(void)
{
	struct views views = begin();
	uint8_t *memory = filled();
	int status, round;
	pid_t child;

	/* A page at a time, 64 of them: far from where the engine is given up. */
	engine("delay_us", 4000);
	CHECK(!copy(views.out_fd, memory, LEN, 0) && !munmap(memory, LEN));
	CHECK(counted(over, 5000) == 1 && !counted(faults, 0));
	for (round = 0; round < (int)LEN; round++)
		CHECK(((volatile uint8_t *)views.in)[round] == byte_at(round));
	for (round = 0; round < 20; round++) {
		child = fork();
		if (!child) {
			memory = filled();
			_exit(copy(views.out_fd, memory, LEN, 0) && errno != EAGAIN);
		}
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		usleep(random() % 20000);
	}
	CHECK(counted(over, 5000));
}

void engine_that_stands_still_is_given_up(void)
{
	struct views views = begin();
	uint8_t *memory = filled();

	engine("stuck", 1);
	CHECK(!copy(views.out_fd, memory, LEN, 0) && !copy(views.out_fd, memory, 8, 0));
	CHECK(!counted(over, 500));
	CHECK(counted(over, 10000) && counted(faults, 2000));
	engine("stuck", 0);
	CHECK(copy(views.out_fd, memory, 8, 0) && errno == EIO);
	/* Beside a range that ends. */
	down();
	up();
	views = carve_both(0, LEN);
	engine("stuck", 1);
	CHECK(!copy(views.out_fd, memory, LEN, 0));
	CHECK(!take_back(a, CROSSLANE_NTB_OUTBOUND, 0, LEN) && counted(faults, 2000) && counted(over, 2000));
	engine("stuck", 0);
	/* The next owner tries the engine again. */
	down();
	up();
	views = carve_both(0, LEN);
	CHECK(!copy(views.out_fd, memory, LEN, 0) && counted(over, 5000) == 1);
	CHECK(!memcmp((void *)views.in, memory, LEN));
}

/* With align=6. */
void copies_that_the_engine_cannot_align_are_refused(void)
{
	struct views views = begin();
	uint8_t *memory = filled();

	CHECK(copy(views.out_fd, memory + 8, 64, 0) && errno == EINVAL);
	CHECK(copy(views.out_fd, memory, 8, 0) && errno == EINVAL);
	CHECK(copy(views.out_fd, memory, 64, 8) && errno == EINVAL);
	CHECK(!copy(views.out_fd, memory + 64, 2 * PAGE, 128) && counted(over, 5000) == 1);
	CHECK(!memcmp((uint8_t *)views.in + 128, memory + 64, 2 * PAGE));
}

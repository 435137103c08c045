// SPDX-License-Identifier: GPL-2.0
/*
 * Random calls on both ends, by processes of several threads that are killed at random, for some seconds. The kernel stops at its first
 * warning; here is looked at whether the calls got anywhere, whether a port works afterwards, and whether all memory came back.
 */
#include "harness.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#define WORKERS 3
#define THREADS 2
#define KEPT 32
#define COMMANDS 13
/* CROSSLANE_NTB_COPY, of a segment and not of the device. */
#define COPY 12
#define MEMORY (64 * PAGE)

/* How often each command succeeded, in memory that all processes share. */
static volatile unsigned *done;

/* A thread's random numbers, and the descriptors and mappings that it made. */
struct fuzzer {
	uint64_t random;
	int kept[KEPT];
	void *mapped[KEPT];
	/* Of copies: what they count, and memory that they read and write. */
	int eventfd;
	uint8_t *memory;
	/* What was made last: it is there to be taken back. */
	struct crosslane_ntb_range carved;
	uint32_t handle;
};

static uint64_t next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ULL;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}

static uint64_t below(struct fuzzer *fuzzer, uint64_t bound)
{
	return next(&fuzzer->random) % bound;
}

/* A number that is often valid, often nearly so, and sometimes anything. */
static uint64_t number(struct fuzzer *fuzzer)
{
	static const uint64_t hostile[] = { -1ULL, -PAGE, 1ULL << 63, (1ULL << 46) + PAGE, 1ULL << 32, 0x7fffffff, 0xffffffff };

	switch (below(fuzzer, 8)) {
	case 0:
		return hostile[below(fuzzer, sizeof(hostile) / sizeof(hostile[0]))];
	case 1:
		return next(&fuzzer->random);
	case 2:
		return below(fuzzer, WINDOW) + 1;
	case 3:
		return WINDOW - PAGE * below(fuzzer, 3);
	default:
		return PAGE * below(fuzzer, 16);
	}
}

static int descriptor(struct fuzzer *fuzzer)
{
	switch (below(fuzzer, 8)) {
	case 0:
		return fuzzer->kept[below(fuzzer, KEPT)];
	case 1:
		return below(fuzzer, 64) - 2;
	default:
		return below(fuzzer, 2) ? a : b;
	}
}

static void keep(struct fuzzer *fuzzer, int fd)
{
	int *slot = &fuzzer->kept[below(fuzzer, KEPT)];

	if (*slot > 2)
		close(*slot);
	*slot = fd;
}

/* A datagram socket that is connected to itself: it hears its own wakes. */
static int waker_socket(void)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(sa_family_t);
	int own = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);

	/* The kernel chooses the name. */
	if (own < 0 || bind(own, (struct sockaddr *)&name, len))
		return own;
	len = sizeof(name);
	if (!getsockname(own, (struct sockaddr *)&name, &len) && connect(own, (struct sockaddr *)&name, len))
		errno = 0;
	return own;
}

static void fill_copy(struct fuzzer *fuzzer, struct crosslane_ntb_copy *copy)
{
	*copy = (struct crosslane_ntb_copy){
		.address = (uintptr_t)fuzzer->memory + below(fuzzer, MEMORY),
		.len = 1 + below(fuzzer, PAGE),
		.offset = below(fuzzer, PAGE),
		.over = fuzzer->eventfd,
		.failed = fuzzer->eventfd,
	};
	switch (below(fuzzer, 8)) {
	case 0:
		copy->address = below(fuzzer, 2) ? number(fuzzer) : (uintptr_t)fuzzer->mapped[below(fuzzer, KEPT)];
		break;
	case 1:
		copy->len = number(fuzzer);
		break;
	case 2:
		copy->offset = number(fuzzer);
		break;
	case 3:
		copy->over = descriptor(fuzzer);
		break;
	}
}

static void fill(struct fuzzer *fuzzer, unsigned command, void *argument)
{
	struct crosslane_ntb_range *range = argument;
	struct crosslane_ntb_translate *to = argument;
	struct crosslane_ntb_register *pad = argument;
	struct crosslane_ntb_waker *waker = argument;

	switch (command) {
	case 1:
		*to = (struct crosslane_ntb_translate){ below(fuzzer, 9) ? 1 + below(fuzzer, 2) : 0, !below(fuzzer, 32), number(fuzzer) };
		break;
	case 3:
		if (below(fuzzer, 2)) {
			*range = fuzzer->carved;
			break;
		}
		/* fallthrough */
	case 2:
		*range = (struct crosslane_ntb_range){ below(fuzzer, 3), below(fuzzer, 9) % 3, number(fuzzer), number(fuzzer) };
		/* Often what can be had. */
		if (below(fuzzer, 2))
			*range = (struct crosslane_ntb_range){ 0, below(fuzzer, 2), PAGE * below(fuzzer, 32), PAGE * (1 + below(fuzzer, 4)) };
		break;
	case 4:
		/* Seldom off, or there would be no life. */
		*(uint32_t *)argument = below(fuzzer, 300) != 0;
		break;
	case 5:
	case 6:
		*pad = (struct crosslane_ntb_register){ below(fuzzer, 36), next(&fuzzer->random) };
		break;
	case 9:
		*waker = (struct crosslane_ntb_waker){ .socket = below(fuzzer, 2) ? fuzzer->kept[0] : descriptor(fuzzer) };
		break;
	case 10:
	case 11:
		*(uint32_t *)argument = below(fuzzer, 2) ? fuzzer->handle : below(fuzzer, 2) ? below(fuzzer, 64) : next(&fuzzer->random);
		break;
	case COPY:
		fill_copy(fuzzer, argument);
		break;
	default:
		*(uint64_t *)argument = next(&fuzzer->random);
	}
}

static void random_ioctl(struct fuzzer *fuzzer)
{
	static const unsigned long known[COMMANDS] = {
		CROSSLANE_NTB_INFO, CROSSLANE_NTB_TRANSLATE, CROSSLANE_NTB_CARVE, CROSSLANE_NTB_TAKE_BACK, CROSSLANE_NTB_LINK,
		CROSSLANE_NTB_READ_PAD, CROSSLANE_NTB_WRITE_PEER_PAD, CROSSLANE_NTB_RING, CROSSLANE_NTB_MASK, CROSSLANE_NTB_WAKER,
		CROSSLANE_NTB_DROP_WAKER, CROSSLANE_NTB_BELL, CROSSLANE_NTB_COPY,
	};
	/* As much as a code of any kind copies. */
	union {
		struct crosslane_ntb_waker waker;
		struct crosslane_ntb_range range;
		uint64_t room[64];
	} argument = { .room = { 0 } };
	unsigned command = below(fuzzer, COMMANDS);
	unsigned long code = known[command];
	void *at = &argument;
	long result;

	fill(fuzzer, command, &argument);
	if (!below(fuzzer, 32))
		code ^= 1UL << below(fuzzer, 34);
	if (!below(fuzzer, 32))
		at = (void *)number(fuzzer);
	result = ioctl(command == COPY ? fuzzer->kept[below(fuzzer, KEPT)] : descriptor(fuzzer), code, at);
	if (result < 0 || code != known[command] || at != &argument)
		return;
	done[command]++;
	if (command == 2 || command == 11)
		keep(fuzzer, result);
	if (command == 2)
		fuzzer->carved = argument.range;
	if (command == 9)
		fuzzer->handle = argument.waker.handle;
	/* The peer's bells may be of this handle. */
	if (command == 9 && below(fuzzer, 2))
		keep(fuzzer, ioctl(below(fuzzer, 2) ? a : b, CROSSLANE_NTB_BELL, &argument.waker.handle));
}

/* Loads and stores only where a mapping is: its holder gets no signal, whatever is taken back meanwhile. */
static void random_mapping(struct fuzzer *fuzzer)
{
	void **slot = &fuzzer->mapped[below(fuzzer, KEPT)];
	int fd = fuzzer->kept[below(fuzzer, KEPT)];

	if (*slot) {
		*(volatile uint64_t *)*slot = fuzzer->random;
		madvise(*slot, PAGE, below(fuzzer, 26));
		mremap(*slot, PAGE, PAGE * below(fuzzer, 4), 0);
		if (below(fuzzer, 2)) {
			munmap(*slot, PAGE);
			*slot = NULL;
		}
		return;
	}
	*slot = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, below(fuzzer, 8) ? MAP_SHARED : MAP_PRIVATE, fd, PAGE * below(fuzzer, 4));
	if (*slot == MAP_FAILED)
		*slot = NULL;
}

static void random_file_call(struct fuzzer *fuzzer)
{
	struct pollfd ready = { .fd = descriptor(fuzzer), .events = POLLIN };
	char buffer[256];

	switch (below(fuzzer, 5)) {
	case 0:
		if (poll(&ready, 1, 0) == 1 && ready.fd > 2 && read(ready.fd, buffer, below(fuzzer, sizeof(buffer))) < 0)
			errno = 0;
		break;
	case 1:
		ready.fd = fuzzer->kept[below(fuzzer, KEPT)];
		if (ready.fd > 2 && write(ready.fd, buffer, below(fuzzer, 16)) < 0)
			errno = 0;
		break;
	case 2:
		keep(fuzzer, below(fuzzer, 2) ? eventfd(0, EFD_NONBLOCK) : waker_socket());
		break;
	case 3:
		keep(fuzzer, open(below(fuzzer, 2) ? device_a : device_b, O_RDWR | O_NONBLOCK));
		break;
	case 4:
		/* Two names of a device, in the table of descriptors that die. */
		keep(fuzzer, dup(below(fuzzer, 2) ? a : b));
		break;
	}
}

static void *fuzz_thread(void *seed)
{
	struct fuzzer fuzzer = { .random = (uint64_t)seed };
	unsigned i;

	for (i = 0; i < KEPT; i++)
		fuzzer.kept[i] = -1;
	fuzzer.kept[0] = waker_socket();
	fuzzer.eventfd = eventfd(0, EFD_NONBLOCK);
	fuzzer.memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (;;) {
		switch (below(&fuzzer, 8)) {
		case 0:
			random_file_call(&fuzzer);
			break;
		case 1:
		case 2:
			random_mapping(&fuzzer);
			break;
		default:
			random_ioctl(&fuzzer);
		}
	}
	return NULL;
}

static void fuzz_process(uint64_t seed)
{
	pthread_t thread;
	int i;

	/* Not longer than a test that has failed. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (i = 1; i < THREADS; i++)
		if (pthread_create(&thread, NULL, fuzz_thread, (void *)next(&seed)))
			_exit(1);
	fuzz_thread((void *)next(&seed));
}

/* Both ends up, the workers at them for a while, then all of it goes: the owner first or last. A worker that ends by itself is a fault. */
static void fuzz_round(uint64_t *random)
{
	pid_t worker[WORKERS];
	int i, status, owner_first = next(random) % 2;

	up();
	fcntl(a, F_SETFL, O_NONBLOCK);
	fcntl(b, F_SETFL, O_NONBLOCK);
	for (i = 0; i < WORKERS; i++) {
		uint64_t seed = next(random);

		worker[i] = fork();
		if (!worker[i])
			fuzz_process(seed);
	}
	usleep(300000 + next(random) % 700000);
	if (owner_first)
		down();
	for (i = 0; i < WORKERS; i++) {
		CHECK(waitpid(worker[i], &status, WNOHANG) == 0);
		kill(worker[i], SIGKILL);
		usleep(next(random) % 20000);
		CHECK(waitpid(worker[i], &status, 0) == worker[i]);
	}
	if (!owner_first)
		down();
}

/* A number of /proc/meminfo, KB; what can be dropped is. */
static long meminfo(const char *what)
{
	FILE *file = fopen("/proc/sys/vm/drop_caches", "w");
	char line[128];
	long value = -1;

	if (file) {
		fputs("3", file);
		fclose(file);
	}
	usleep(300000);
	file = fopen("/proc/meminfo", "r");
	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, what, strlen(what)))
			value = atol(line + strlen(what) + 1);
	if (file)
		fclose(file);
	return value;
}

/* Most memory that may be missing afterwards, KB: caches of processors and of the slab's are not given back at once. */
#define MISSING_MAX 4096

void fuzz(unsigned seconds, uint64_t seed)
{
	time_t end;
	uint64_t random = seed;
	long available, slab, available_after, slab_after;
	unsigned i, rounds;

	printf("fuzz: seed %llu, %u s\n", (unsigned long long)seed, seconds);
	done = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	fuzz_round(&random);
	available = meminfo("MemAvailable");
	slab = meminfo("Slab");
	end = time(NULL) + seconds;
	for (rounds = 0; time(NULL) < end; rounds++)
		fuzz_round(&random);
	for (i = 0; i < COMMANDS; i++) {
		printf("fuzz: command %u succeeded %u times in %u rounds\n", i, done[i], rounds);
		CHECK(done[i]);
	}
	available_after = meminfo("MemAvailable");
	slab_after = meminfo("Slab");
	printf("fuzz: available %ld KB, then %ld KB; slab %ld KB, then %ld KB\n", available, available_after, slab, slab_after);
	CHECK(available - available_after < MISSING_MAX && slab_after - slab < MISSING_MAX);
	/* A port works as if nothing had been. */
	up();
	carve_both(0, PAGE).out[0] = 1;
	down();
}

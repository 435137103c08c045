// SPDX-License-Identifier: GPL-2.0
/*
 * Who holds a carved segment reaches nothing beyond it, by whatever call. A holds pages 8 and 9 of its window; B looks at pages 7 to
 * 10 of its memory, of which the first and the last are nobody's: a mark in them changes if anything else does.
 */
#include "harness.h"

#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define MARK 0x4d41524b4d41524bULL
#define HELD (2 * PAGE)

/* `seen` is B's memory from one page before what A holds to one page behind. */
struct held {
	int fd;
	volatile uint64_t *out, *seen;
};

static struct held hold(void)
{
	struct held held = { .fd = carve(a, CROSSLANE_NTB_OUTBOUND, 8 * PAGE, HELD) };
	int around = carve(b, CROSSLANE_NTB_INBOUND, 7 * PAGE, 4 * PAGE);
	uint8_t *room = mmap(NULL, 4 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned i;

	CHECK(held.fd >= 0 && around >= 0 && room != MAP_FAILED);
	held.out = mmap(room + PAGE, HELD, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, held.fd, 0);
	held.seen = map(around, 4 * PAGE);
	CHECK(held.out != MAP_FAILED && held.seen != MAP_FAILED);
	/* Nothing is mapped before and behind it. */
	CHECK(!munmap(room, PAGE) && !munmap(room + PAGE + HELD, PAGE));
	for (i = 0; i < PAGE / 8; i++)
		held.seen[i] = held.seen[3 * PAGE / 8 + i] = MARK;
	/* The way is open: a store arrives where it should, and only there. */
	held.out[0] = 1;
	held.out[HELD / 8 - 1] = 2;
	__builtin_ia32_sfence();
	CHECK(held.seen[PAGE / 8] == 1 && held.seen[3 * PAGE / 8 - 1] == 2);
	return held;
}

/* As fork(); the child does not outlive its test, also one that has failed, and keeps no port. */
static pid_t fork_child(void)
{
	pid_t child = fork();

	if (!child)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return child;
}

static void check_marks(const struct held *held)
{
	unsigned i;

	__builtin_ia32_sfence();
	for (i = 0; i < PAGE / 8; i++)
		CHECK(held->seen[i] == MARK && held->seen[3 * PAGE / 8 + i] == MARK);
}

/* The signal that a store to `at` ends a process with; 0: none. */
static int signal_of_store(volatile uint8_t *at)
{
	pid_t child = fork_child();
	int status;

	if (!child) {
		*at = 0xff;
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

void no_byte_beside_a_mapping_is_reached(void)
{
	struct held held = hold();
	uint8_t *room = mmap(NULL, 4 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *at;

	CHECK(room != MAP_FAILED);
	/* Nothing else is mapped beside this. */
	at = mmap(room + PAGE, HELD, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, held.fd, 0);
	CHECK(at == room + PAGE);
	CHECK(signal_of_store(at) == 0 && signal_of_store(at + HELD - 1) == 0);
	CHECK(signal_of_store(at - 1) == SIGSEGV && signal_of_store(at + HELD) == SIGSEGV);
	check_marks(&held);
}

void mremap_and_offsets_reach_nothing_more(void)
{
	struct held held = hold();
	uint8_t *at = (uint8_t *)held.out, *elsewhere;

	CHECK(mremap(at, HELD, 3 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED);
	CHECK(mremap(at, HELD, 3 * PAGE, 0) == MAP_FAILED);
	/* Length 0 asks for one more mapping of shared memory. */
	CHECK(mremap(at, 0, HELD, MREMAP_MAYMOVE) == MAP_FAILED && mremap(at, 0, 3 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED);
	CHECK(mremap(at, HELD, HELD, MREMAP_MAYMOVE | 4 /* MREMAP_DONTUNMAP */) == MAP_FAILED);
	CHECK(mmap(NULL, 3 * PAGE, PROT_READ, MAP_SHARED, held.fd, 0) == MAP_FAILED);
	CHECK(mmap(NULL, 1UL << 40, PROT_READ, MAP_SHARED, held.fd, 0) == MAP_FAILED);
	CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, held.fd, 2 * PAGE) == MAP_FAILED);
	CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, held.fd, -PAGE) == MAP_FAILED);
	CHECK(mmap(NULL, HELD, PROT_READ, MAP_SHARED, held.fd, -PAGE) == MAP_FAILED);
	/* A page that is moved stays the page that it was. */
	elsewhere = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(mremap(at + PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere) == elsewhere);
	((volatile uint64_t *)elsewhere)[1] = 77;
	__builtin_ia32_sfence();
	CHECK(held.seen[2 * PAGE / 8 + 1] == 77 && held.seen[PAGE / 8 + 1] == 0);
	CHECK(!take_back(a, CROSSLANE_NTB_OUTBOUND, 8 * PAGE, HELD));
	((volatile uint64_t *)elsewhere)[1] = 78;
	__builtin_ia32_sfence();
	CHECK(held.seen[2 * PAGE / 8 + 1] == 77);
	/* These take the mapping away before they fail. */
	CHECK(syscall(SYS_remap_file_pages, map(held.fd, HELD), PAGE, 0, 2, 0) < 0);
	CHECK(syscall(SYS_remap_file_pages, map(held.fd, HELD), HELD, 0, 1, 0) < 0);
	check_marks(&held);
}

void madvise_and_mprotect_reach_nothing_more(void)
{
	static const int advice[] = { MADV_DONTNEED, MADV_REMOVE, MADV_DODUMP, 8 /* FREE */, 20 /* COLD */, 21 /* PAGEOUT */,
				      22 /* POPULATE_READ */, 23 /* POPULATE_WRITE */ };
	struct held held = hold();
	void *at = (void *)held.out;
	unsigned i;

	for (i = 0; i < sizeof(advice) / sizeof(advice[0]); i++) {
		madvise(at, HELD, advice[i]);
		CHECK(madvise(at, 3 * PAGE, advice[i]));
	}
	CHECK(madvise(at, HELD, MADV_DODUMP) && madvise(at, HELD, MADV_REMOVE));
	CHECK(mprotect(at, HELD, PROT_READ | PROT_EXEC) && errno == EACCES);
	CHECK(!mprotect(at, HELD, PROT_READ) && signal_of_store(at) == SIGSEGV);
	CHECK(!mprotect(at, HELD, PROT_READ | PROT_WRITE) && signal_of_store(at) == 0);
	held.out[3] = 9;
	__builtin_ia32_sfence();
	CHECK(held.seen[PAGE / 8 + 3] == 9);
	check_marks(&held);
}

void descriptor_has_no_other_way_in(void)
{
	struct held held = hold();
	char path[64], byte = 'x';
	int ends[2], again;
	loff_t at = 0;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", held.fd);
	CHECK(open(path, O_RDWR) < 0 && errno == ENXIO);
	CHECK(pread(held.fd, &byte, 1, 0) < 0 && pwrite(held.fd, &byte, 1, HELD) < 0);
	CHECK(ftruncate(held.fd, 4 * PAGE) && fallocate(held.fd, 0, 0, 4 * PAGE));
	CHECK(!pipe(ends) && splice(held.fd, &at, ends[1], NULL, PAGE, 0) < 0);
	CHECK(write(ends[1], &byte, 1) == 1 && splice(ends[0], NULL, held.fd, &at, 1, 0) < 0);
	CHECK(sendfile(ends[1], held.fd, &at, PAGE) < 0);
	CHECK(carve(held.fd, CROSSLANE_NTB_OUTBOUND, 0, PAGE) < 0 && errno == ENOTTY);
	again = dup(held.fd);
	close(held.fd);
	CHECK(mmap(NULL, 3 * PAGE, PROT_READ, MAP_SHARED, again, 0) == MAP_FAILED && map(again, HELD) != MAP_FAILED);
	check_marks(&held);
}

/* How many bytes each of /proc/PID/mem, process_vm_readv and process_vm_writev move of 8 at `at` in `pid`; -1: none. */
static void check_remote(pid_t pid, volatile void *at, ssize_t want)
{
	uint64_t word = 5;
	struct iovec here = { .iov_base = &word, .iov_len = 8 }, there = { .iov_base = (void *)at, .iov_len = 8 };
	char path[64];
	int memory;

	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	memory = open(path, O_RDWR | O_CLOEXEC);
	CHECK(memory >= 0);
	CHECK(pread(memory, &word, 8, (off_t)at) == want && pwrite(memory, &word, 8, (off_t)at) == want);
	CHECK(process_vm_readv(pid, &here, 1, &there, 1, 0) == want && process_vm_writev(pid, &here, 1, &there, 1, 0) == want);
	close(memory);
}

static void check_ptrace(pid_t pid, volatile void *at, int may)
{
	errno = 0;
	CHECK((ptrace(PTRACE_PEEKDATA, pid, at, NULL), errno == 0) == may);
	CHECK((ptrace(PTRACE_POKEDATA, pid, at, 6L) == 0) == may);
}

/*
 * Copies of the kernel's go by pages that it pins, and these cannot be: not of the range, and not beside it, before and after it ends.
 * Each call works on ordinary memory.
 */
void memory_calls_of_other_processes_reach_nothing(void)
{
	volatile uint64_t *plain = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct held held = hold();
	int status, taken;
	pid_t child = fork_child();

	if (!child)
		for (;;)
			pause();
	CHECK(!ptrace(PTRACE_ATTACH, child, NULL, NULL) && waitpid(child, &status, 0) == child && WIFSTOPPED(status));
	for (taken = 0; taken < 2; taken++) {
		check_remote(getpid(), plain, 8);
		check_remote(child, plain, 8);
		check_ptrace(child, plain, 1);
		check_remote(getpid(), held.out, -1);
		check_remote(child, held.out, -1);
		check_remote(child, held.out + HELD / 8, -1);
		check_ptrace(child, held.out, 0);
		check_ptrace(child, held.out + HELD / 8, 0);
		CHECK(held.seen[PAGE / 8] == 1);
		check_marks(&held);
		if (!taken)
			CHECK(!take_back(a, CROSSLANE_NTB_OUTBOUND, 8 * PAGE, HELD));
	}
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
}

static void send_descriptor(int socket, int descriptor)
{
	char byte = 0, control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec data = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);

	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(head), &descriptor, sizeof(int));
	CHECK(sendmsg(socket, &message, 0) == 1);
}

static int received_descriptor(int socket)
{
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec data = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	int descriptor;

	if (recvmsg(socket, &message, 0) != 1 || !CMSG_FIRSTHDR(&message))
		_exit(10);
	memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
	return descriptor;
}

/* Another user who gets the descriptor maps the range and no more; when it has ended, memory of its own. */
static void receiver(int socket)
{
	int fd = received_descriptor(socket);
	volatile uint64_t *own = map(fd, HELD);
	char byte = 0;

	if (own == MAP_FAILED)
		_exit(11);
	if (mmap(NULL, 3 * PAGE, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED ||
	    mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 2 * PAGE) != MAP_FAILED || take_back(fd, 1, 8 * PAGE, HELD) == 0)
		_exit(12);
	own[4] = 44;
	__builtin_ia32_sfence();
	if (write(socket, &byte, 1) != 1 || read(socket, &byte, 1) != 1)
		_exit(13);
	/* The range has ended. */
	own[4] = 45;
	map(fd, HELD)[5] = 46;
	__builtin_ia32_sfence();
	_exit(own[4] == 45 && map(fd, HELD)[4] == 0 ? 0 : 14);
}

void descriptor_passed_to_another_user_is_no_more(void)
{
	struct held held = hold();
	int ends[2], status;
	char byte;
	pid_t child;

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	child = fork_child();
	if (!child) {
		/* Another user's process gets no signal of the parent's death: it sees the socket's end. */
		close(ends[1]);
		close(held.fd);
		close(a);
		close(b);
		munmap((void *)held.out, HELD);
		munmap((void *)held.seen, 4 * PAGE);
		if (setgid(65534) || setuid(65534))
			_exit(9);
		receiver(ends[0]);
	}
	close(ends[0]);
	send_descriptor(ends[1], held.fd);
	CHECK(read(ends[1], &byte, 1) == 1 && held.seen[PAGE / 8 + 4] == 44);
	CHECK(!take_back(a, CROSSLANE_NTB_OUTBOUND, 8 * PAGE, HELD));
	CHECK(write(ends[1], &byte, 1) == 1);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(held.seen[PAGE / 8 + 4] == 44 && held.seen[PAGE / 8 + 5] == 0);
	check_marks(&held);
}

/*
 * What a child has by fork(), a mapping and a descriptor, ends like its parent's. The child says that it stores; when it is told that the
 * range has ended, it stores for 2 s more.
 */
static pid_t inheritor(const struct held *held, int told)
{
	pid_t child = fork_child();
	char byte;
	int i;

	if (child)
		return child;
	held->out[6] = 60;
	__builtin_ia32_sfence();
	if (read(told, &byte, 1) != 1)
		_exit(1);
	for (i = 0; i < 400; i++, usleep(5000)) {
		held->out[6] = 61;
		held->out[HELD / 8 - 1] = 62;
		map(held->fd, HELD)[7] = 63;
		__builtin_ia32_sfence();
	}
	_exit(0);
}

/* `seen` is as it was until the child has ended. */
static void check_nothing_comes(volatile uint64_t *seen, pid_t child, uint64_t first, uint64_t last)
{
	int status;

	/* It does store meanwhile. */
	CHECK(waitpid(child, &status, WNOHANG) == 0);
	do {
		CHECK(seen[PAGE / 8 + 6] == first && seen[PAGE / 8 + 7] == 0 && seen[3 * PAGE / 8 - 1] == last);
		usleep(1000);
	} while (waitpid(child, &status, WNOHANG) == 0);
	CHECK(status == 0);
}

void inherited_mapping_ends_when_taken_back(void)
{
	struct held held = hold();
	int told[2];
	pid_t child;

	CHECK(!pipe(told));
	child = inheritor(&held, told[0]);
	while (held.seen[PAGE / 8 + 6] != 60)
		usleep(1000);
	CHECK(!take_back(a, CROSSLANE_NTB_OUTBOUND, 8 * PAGE, HELD));
	CHECK(write(told[1], "", 1) == 1);
	check_nothing_comes(held.seen, child, 60, 2);
	check_marks(&held);
}

/* B's own range ends with the link, too: it looks at its memory by one of the next life. */
void inherited_mapping_ends_with_the_link(void)
{
	struct held held = hold();
	volatile uint64_t *seen;
	int told[2];
	pid_t child;

	CHECK(!pipe(told));
	child = inheritor(&held, told[0]);
	while (held.seen[PAGE / 8 + 6] != 60)
		usleep(1000);
	CHECK(!link_port(b, 0) && event(a).kind == CROSSLANE_NTB_LINK_DOWN && event(b).kind == CROSSLANE_NTB_LINK_DOWN);
	CHECK(!link_port(b, 1) && event(a).kind == CROSSLANE_NTB_LINK_UP && event(b).kind == CROSSLANE_NTB_LINK_UP);
	seen = map(carve(b, CROSSLANE_NTB_INBOUND, 7 * PAGE, 4 * PAGE), 4 * PAGE);
	CHECK(seen != MAP_FAILED && write(told[1], "", 1) == 1);
	check_nothing_comes(seen, child, 0, 0);
}

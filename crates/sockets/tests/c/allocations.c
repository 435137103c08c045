/* Large allocations are buffers: memory that the far end may map. They behave as all memory of malloc's does: every call
 * that makes, changes or frees it, threads, fork by every name, vfork and exec, too many of them, and sends from them. */
#include "quirk.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

enum { LARGE = 200000, MANY = 700, ROUNDS = 3000 };

static char *early;
static int buffers;
/* The compiler knows no better. */
static volatile size_t huge = PTRDIFF_MAX;

/* Memory from before anything else ran, and as large as can be. */
__attribute__((constructor)) static void first(void)
{
    early = malloc(LARGE);
    CHECK(early != NULL);
    memset(early, 'e', LARGE);
}

static int is_buffer(const void *at) { return at != NULL && ((uintptr_t)at & ((1ul << 30) - 1)) == 0; }

static void fill(char *at, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        at[i] = (char)(seed + i * 7 + i / 4093);
}

static int holds(const char *at, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        if (at[i] != (char)(seed + i * 7 + i / 4093))
            return 0;
    return 1;
}

static int is_zero(const char *at, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (at[i] != 0)
            return 0;
    return 1;
}

static void each_call(void)
{
    char *at = malloc(LARGE), *other;
    CHECK(is_buffer(at) == buffers && malloc_usable_size(at) >= LARGE);
    fill(at, LARGE, 1);
    errno = 7;
    free(at);
    CHECK(errno == 7);
    at = calloc(LARGE / 8, 8);
    CHECK(is_buffer(at) == buffers && is_zero(at, LARGE));
    fill(at, LARGE, 2);
    at = realloc(at, 3 * LARGE);
    CHECK(at && holds(at, LARGE, 2));
    fill(at, 3 * LARGE, 3);
    at = realloc(at, LARGE);
    CHECK(at && holds(at, LARGE, 3));
    at = realloc(at, 100);
    CHECK(at && holds(at, 100, 3) && !is_buffer(at));
    at = realloc(at, LARGE);
    CHECK(is_buffer(at) == buffers && holds(at, 100, 3));
    at = reallocarray(at, LARGE, 2);
    CHECK(at && holds(at, 100, 3));
    CHECK(reallocarray(at, huge, 3) == NULL && errno == ENOMEM);
    CHECK(realloc(at, huge) == NULL && errno == ENOMEM && holds(at, 100, 3));
    free(at);
    at = realloc(NULL, LARGE);
    CHECK(is_buffer(at) == buffers);
    CHECK(realloc(at, 0) == NULL);
    CHECK(malloc(huge) == NULL && errno == ENOMEM);
    CHECK(calloc(huge, 3) == NULL && errno == ENOMEM);
    for (size_t alignment = sizeof(void *); alignment <= 1u << 22; alignment *= 2) {
        void *place = NULL;
        CHECK(posix_memalign(&place, alignment, LARGE) == 0);
        other = aligned_alloc(alignment, LARGE / alignment * alignment + alignment);
        at = memalign(alignment, LARGE);
        CHECK(place && other && at);
        CHECK((uintptr_t)place % alignment == 0 && (uintptr_t)other % alignment == 0 && (uintptr_t)at % alignment == 0);
        memset(place, 1, LARGE), memset(other, 2, LARGE), memset(at, 3, LARGE);
        free(place), free(other), free(at);
    }
    void *place = &early;
    volatile size_t odd = 24;
    CHECK(posix_memalign(&place, odd, LARGE) == EINVAL && place == &early);
    at = valloc(LARGE), other = pvalloc(LARGE);
    CHECK((uintptr_t)at % 4096 == 0 && (uintptr_t)other % 4096 == 0);
    free(at), free(other), free(NULL);
    CHECK(malloc_usable_size(NULL) == 0);
    at = malloc(10);
    CHECK(!is_buffer(at) && malloc_usable_size(at) >= 10);
    free(at);
    for (size_t i = 0; i < LARGE; i++)
        CHECK(early[i] == 'e');
    early = realloc(early, 2 * LARGE);
    CHECK(early && early[0] == 'e' && early[LARGE - 1] == 'e');
    free(early);
}

/* It grows a little again and again, as vectors do. */
static void grows(void)
{
    char *at = NULL;
    for (size_t len = 1000; len < 8 << 20; len += len / 9) {
        at = realloc(at, len);
        CHECK(at);
        if (len > 1000)
            CHECK(at[0] == 'a' && at[len * 8 / 9 - 20] == 'z');
        at[0] = 'a';
        memset(at + 1, 'z', len - 1);
    }
    free(at);
}

static void *works(void *argument)
{
    unsigned state = (unsigned)(uintptr_t)argument * 2654435761u;
    struct { char *at; size_t len; unsigned seed; } held[16] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        state = state * 1103515245 + 12345;
        unsigned place = state >> 16 & 15, len = 1 + (state >> 4) % (state & 64 ? 150000 : 3000);
        if (held[place].at) {
            size_t look = held[place].len < 300 ? held[place].len : 300;
            CHECK(holds(held[place].at, look, held[place].seed));
            if (state & 128) {
                held[place].at = realloc(held[place].at, len);
                CHECK(holds(held[place].at, look < len ? look : len, held[place].seed));
            } else {
                free(held[place].at);
                held[place].at = state & 256 ? calloc(1, len) : malloc(len);
                if (state & 256)
                    CHECK(is_zero(held[place].at, len));
            }
        } else {
            held[place].at = malloc(len);
        }
        held[place].len = len, held[place].seed = state;
        fill(held[place].at, len < 300 ? len : 300, state);
        if (len > 300)
            held[place].at[len - 1] = 1;
    }
    for (int place = 0; place < 16; place++)
        free(held[place].at);
    return NULL;
}

static void threads(void)
{
    pthread_t all[4];
    for (uintptr_t i = 0; i < 4; i++)
        CHECK(pthread_create(&all[i], NULL, works, (void *)(i + 1)) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(all[i], NULL) == 0);
}

/* More of them than there can be buffers, and than there may be descriptors. */
static void too_many(void)
{
    static char *all[MANY];
    struct rlimit limit, low;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    low = limit;
    low.rlim_cur = 256;
    CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
    int count = 0;
    for (int i = 0; i < MANY; i++) {
        all[i] = malloc(70000);
        CHECK(all[i]);
        fill(all[i], 70000, (unsigned)i);
        count += is_buffer(all[i]);
    }
    CHECK(buffers ? count > 0 && count <= 64 : count == 0);
    int fd = dup(0);
    CHECK(fd >= 0 && close(fd) == 0);
    for (int i = 0; i < MANY; i++)
        CHECK(holds(all[i], 70000, (unsigned)i));
    for (int i = 0; i < MANY; i++)
        free(all[i]);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static pid_t raw_clone(void) { return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL); }

#ifdef SYS_fork
static pid_t raw_fork(void) { return (pid_t)syscall(SYS_fork); }
#else
#define raw_fork raw_clone
#endif

/* Neither sees what the other writes, before or after it has touched that memory itself. */
static void child_has_a_copy(pid_t (*way)(void))
{
    int up[2], down[2];
    char word;
    CHECK(pipe(up) == 0 && pipe(down) == 0);
    char *at = malloc(LARGE), *freed = malloc(LARGE);
    fill(at, LARGE, 5);
    fill(freed, LARGE, 6);
    pid_t child = way();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(read(down[0], &word, 1) == 1);
        CHECK(holds(at, LARGE, 5) && holds(freed, LARGE, 6));
        fill(at, LARGE, 7);
        free(freed);
        char *own = malloc(LARGE);
        CHECK(is_buffer(own) == buffers);
        fill(own, LARGE, 8);
        CHECK(write(up[1], "x", 1) == 1);
        CHECK(read(down[0], &word, 1) == 1);
        CHECK(holds(at, LARGE, 7) && holds(own, LARGE, 8));
        at = realloc(at, 2 * LARGE);
        CHECK(holds(at, LARGE, 7));
        free(at), free(own);
        _exit(0);
    }
    fill(at + LARGE / 2, LARGE / 2, 9);
    free(freed);
    char *own = malloc(LARGE);
    fill(own, LARGE, 10);
    CHECK(write(down[1], "x", 1) == 1 && read(up[0], &word, 1) == 1);
    CHECK(holds(at + LARGE / 2, LARGE / 2, 9) && at[0] == 5 && holds(own, LARGE, 10));
    fill(at, LARGE, 11);
    CHECK(write(down[1], "x", 1) == 1);
    reap(child);
    CHECK(holds(at, LARGE, 11) && holds(own, LARGE, 10));
    free(at), free(own);
    close(up[0]), close(up[1]), close(down[0]), close(down[1]);
}

static void *allots_on(void *stop)
{
    while (!*(volatile int *)stop)
        free(malloc(LARGE));
    return NULL;
}

/* Another thread allots and frees all the time while this one forks. */
static void forks_in_threads(void)
{
    volatile int stop = 0;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, allots_on, (void *)&stop) == 0);
    for (int i = 0; i < 30; i++)
        child_has_a_copy(fork);
    stop = 1;
    CHECK(pthread_join(thread, NULL) == 0);
}

static void spawns(void)
{
    char *at = malloc(LARGE);
    fill(at, LARGE, 3);
    CHECK(system("exit 3") == 3 << 8);
    pid_t child = vfork();
    if (child == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(9);
    }
    reap(child);
    CHECK(holds(at, LARGE, 3) && is_buffer(at) == buffers);
    free(at);
}

/* Behind a system call filter that kills whoever makes or changes files. */
static void confined(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ftruncate, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fcntl, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    char *before = malloc(LARGE);
    pid_t child = fork();
    if (child == 0) {
        char *own = malloc(LARGE);
        CHECK(is_buffer(own) == buffers);
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
            _exit(0);
        char *at = malloc(LARGE);
        CHECK(at && !is_buffer(at));
        pid_t inner = fork();
        if (inner == 0) {
            memset(own, 2, LARGE), free(own);
            _exit(0);
        }
        reap(inner);
        free(at), free(own), free(before);
        at = calloc(1, 3 * LARGE);
        CHECK(is_zero(at, 3 * LARGE));
        at = realloc(at, 9 * LARGE);
        memset(at, 1, 9 * LARGE);
        free(at);
        _exit(0);
    }
    reap(child);
    free(before);
}

struct sink {
    int fd;
    size_t total;
};

static void *takes(void *argument)
{
    struct sink *sink = argument;
    char *got = malloc(4 << 20);
    for (unsigned round = 0; round < sink->total; round++) {
        receive_all(sink->fd, got, 3 << 20);
        CHECK(holds(got, 3 << 20, round));
    }
    free(got);
    return NULL;
}

/* What is sent from one arrives as it was when send returned, whatever becomes of the memory then. */
static void sends(void)
{
    int ends[2];
    pair(ends);
    struct sink sink = {ends[1], 40};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, takes, &sink) == 0);
    char *kept = malloc(3 << 20);
    for (unsigned round = 0; round < sink.total; round++) {
        char *at = round % 4 == 3 ? malloc(3 << 20) : kept;
        CHECK(at != kept || round < 20 || is_buffer(at) <= buffers);
        fill(at, 3 << 20, round);
        send_all(ends[0], at, 3 << 20);
        memset(at, 'x', 3 << 20);
        if (at != kept)
            free(at);
        if (round == 20) {
            pid_t child = fork();
            if (child == 0) {
                memset(kept, 'y', 3 << 20);
                _exit(0);
            }
            reap(child);
        }
    }
    CHECK(pthread_join(thread, NULL) == 0);
    free(kept);
    close(ends[0]), close(ends[1]);
}

int main(void)
{
    buffers = getenv("CROSSLANE_MALLOC") != NULL;
    each_call();
    grows();
    too_many();
    threads();
    pid_t (*ways[])(void) = {fork, _Fork, raw_fork, raw_clone};
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++)
        for (int i = 0; i < 3; i++)
            child_has_a_copy(ways[way]);
    forks_in_threads();
    spawns();
    confined();
    sends();
    return 0;
}

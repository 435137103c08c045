/* Large blocking sends from memory of xl_alloc, which the far program takes bytes out of by itself (XL_TRANSFER_READ_ZCOPY): whatever comes
 * in between (signals, limits of time, readers that are slow, peek, poll or wait for edges, forks), the counts are those of
 * the bytes that arrive, each byte arrives once, and the buffer is the program's again when the call is over. Not on posted stores. */
#include "quirk.h"

#include "../../../../include/crosslane.h"
#include <sys/epoll.h>

#define GARBAGE 0xee

static unsigned char pattern(uint64_t at) { return (unsigned char)(at ^ at >> 8 ^ at >> 16); }

static void fill(unsigned char *bytes, uint64_t from, size_t len)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = pattern(from + i);
}

static void check(const unsigned char *bytes, uint64_t from, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (bytes[i] != pattern(from + i)) {
            fprintf(stderr, "byte %llu is %d, not %d\n", (unsigned long long)(from + i), bytes[i], pattern(from + i));
            _exit(1);
        }
}

static struct xl_stats stats(int fd)
{
    struct xl_stats now = {0};
    socklen_t len = sizeof now;
    if (getenv("LD_PRELOAD"))
        CHECK(getsockopt(fd, SOL_CROSSLANE, XL_STATS, &now, &len) == 0);
    return now;
}

/* How a reader reads. */
struct reader {
    size_t piece;
    int pause_us;
    int peeks;
    int polls;
    uint32_t epolls;
};

static ssize_t take(int fd, int epoll, const struct reader *how, unsigned char *bytes, uint64_t at)
{
    struct epoll_event event;
    ssize_t got = -1;
    while (how->epolls) {
        got = recv(fd, bytes, how->piece, MSG_DONTWAIT);
        if (got >= 0 || errno != EAGAIN)
            return got;
        CHECK(epoll_wait(epoll, &event, 1, 20000) == 1);
    }
    if (how->polls)
        CHECK(ready(fd, POLLIN) & (POLLIN | POLLHUP));
    if (how->peeks) {
        got = recv(fd, bytes, how->piece, MSG_PEEK);
        CHECK(got >= 0);
        check(bytes, at, (size_t)got);
    }
    return recv(fd, bytes, how->piece, 0);
}

/* Reads until the end and checks all; exits with 0 if that was `total`, which comes first, by a pipe. */
static void read_all(int fd, int totals, struct reader how)
{
    unsigned char *bytes = malloc(how.piece);
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = how.epolls};
    uint64_t at = 0, total = 0;
    CHECK(bytes != NULL && epoll >= 0);
    CHECK(!how.epolls || epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
    for (;;) {
        ssize_t got = take(fd, epoll, &how, bytes, at);
        CHECK(got >= 0);
        if (got == 0)
            break;
        check(bytes, at, (size_t)got);
        at += (uint64_t)got;
        if (how.pause_us)
            usleep((useconds_t)how.pause_us);
    }
    CHECK(read(totals, &total, sizeof total) == sizeof total);
    if (at != total)
        fprintf(stderr, "%llu bytes of %llu\n", (unsigned long long)at, (unsigned long long)total);
    _exit(at != total);
}

/* A stream to a reader. */
struct line {
    int fd;
    int totals;
    pid_t reader;
    uint64_t sent;
};

static struct line begin(struct reader how)
{
    int ends[2], totals[2], way = XL_TRANSFER_READ_ZCOPY;
    struct line line = {0};
    pair(ends);
    CHECK(pipe(totals) == 0);
    if (getenv("LD_PRELOAD"))
        CHECK(setsockopt(ends[0], SOL_CROSSLANE, XL_TRANSFER, &way, sizeof way) == 0);
    line.reader = fork();
    CHECK(line.reader >= 0);
    if (line.reader == 0) {
        CHECK(close(ends[0]) == 0 && close(totals[1]) == 0);
        read_all(ends[1], totals[0], how);
    }
    CHECK(close(ends[1]) == 0 && close(totals[0]) == 0);
    line.fd = ends[0];
    line.totals = totals[1];
    return line;
}

/* Sends `len` bytes by as many calls as it takes; the buffer holds something else at once after each. */
static void put(struct line *line, unsigned char *bytes, size_t len, int flags)
{
    for (size_t done = 0; done < len;) {
        fill(bytes, line->sent, len - done);
        ssize_t sent = send(line->fd, bytes, len - done, flags | MSG_NOSIGNAL);
        memset(bytes, GARBAGE, len - done);
        if (sent < 0 && errno == EAGAIN && flags & MSG_DONTWAIT) {
            ready(line->fd, POLLOUT);
            continue;
        }
        if (sent < 0 && errno == EINTR)
            continue;
        CHECK(sent > 0);
        done += (size_t)sent;
        line->sent += (uint64_t)sent;
    }
}

static struct xl_stats end(struct line *line)
{
    struct xl_stats sent = stats(line->fd);
    CHECK(shutdown(line->fd, SHUT_WR) == 0);
    CHECK(write(line->totals, &line->sent, sizeof line->sent) == sizeof line->sent);
    reap(line->reader);
    CHECK(close(line->fd) == 0 && close(line->totals) == 0);
    CHECK(!getenv("LD_PRELOAD") || sent.tx_bytes == line->sent);
    return sent;
}

enum { SIZE = 4 << 20 };
static unsigned char *bytes;

/* Memory that is announced, under the library. */
static unsigned char *allot(void)
{
    unsigned char *memory = xl_alloc ? xl_alloc(SIZE, 0) : malloc(SIZE);
    CHECK(memory != NULL && (xl_alloc || !getenv("LD_PRELOAD")));
    return memory;
}

static void readers(void)
{
    static const struct reader ways[] = {
        {.piece = 1 << 20}, {.piece = 5000}, {.piece = 100001, .peeks = 1}, {.piece = 60000, .polls = 1},
        {.piece = 77777, .epolls = EPOLLIN}, {.piece = 77777, .epolls = EPOLLIN | EPOLLET},
        {.piece = 300000, .pause_us = 20000}, {.piece = 3 << 20, .pause_us = 1000},
    };
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        int announces = getenv("LD_PRELOAD") != NULL && !ways[i].peeks;
        for (int tries = 0;; tries++) {
            struct line line = begin(ways[i]);
            for (size_t round = 0; round < 12; round++)
                put(&line, bytes, round % 3 == 2 ? 100 + round : 65536 + round * 40000, 0);
            struct xl_stats sent = end(&line);
            if (!announces || sent.tx_read_zcopy > 0)
                break;
            /* A reader that gets no processor in time fetches nothing. */
            CHECK(tries < 10);
        }
    }
}

static volatile int alarms;

static void count_alarm(int signal)
{
    (void)signal;
    alarms++;
}

/* Without SA_RESTART a signal ends the call with what was sent, or EINTR. */
static void signals(void)
{
    struct line line = begin((struct reader){.piece = 100000, .pause_us = 2000});
    struct sigaction action = {.sa_handler = count_alarm};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct itimerspec period = {{0, 1500000}, {0, 1500000}}, stop = {{0, 0}, {0, 0}};
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &period, NULL) == 0);
    for (int round = 0; round < 4; round++)
        put(&line, bytes, SIZE / 2, 0);
    CHECK(timer_settime(timer, 0, &stop, NULL) == 0 && timer_delete(timer) == 0);
    CHECK(alarms > 0);
    end(&line);
}

/* A reader that does not read: the call ends in time, and what it says was sent is what comes. */
static void limits(void)
{
    struct timeval limit = {.tv_usec = 200000};
    struct line line = begin((struct reader){.piece = 1 << 20, .pause_us = 700000});
    CHECK(setsockopt(line.fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0);
    int ended = 0;
    for (int round = 0; round < 60 && !ended; round++) {
        fill(bytes, line.sent, SIZE);
        int64_t before = now_ms();
        ssize_t sent = send(line.fd, bytes, SIZE, MSG_NOSIGNAL);
        memset(bytes, GARBAGE, SIZE);
        CHECK(now_ms() - before < 20000);
        CHECK(sent > 0 || errno == EAGAIN);
        ended = sent != (ssize_t)SIZE;
        line.sent += sent > 0 ? (uint64_t)sent : 0;
    }
    CHECK(ended);
    end(&line);
}

/* A send that must not wait announces nothing. */
static void never_waiting(void)
{
    struct line line = begin((struct reader){.piece = 1 << 20});
    for (int round = 0; round < 6; round++)
        put(&line, bytes, 1 << 20, MSG_DONTWAIT);
    struct xl_stats sent = end(&line);
    CHECK(sent.tx_read_zcopy == 0 && sent.tx_cancelled == 0 && sent.tx_control == 0);
}

static void *forker(void *nothing)
{
    (void)nothing;
    for (int i = 0; i < 30; i++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            _exit(0);
        reap(pid);
        usleep(1000);
    }
    return NULL;
}

/* Other threads fork while the buffer is announced. */
static void forks(void)
{
    pthread_t thread;
    struct line line = begin((struct reader){.piece = 200000, .pause_us = 3000});
    CHECK(pthread_create(&thread, NULL, forker, NULL) == 0);
    for (int round = 0; round < 6; round++)
        put(&line, bytes, SIZE / 2, 0);
    CHECK(pthread_join(thread, NULL) == 0);
    end(&line);
}

/* The reader is killed in the middle: the call ends. */
static void killed(void)
{
    struct line line = begin((struct reader){.piece = 4096, .pause_us = 1000});
    ssize_t sent = 1;
    for (int round = 0; round < 40 && sent > 0; round++) {
        if (round == 1)
            CHECK(kill(line.reader, SIGKILL) == 0);
        fill(bytes, line.sent, SIZE);
        sent = send(line.fd, bytes, SIZE, MSG_NOSIGNAL);
        line.sent += sent > 0 ? (uint64_t)sent : 0;
    }
    CHECK(sent < 0 && (errno == ECONNRESET || errno == EPIPE));
    CHECK(waitpid(line.reader, NULL, 0) == line.reader);
    CHECK(close(line.fd) == 0 && close(line.totals) == 0);
}

/* The writer is killed in the middle: what comes is right, and then it ends. */
static void writer_killed(void)
{
    int ends[2], way = XL_TRANSFER_READ_ZCOPY;
    pair(ends);
    pid_t writer = fork();
    CHECK(writer >= 0);
    if (writer == 0) {
        struct line line = {.fd = ends[0]};
        CHECK(close(ends[1]) == 0);
        if (getenv("LD_PRELOAD"))
            CHECK(setsockopt(ends[0], SOL_CROSSLANE, XL_TRANSFER, &way, sizeof way) == 0);
        bytes = allot();
        for (;;)
            put(&line, bytes, SIZE, 0);
    }
    CHECK(close(ends[0]) == 0);
    uint64_t at = 0;
    for (;;) {
        ssize_t got = recv(ends[1], bytes, 50000, 0);
        CHECK(got >= 0 || errno == ECONNRESET);
        if (got <= 0)
            break;
        check(bytes, at, (size_t)got);
        if (at <= 10000000 && at + (uint64_t)got > 10000000)
            CHECK(kill(writer, SIGKILL) == 0);
        at += (uint64_t)got;
    }
    CHECK(at > 10000000 && waitpid(writer, NULL, 0) == writer && close(ends[1]) == 0);
}

int main(void)
{
    bytes = allot();
    readers();
    signals();
    limits();
    never_waiting();
    forks();
    killed();
    writer_killed();
    return 0;
}

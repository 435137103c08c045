/* What the quirk programs share. Each of them shows one behaviour of sockets that programs rely on; each passes
 * on the kernel's TCP, and must pass on streams. Exit code 0: as expected; 1: not, with the reason on stderr;
 * 77: cannot be shown here. The address to use is in QUIRK_ADDRESS (IPv4, default 127.0.0.1). */
#ifndef QUIRK_H
#define QUIRK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SKIPPED 77
#define CHECK(what)                                                                                              \
    do {                                                                                                         \
        if (!(what)) {                                                                                           \
            fprintf(stderr, "%s:%d: not so: %s (errno %d: %s)\n", __FILE__, __LINE__, #what, errno,             \
                    strerror(errno));                                                                            \
            _exit(1);                                                                                            \
        }                                                                                                        \
    } while (0)
/* The call fails with this error. */
#define FAILS(call, error)                                                                                       \
    do {                                                                                                         \
        errno = 0;                                                                                               \
        long outcome_ = (long)(call);                                                                            \
        if (outcome_ != -1 || errno != (error)) {                                                                \
            fprintf(stderr, "%s:%d: %s gave %ld with errno %d, not -1 with %s\n", __FILE__, __LINE__, #call,    \
                    outcome_, errno, #error);                                                                    \
            _exit(1);                                                                                            \
        }                                                                                                        \
    } while (0)

/* No program runs for longer than this many seconds, whatever hangs. */
__attribute__((constructor)) static inline void bounded(void) { alarm(60); }

static inline struct sockaddr_in here(int port)
{
    const char *text = getenv("QUIRK_ADDRESS");
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    CHECK(inet_pton(AF_INET, text ? text : "127.0.0.1", &at.sin_addr) == 1);
    return at;
}

/* A listener on a port of the kernel's choice; its address in `at`. */
static inline int listener(struct sockaddr_in *at)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t len = sizeof *at;
    *at = here(0);
    CHECK(fd >= 0);
    CHECK(bind(fd, (struct sockaddr *)at, sizeof *at) == 0);
    CHECK(listen(fd, 16) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)at, &len) == 0);
    return fd;
}

static inline int dial(const struct sockaddr_in *at)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    CHECK(connect(fd, (const struct sockaddr *)at, sizeof *at) == 0);
    return fd;
}

/* A connection to oneself: ends[0] connected, ends[1] accepted. */
static inline void pair(int ends[2])
{
    struct sockaddr_in at;
    int fd = listener(&at);
    ends[0] = dial(&at);
    ends[1] = accept(fd, NULL, NULL);
    CHECK(ends[1] >= 0);
    CHECK(close(fd) == 0);
}

static inline void send_all(int fd, const void *data, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t sent = send(fd, (const char *)data + done, len - done, MSG_NOSIGNAL);
        CHECK(sent > 0);
        done += (size_t)sent;
    }
}

static inline void receive_all(int fd, void *data, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t got = recv(fd, (char *)data + done, len - done, 0);
        CHECK(got > 0);
        done += (size_t)got;
    }
}

/* Exactly this text comes next. */
static inline void expect(int fd, const char *text)
{
    char got[256] = "";
    CHECK(strlen(text) < sizeof got);
    receive_all(fd, got, strlen(text));
    if (memcmp(got, text, strlen(text)) != 0) {
        fprintf(stderr, "got \"%s\", not \"%s\"\n", got, text);
        _exit(1);
    }
}

/* The child ended in order. */
static inline void reap(pid_t pid)
{
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Waits until `fd` is ready for `events`, at most 10 s. */
static inline short ready(int fd, short events)
{
    struct pollfd poller = {.fd = fd, .events = events};
    CHECK(poll(&poller, 1, 10000) == 1);
    return poller.revents;
}

/* Waits until a thread of this process, which stores its number in `tid`, has slept for some milliseconds. */
static inline void await_sleep(const volatile pid_t *tid)
{
    char path[64], text[256];
    while (*tid == 0)
        usleep(1000);
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)*tid);
    for (int asleep = 0; asleep < 3; usleep(2000)) {
        int fd = open(path, O_RDONLY);
        ssize_t got = read(fd, text, sizeof text - 1);
        CHECK(got > 0 && close(fd) == 0);
        text[got] = 0;
        const char *name_end = strrchr(text, ')');
        asleep = name_end != NULL && name_end[2] == 'S' ? asleep + 1 : 0;
    }
}

/* An empty file without a name. */
static inline int unnamed_file(void)
{
    FILE *file = tmpfile();
    CHECK(file != NULL);
    int fd = dup(fileno(file));
    CHECK(fd >= 0 && fclose(file) == 0);
    return fd;
}

static inline int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

#endif

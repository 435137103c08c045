/* What the quirk programs about epoll share. */
#ifndef QUIRK_EPOLL_H
#define QUIRK_EPOLL_H

#include "quirk.h"
#include <sys/epoll.h>

static inline int set_of(void)
{
    int set = epoll_create1(EPOLL_CLOEXEC);
    CHECK(set >= 0);
    return set;
}

static inline int change(int set, int operation, int fd, uint32_t events, uint64_t data)
{
    struct epoll_event event = {.events = events, .data.u64 = data};
    return epoll_ctl(set, operation, fd, &event);
}

static inline void add(int set, int fd, uint32_t events)
{
    CHECK(change(set, EPOLL_CTL_ADD, fd, events, (uint64_t)fd) == 0);
}

/* The one event that comes within `timeout` ms, for `fd`; 0 if none comes. */
static inline uint32_t event_of(int set, int fd, int timeout)
{
    struct epoll_event events[4];
    int count = epoll_wait(set, events, 4, timeout);
    CHECK(count == 0 || count == 1);
    if (count == 0)
        return 0;
    CHECK(events[0].data.u64 == (uint64_t)fd);
    return events[0].events;
}

static inline void fill(int fd)
{
    static char block[1 << 16];
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    while (send(fd, block, sizeof block, MSG_NOSIGNAL) > 0)
        ;
    CHECK(errno == EAGAIN);
}

/* Reads all that is there, and for as long as something comes within 20 ms. */
static inline size_t drain(int fd)
{
    static char block[1 << 16];
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    size_t all = 0;
    while (poll(&poller, 1, 20) == 1) {
        ssize_t got = recv(fd, block, sizeof block, MSG_DONTWAIT);
        CHECK(got > 0);
        all += (size_t)got;
    }
    return all;
}

#endif

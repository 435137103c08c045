/* Calls that wait for descriptors. */
#ifndef WAITING_H
#define WAITING_H
#include "core.h"

#define MOST 6 /* Descriptors of one poll. */

/* A stream's quiet connection is asked for its end every 10 us, not at each call: let that be over. */
static void let_be_seen(void)
{
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - begin.tv_sec) * 1000000000 + now.tv_nsec - begin.tv_nsec < 12000);
}

/* milliseconds, form (0 poll, 1 ppoll), then slot and events by turns */
static void call_poll(const struct op *op)
{
    struct pollfd fds[MOST];
    int count = (op->count - 2) / 2, ms = (int)arg(op, 0);
    struct timespec limit = {ms / 1000, (ms % 1000) * 1000000L};
    if (count > MOST)
        count = MOST;
    for (int at = 0; at < count; at++)
        fds[at] = (struct pollfd){fd_of(arg(op, 2 + 2 * at)), (short)arg(op, 3 + 2 * at), 0x7a7a};
    let_be_seen();
    if (arg(op, 1) == 0)
        out_result(poll(fds, (nfds_t)count, ms));
    else
        out_result(ppoll(fds, (nfds_t)count, ms < 0 ? NULL : &limit, NULL));
    out(" revents=");
    for (int at = 0; at < count; at++)
        out("%x,", (unsigned short)fds[at].revents);
}

static void out_set(const char *name, fd_set *set, const int *fds, int count)
{
    out(" %s=", name);
    for (int at = 0; at < count; at++)
        out("%d", fds[at] >= 0 && fds[at] < FD_SETSIZE && FD_ISSET(fds[at], set) ? 1 : 0);
}

/* milliseconds, form (0 select, 1 pselect, 2 select without times), number of descriptors (0: enough), then slot and
 * which sets (1 in, 2 out, 4 exceptions) by turns */
static void call_select(const struct op *op)
{
    fd_set sets[3];
    int fds[MOST], count = (op->count - 3) / 2, ms = (int)arg(op, 0), top = 0;
    struct timeval limit = {ms / 1000, (ms % 1000) * 1000};
    struct timespec finer = {ms / 1000, (ms % 1000) * 1000000L};
    if (count > MOST)
        count = MOST;
    for (int which = 0; which < 3; which++)
        FD_ZERO(&sets[which]);
    for (int at = 0; at < count; at++) {
        fds[at] = fd_of(arg(op, 3 + 2 * at));
        if (fds[at] < 0 || fds[at] >= FD_SETSIZE)
            continue;
        for (int which = 0; which < 3; which++)
            if (arg(op, 4 + 2 * at) >> which & 1)
                FD_SET(fds[at], &sets[which]);
        top = fds[at] >= top ? fds[at] + 1 : top;
    }
    if (arg(op, 2) != 0)
        top = (int)arg(op, 2);
    let_be_seen();
    if (arg(op, 1) == 1)
        out_result(pselect(top, &sets[0], &sets[1], &sets[2], ms < 0 ? NULL : &finer, NULL));
    else
        out_result(select(top, &sets[0], &sets[1], &sets[2], ms < 0 ? NULL : &limit));
    out_set("in", &sets[0], fds, count);
    out_set("out", &sets[1], fds, count);
    out_set("except", &sets[2], fds, count);
}

/* slot flags */
static void call_epoll_create(const struct op *op)
{
    int fd = epoll_create1((int)arg(op, 1));
    out_result(fd);
    keep(arg(op, 0), fd);
}

/* set-slot operation slot events, data; events -1: no event */
static void call_epoll_ctl(const struct op *op)
{
    struct epoll_event event = {.events = (uint32_t)arg(op, 3), .data.u64 = (uint64_t)arg(op, 4)};
    out_result(epoll_ctl(fd_of(arg(op, 0)), (int)arg(op, 1), fd_of(arg(op, 2)), arg(op, 3) == -1 ? NULL : &event));
}

/* set-slot most milliseconds form (0 epoll_wait, 1 epoll_pwait, 2 epoll_pwait2) */
static void call_epoll_wait(const struct op *op)
{
    struct epoll_event events[9];
    int fd = fd_of(arg(op, 0)), most = (int)arg(op, 1), ms = (int)arg(op, 2), got;
    struct timespec limit = {ms / 1000, (ms % 1000) * 1000000L};
    memset(events, CANARY, sizeof events);
    if (most > 8)
        most = 8;
    let_be_seen();
    if (arg(op, 3) == 0)
        got = epoll_wait(fd, events, most, ms);
    else if (arg(op, 3) == 1)
        got = epoll_pwait(fd, events, most, ms, NULL);
    else
        got = epoll_pwait2(fd, events, most, ms < 0 ? NULL : &limit, NULL);
    out_result(got);
    for (int at = 0; at < got && at < 8; at++)
        out(" ev=%llx:%x", (unsigned long long)events[at].data.u64, events[at].events);
    if (!untouched(events, got > 0 ? (size_t)got * sizeof events[0] : 0, sizeof events))
        out(" events_beyond=1");
}

/* What each descriptor of this process is ready for, and how much it can be read. */
static void call_probe(const struct op *op)
{
    const short all = POLLIN | POLLPRI | POLLOUT | POLLRDHUP;
    (void)op;
    for (int name = 0; name < SLOTS; name++) {
        if (slot[name] < 0)
            continue;
        struct pollfd fd = {slot[name], all, 0};
        let_be_seen();
        int unread = -1, got = poll(&fd, 1, 0);
        if (ioctl(slot[name], FIONREAD, &unread) != 0)
            unread = -errno;
        out(" %d=%d:%x/%d", name, got, (unsigned short)fd.revents, unread);
    }
}

static void call_sleep(const struct op *op)
{
    struct timespec some = {0, arg(op, 0) * 1000000L};
    while (nanosleep(&some, &some) != 0) {
    }
}

#endif

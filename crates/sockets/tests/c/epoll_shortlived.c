/* Sets that live for one wait, and streams that come into a set while somebody already sleeps on it, in whichever way. */
#include "epoll.h"

struct sleeper {
    int set, fd, by;
};
enum { BY_WAIT, BY_POLL, BY_OUTER };

/* Sleeps until the set tells of `fd`, at most 10 s. */
static void *sleeps(void *argument)
{
    struct sleeper *it = argument;
    struct pollfd poller = {.fd = it->set, .events = POLLIN};
    int outer = set_of();
    if (it->by == BY_POLL)
        CHECK(poll(&poller, 1, 10000) == 1);
    if (it->by == BY_OUTER) {
        add(outer, it->set, EPOLLIN);
        CHECK(event_of(outer, it->set, 10000) == EPOLLIN);
    }
    CHECK(event_of(it->set, it->fd, 10000) == EPOLLIN);
    CHECK(close(outer) == 0);
    return NULL;
}

/* A stream comes into a set on which a thread sleeps; its byte is there before or comes later. */
static void comes_late(int by, int early, int others)
{
    int ends[2], other[2], set = set_of();
    pair(ends);
    pair(other);
    if (others)
        add(set, other[0], EPOLLIN);
    struct sleeper it = {.set = set, .fd = ends[0], .by = by};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, sleeps, &it) == 0);
    usleep(20000);
    if (early)
        send_all(ends[1], "a", 1);
    add(set, ends[0], EPOLLIN);
    if (!early) {
        usleep(20000);
        send_all(ends[1], "a", 1);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(close(set) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
    CHECK(close(other[0]) == 0 && close(other[1]) == 0);
}

static void *answers(void *argument)
{
    int fd = *(int *)argument;
    char byte;
    while (recv(fd, &byte, 1, 0) == 1) {
        usleep(byte == 's' ? 2000 : 0);
        send_all(fd, &byte, 1);
    }
    return NULL;
}

/* A new set for each wait, as select-like wrappers of epoll make them; every fourth answer is slow. */
static void one_wait_each(void)
{
    int ends[2];
    pair(ends);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, answers, &ends[1]) == 0);
    for (int i = 0; i < 200; i++) {
        char byte = i % 4 == 3 ? 's' : 'f';
        int set = set_of();
        send_all(ends[0], &byte, 1);
        add(set, ends[0], EPOLLIN);
        CHECK(event_of(set, ends[0], 10000) == EPOLLIN);
        CHECK(recv(ends[0], &byte, 1, 0) == 1);
        CHECK(event_of(set, ends[0], 0) == 0);
        CHECK(close(set) == 0);
    }
    CHECK(shutdown(ends[0], SHUT_WR) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

/* The far side is killed: told in the first wait of a new set, with and without waiting, and in a set that is busy with another
 * stream. */
static void far_side_killed(int timeout, int busy)
{
    struct sockaddr_in at;
    int fd = listener(&at), turns[2], other[2], go[2];
    CHECK(pipe(turns) == 0 && pipe(go) == 0);
    pair(other);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int mine = dial(&at);
        send_all(mine, "x", 1);
        CHECK(write(turns[1], "x", 1) == 1);
        for (;;)
            pause();
    }
    int theirs = accept(fd, NULL, NULL);
    char byte;
    CHECK(read(turns[0], &byte, 1) == 1);
    expect(theirs, "x");
    int set = set_of();
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, answers, &other[1]) == 0);
    if (busy) {
        add(set, other[0], EPOLLIN);
        add(set, theirs, EPOLLIN | EPOLLRDHUP);
    }
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, NULL, 0) == child);
    if (!busy) {
        ready(theirs, POLLIN);
        add(set, theirs, EPOLLIN | EPOLLRDHUP);
        uint32_t told = event_of(set, theirs, timeout);
        CHECK(told & EPOLLRDHUP);
    }
    int seen = !busy;
    for (int64_t end = now_ms() + 10000; !seen;) {
        CHECK(now_ms() < end);
        struct epoll_event events[4];
        send_all(other[0], "f", 1);
        int count = epoll_wait(set, events, 4, 1000);
        CHECK(count > 0);
        for (int i = 0; i < count; i++)
            if (events[i].data.u64 == (uint64_t)theirs)
                seen = (events[i].events & EPOLLRDHUP) != 0;
        CHECK(recv(other[0], &byte, 1, 0) == 1);
    }
    CHECK(shutdown(other[0], SHUT_WR) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(close(set) == 0 && close(theirs) == 0 && close(fd) == 0 && close(other[0]) == 0 && close(other[1]) == 0);
    CHECK(close(turns[0]) == 0 && close(turns[1]) == 0 && close(go[0]) == 0 && close(go[1]) == 0);
}

/* What a set that is gone wanted to know is not told to the next one: the end of another stream. */
static void next_set(void)
{
    int one[2], two[2];
    pair(one);
    pair(two);
    int set = set_of();
    add(set, one[0], EPOLLIN | EPOLLRDHUP);
    CHECK(event_of(set, one[0], 20) == 0);
    CHECK(close(set) == 0);
    set = set_of();
    add(set, two[0], EPOLLIN | EPOLLRDHUP);
    CHECK(event_of(set, two[0], 20) == 0);
    CHECK(close(one[1]) == 0);
    CHECK(event_of(set, two[0], 50) == 0);
    /* Nor to a child's. */
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int inner = set_of();
        add(inner, one[0], EPOLLIN);
        CHECK(event_of(inner, one[0], 10000) == EPOLLIN);
        CHECK(close(inner) == 0);
        inner = set_of();
        add(inner, two[0], EPOLLIN);
        CHECK(event_of(inner, two[0], 50) == 0);
        _exit(0);
    }
    reap(child);
    send_all(two[1], "a", 1);
    CHECK(event_of(set, two[0], 10000) == EPOLLIN);
    CHECK(close(set) == 0 && close(one[0]) == 0 && close(two[0]) == 0 && close(two[1]) == 0);
}

int main(void)
{
    for (int by = BY_WAIT; by <= BY_OUTER; by++)
        for (int early = 0; early < 2; early++)
            for (int others = 0; others < 2; others++)
                comes_late(by, early, others);
    one_wait_each();
    far_side_killed(0, 0);
    far_side_killed(10000, 0);
    far_side_killed(0, 1);
    next_set();
    return 0;
}

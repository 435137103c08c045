/* Sets that are dup'ed, polled, nested, inherited and shared between threads; streams that are dup'ed. Not on posted stores. */
#include "epoll.h"

static void duplicates(void)
{
    int ends[2], set = set_of();
    pair(ends);
    add(set, ends[0], EPOLLIN);
    int other = dup(set);
    CHECK(other >= 0);
    send_all(ends[1], "x", 1);
    CHECK(event_of(other, ends[0], 1000) == EPOLLIN);
    close(set);
    CHECK(event_of(other, ends[0], 1000) == EPOLLIN);
    CHECK(change(other, EPOLL_CTL_MOD, ends[0], EPOLLOUT, (uint64_t)ends[0]) == 0);
    CHECK(event_of(other, ends[0], 1000) == EPOLLOUT);
    CHECK(change(other, EPOLL_CTL_MOD, ends[0], EPOLLIN, (uint64_t)ends[0]) == 0);
    /* The same stream by another descriptor is another entry, and stays when the first is closed. */
    int copy = dup(ends[0]);
    CHECK(change(other, EPOLL_CTL_ADD, copy, EPOLLIN, 77) == 0);
    struct epoll_event events[4];
    CHECK(epoll_wait(other, events, 4, 1000) == 2);
    int number = ends[0];
    close(ends[0]);
    CHECK(epoll_wait(other, events, 4, 1000) == 2);
    FAILS(epoll_ctl(other, EPOLL_CTL_DEL, number, NULL), EBADF);
    close(copy);
    CHECK(epoll_wait(other, events, 4, 30) == 0);
    close(ends[1]);
    close(other);
}

static void polled(void)
{
    int ends[2], set = set_of();
    pair(ends);
    add(set, ends[0], EPOLLIN);
    struct pollfd poller = {.fd = set, .events = POLLIN};
    CHECK(poll(&poller, 1, 0) == 0);
    CHECK(poll(&poller, 1, 30) == 0);
    send_all(ends[1], "x", 1);
    CHECK(poll(&poller, 1, 1000) == 1 && poller.revents == POLLIN);
    CHECK(event_of(set, ends[0], 0) == EPOLLIN);
    CHECK(poll(&poller, 1, 0) == 1);
    expect(ends[0], "x");
    CHECK(poll(&poller, 1, 0) == 0);
    close(ends[0]);
    close(ends[1]);
    close(set);
}

static void *send_later(void *argument)
{
    struct timespec pause = {.tv_nsec = 60 * 1000000};
    nanosleep(&pause, NULL);
    send_all(*(int *)argument, "x", 1);
    return NULL;
}

static void nested(void)
{
    int ends[2], inside = set_of(), outside = set_of(), outermost = set_of();
    pthread_t thread;
    pair(ends);
    add(inside, ends[0], EPOLLIN);
    add(outside, inside, EPOLLIN);
    add(outermost, outside, EPOLLIN);
    CHECK(event_of(outside, inside, 0) == 0);
    send_all(ends[1], "x", 1);
    CHECK(event_of(outermost, outside, 1000) == EPOLLIN);
    CHECK(event_of(outside, inside, 1000) == EPOLLIN);
    CHECK(event_of(inside, ends[0], 0) == EPOLLIN);
    expect(ends[0], "x");
    CHECK(event_of(outside, inside, 0) == 0);
    CHECK(pthread_create(&thread, NULL, send_later, &ends[1]) == 0);
    CHECK(event_of(outermost, outside, 10000) == EPOLLIN);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(event_of(inside, ends[0], 0) == EPOLLIN);
    struct pollfd poller = {.fd = outermost, .events = POLLIN};
    CHECK(poll(&poller, 1, 1000) == 1);
    expect(ends[0], "x");
    CHECK(pthread_create(&thread, NULL, send_later, &ends[1]) == 0);
    while (poll(&poller, 1, 10000) == 1 && event_of(inside, ends[0], 0) == 0)
        ;
    CHECK(pthread_join(thread, NULL) == 0);
    struct epoll_event event = {.events = EPOLLIN};
    FAILS(epoll_ctl(inside, EPOLL_CTL_ADD, outermost, &event), ELOOP);
    CHECK(epoll_ctl(outside, EPOLL_CTL_DEL, inside, NULL) == 0);
    CHECK(event_of(outermost, outside, 30) == 0);
    close(inside);
    close(outside);
    close(outermost);
    close(ends[0]);
    close(ends[1]);
}

static void inherited(void)
{
    int ends[2], set = set_of();
    pair(ends);
    add(set, ends[0], EPOLLIN);
    CHECK(event_of(set, ends[0], 10) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(event_of(set, ends[0], 10000) == EPOLLIN);
        expect(ends[0], "child");
        CHECK(event_of(set, ends[0], 30) == 0);
        send_all(ends[0], "done", 4);
        _exit(0);
    }
    struct timespec pause = {.tv_nsec = 50 * 1000000};
    nanosleep(&pause, NULL);
    send_all(ends[1], "child", 5);
    expect(ends[1], "done");
    reap(pid);
    CHECK(event_of(set, ends[0], 30) == 0);
    send_all(ends[1], "parent", 6);
    CHECK(event_of(set, ends[0], 10000) == EPOLLIN);
    expect(ends[0], "parent");
    close(ends[0]);
    close(ends[1]);
    close(set);
}

struct waiting {
    int set;
    volatile int got;
};

static void *waiter(void *argument)
{
    struct waiting *waiting = argument;
    struct epoll_event event;
    int count = epoll_wait(waiting->set, &event, 1, 10000);
    waiting->got = count == 1 ? (int)event.data.u64 : -1;
    return NULL;
}

/* What one thread changes, another that sleeps in the set sees. */
static void changed_while_waiting(void)
{
    int ends[2], others[2], pipes[2];
    struct waiting waiting = {.set = set_of()};
    struct timespec pause = {.tv_nsec = 50 * 1000000};
    pthread_t thread;
    CHECK(pipe(pipes) == 0);
    add(waiting.set, pipes[0], EPOLLIN);
    pair(ends);
    pair(others);
    /* The first stream of the set. */
    CHECK(pthread_create(&thread, NULL, waiter, &waiting) == 0);
    nanosleep(&pause, NULL);
    add(waiting.set, ends[0], EPOLLIN);
    send_all(ends[1], "x", 1);
    CHECK(pthread_join(thread, NULL) == 0 && waiting.got == ends[0]);
    expect(ends[0], "x");
    /* A second one, ready at once. */
    CHECK(pthread_create(&thread, NULL, waiter, &waiting) == 0);
    nanosleep(&pause, NULL);
    add(waiting.set, others[0], EPOLLOUT);
    CHECK(pthread_join(thread, NULL) == 0 && waiting.got == others[0]);
    /* Another interest in the same. */
    CHECK(change(waiting.set, EPOLL_CTL_MOD, others[0], EPOLLIN, (uint64_t)others[0]) == 0);
    CHECK(pthread_create(&thread, NULL, waiter, &waiting) == 0);
    nanosleep(&pause, NULL);
    CHECK(change(waiting.set, EPOLL_CTL_MOD, ends[0], EPOLLOUT, (uint64_t)ends[0]) == 0);
    CHECK(pthread_join(thread, NULL) == 0 && waiting.got == ends[0]);
    CHECK(change(waiting.set, EPOLL_CTL_MOD, ends[0], EPOLLIN, (uint64_t)ends[0]) == 0);
    /* Kernel descriptors wake it as ever. */
    CHECK(pthread_create(&thread, NULL, waiter, &waiting) == 0);
    nanosleep(&pause, NULL);
    CHECK(write(pipes[1], "p", 1) == 1);
    CHECK(pthread_join(thread, NULL) == 0 && waiting.got == pipes[0]);
    close(ends[0]);
    close(ends[1]);
    close(others[0]);
    close(others[1]);
    close(waiting.set);
}

/* Room that an edge tells of goes to the thread that sleeps in the set, though another one found none. */
static void room_for_a_sleeper(void)
{
    int ends[2];
    struct waiting waiting = {.set = set_of()};
    struct timespec pause = {.tv_nsec = 50 * 1000000};
    pthread_t thread;
    pair(ends);
    add(waiting.set, ends[0], EPOLLOUT | EPOLLET);
    CHECK(event_of(waiting.set, ends[0], 1000) == EPOLLOUT);
    CHECK(event_of(waiting.set, ends[0], 20) == 0);
    CHECK(pthread_create(&thread, NULL, waiter, &waiting) == 0);
    nanosleep(&pause, NULL);
    fill(ends[0]);
    nanosleep(&pause, NULL);
    drain(ends[1]);
    CHECK(pthread_join(thread, NULL) == 0 && waiting.got == ends[0]);
    close(ends[0]);
    close(ends[1]);
    close(waiting.set);
}

int main(void)
{
    duplicates();
    polled();
    nested();
    inherited();
    changed_while_waiting();
    room_for_a_sleeper();
    return 0;
}

/* Level-triggered epoll, one-shot, half close, reset, timeouts, data of 64 bits. */
#include "epoll.h"

static void levels(void)
{
    int ends[2], set = set_of();
    pair(ends);
    CHECK(change(set, EPOLL_CTL_ADD, ends[0], EPOLLIN, 0xfedcba9876543210) == 0);
    struct epoll_event event;
    CHECK(epoll_wait(set, &event, 1, 0) == 0);
    send_all(ends[1], "xy", 2);
    for (int i = 0; i < 3; i++) {
        CHECK(epoll_wait(set, &event, 1, 1000) == 1);
        CHECK(event.events == EPOLLIN && event.data.u64 == 0xfedcba9876543210);
    }
    expect(ends[0], "x");
    CHECK(epoll_wait(set, &event, 1, 0) == 1);
    expect(ends[0], "y");
    CHECK(epoll_wait(set, &event, 1, 0) == 0);
    CHECK(change(set, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLOUT, (uint64_t)ends[0]) == 0);
    CHECK(event_of(set, ends[0], 1000) == EPOLLOUT && event_of(set, ends[0], 1000) == EPOLLOUT);
    fill(ends[0]);
    CHECK(event_of(set, ends[0], 0) == 0);
    drain(ends[1]);
    CHECK(event_of(set, ends[0], 1000) == EPOLLOUT);
    CHECK(change(set, EPOLL_CTL_MOD, ends[0], 0, 1) == 0);
    send_all(ends[1], "z", 1);
    CHECK(epoll_wait(set, &event, 1, 30) == 0);
    CHECK(change(set, EPOLL_CTL_MOD, ends[0], EPOLLIN, 1) == 0);
    CHECK(epoll_wait(set, &event, 1, 1000) == 1 && event.data.u64 == 1);
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, ends[0], NULL) == 0);
    CHECK(epoll_wait(set, &event, 1, 30) == 0);
    add(set, ends[0], EPOLLIN);
    CHECK(event_of(set, ends[0], 1000) == EPOLLIN);
    close(ends[0]);
    close(ends[1]);
    close(set);
}

static void one_shot(void)
{
    int ends[2], set = set_of();
    pair(ends);
    add(set, ends[0], EPOLLIN | EPOLLONESHOT);
    send_all(ends[1], "x", 1);
    CHECK(event_of(set, ends[0], 1000) == EPOLLIN);
    CHECK(event_of(set, ends[0], 30) == 0);
    send_all(ends[1], "y", 1);
    CHECK(event_of(set, ends[0], 30) == 0);
    CHECK(change(set, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLONESHOT, (uint64_t)ends[0]) == 0);
    CHECK(event_of(set, ends[0], 1000) == EPOLLIN);
    CHECK(shutdown(ends[1], SHUT_WR) == 0);
    CHECK(event_of(set, ends[0], 30) == 0);
    CHECK(change(set, EPOLL_CTL_MOD, ends[0], EPOLLRDHUP | EPOLLONESHOT, (uint64_t)ends[0]) == 0);
    CHECK(event_of(set, ends[0], 1000) == EPOLLRDHUP);
    CHECK(event_of(set, ends[0], 30) == 0);
    close(ends[0]);
    close(ends[1]);
    close(set);
}

static void ends_of_streams(void)
{
    int ends[2], set = set_of();
    pair(ends);
    add(set, ends[0], EPOLLIN | EPOLLRDHUP);
    send_all(ends[1], "x", 1);
    CHECK(shutdown(ends[1], SHUT_WR) == 0);
    while (event_of(set, ends[0], 1000) != (EPOLLIN | EPOLLRDHUP))
        ;
    expect(ends[0], "x");
    CHECK(event_of(set, ends[0], 1000) == (EPOLLIN | EPOLLRDHUP));
    CHECK(change(set, EPOLL_CTL_MOD, ends[0], EPOLLOUT, (uint64_t)ends[0]) == 0);
    CHECK(event_of(set, ends[0], 1000) == EPOLLOUT);
    CHECK(change(set, EPOLL_CTL_MOD, ends[0], 0, (uint64_t)ends[0]) == 0);
    CHECK(event_of(set, ends[0], 30) == 0);
    CHECK(shutdown(ends[0], SHUT_WR) == 0);
    CHECK(event_of(set, ends[0], 1000) == EPOLLHUP);
    CHECK(event_of(set, ends[0], 1000) == EPOLLHUP);
    close(ends[0]);
    close(ends[1]);

    pair(ends);
    add(set, ends[0], EPOLLIN | EPOLLOUT | EPOLLRDHUP);
    struct linger hard = {.l_onoff = 1};
    CHECK(setsockopt(ends[1], SOL_SOCKET, SO_LINGER, &hard, sizeof hard) == 0);
    CHECK(event_of(set, ends[0], 1000) == EPOLLOUT);
    close(ends[1]);
    uint32_t all = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLERR | EPOLLHUP;
    int64_t start = now_ms();
    while (event_of(set, ends[0], 1000) != all)
        CHECK(now_ms() - start < 1000);
    char byte;
    FAILS(recv(ends[0], &byte, 1, 0), ECONNRESET);
    CHECK(event_of(set, ends[0], 1000) == (all & ~(uint32_t)EPOLLERR));
    close(ends[0]);
    CHECK(epoll_wait(set, &(struct epoll_event){0}, 1, 30) == 0);
    close(set);
}

static void *send_later(void *argument)
{
    struct timespec pause = {.tv_nsec = 60 * 1000000};
    nanosleep(&pause, NULL);
    send_all(*(int *)argument, "x", 1);
    return NULL;
}

static void times(void)
{
    int ends[2], set = set_of();
    pair(ends);
    add(set, ends[0], EPOLLIN);
    int64_t start = now_ms();
    CHECK(event_of(set, ends[0], 80) == 0);
    CHECK(now_ms() - start >= 79);
    struct epoll_event event;
    struct timespec time = {.tv_nsec = 40 * 1000000};
    start = now_ms();
    int outcome = epoll_pwait2(set, &event, 1, &time, NULL);
    CHECK(outcome == 0 ? now_ms() - start >= 39 : errno == ENOSYS);
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, send_later, &ends[1]) == 0);
        CHECK(event_of(set, ends[0], i == 2 ? -1 : 10000) == EPOLLIN);
        CHECK(pthread_join(thread, NULL) == 0);
        expect(ends[0], "x");
    }
    close(ends[0]);
    close(ends[1]);
    close(set);
}

static volatile sig_atomic_t caught;
static void on_signal(int number) { caught = number; }

static void signals(void)
{
    int ends[2], set = set_of();
    pair(ends);
    add(set, ends[0], EPOLLIN);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    sigset_t blocked, none;
    sigemptyset(&blocked);
    sigemptyset(&none);
    sigaddset(&blocked, SIGUSR1);
    CHECK(sigprocmask(SIG_BLOCK, &blocked, NULL) == 0);
    CHECK(raise(SIGUSR1) == 0);
    CHECK(event_of(set, ends[0], 10) == 0 && !caught);
    FAILS(epoll_pwait(set, &(struct epoll_event){0}, 1, -1, &none), EINTR);
    CHECK(caught == SIGUSR1);
    close(ends[0]);
    close(ends[1]);
    close(set);
}

int main(void)
{
    levels();
    one_shot();
    ends_of_streams();
    times();
    signals();
    return 0;
}

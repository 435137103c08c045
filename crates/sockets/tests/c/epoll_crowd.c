/* A set of so many connections that a library may look at some of them only: whatever happens on a quiet one is still reported. */
#include "epoll.h"
#include <sys/resource.h>

#define COUNT 600
#define BURST 60

static int ends[COUNT][2];

static void open_all(int set, uint32_t events)
{
    for (int i = 0; i < COUNT; i++) {
        pair(ends[i]);
        CHECK(change(set, EPOLL_CTL_ADD, ends[i][0], events, (uint64_t)i) == 0);
    }
}

static void close_all(int set)
{
    for (int i = 0; i < COUNT; i++) {
        close(ends[i][0]);
        close(ends[i][1]);
    }
    close(set);
}

/* The one connection with news, and its events. */
static uint32_t news_of(int set, int at)
{
    struct epoll_event events[4];
    int count = epoll_wait(set, events, 4, 5000);
    if (count != 1 || events[0].data.u64 != (uint64_t)at)
        fprintf(stderr, "%d events, the first of %d\n", count, count > 0 ? (int)events[0].data.u64 : -1);
    CHECK(count == 1 && events[0].data.u64 == (uint64_t)at);
    return events[0].events;
}

/* Long enough that the set's thread has slept, and all connections were quiet. */
static void rest(int set)
{
    struct epoll_event event;
    for (int i = 0; i < 3; i++)
        CHECK(epoll_wait(set, &event, 1, 5) == 0);
}

/* Another process, which no descriptor goes to: asks on some of them at a time, more than wakes are kept for, now and then after a pause. */
static void ask(const struct sockaddr_in *at, unsigned seed)
{
    int lines[COUNT];
    char got[8];
    for (int i = 0; i < COUNT; i++)
        lines[i] = dial(at);
    for (int round = 0; round < 400; round++) {
        int asked[BURST], count = 1 + rand_r(&seed) % (round % 4 ? 3 : BURST);
        for (int i = 0; i < count; i++) {
            asked[i] = rand_r(&seed) % COUNT;
            send_all(lines[asked[i]], "message", 7);
        }
        for (int i = 0; i < count; i++)
            receive_all(lines[asked[i]], got, 7);
        if (round % 8 == 0)
            usleep((useconds_t)(rand_r(&seed) % 3000));
    }
    _exit(0);
}

/* Answers until the other process has ended. */
static void answers(uint32_t mode)
{
    struct sockaddr_in at;
    int door = listener(&at), set = set_of(), open = COUNT, lines[COUNT];
    CHECK(listen(door, COUNT) == 0);
    pid_t child = fork();
    if (child == 0)
        ask(&at, mode + 1);
    for (int i = 0; i < COUNT; i++) {
        CHECK((lines[i] = accept4(door, NULL, NULL, SOCK_NONBLOCK)) >= 0);
        CHECK(change(set, EPOLL_CTL_ADD, lines[i], EPOLLIN | mode, (uint64_t)i) == 0);
    }
    while (open > 0) {
        struct epoll_event events[64];
        int count = epoll_wait(set, events, 64, 10000);
        CHECK(count > 0);
        for (int i = 0; i < count; i++) {
            uint64_t line = events[i].data.u64;
            char block[64];
            ssize_t got;
            while ((got = recv(lines[line], block, sizeof block, 0)) > 0)
                send_all(lines[line], block, (size_t)got);
            CHECK(got == 0 || errno == EAGAIN);
            if (got == 0) {
                CHECK(close(lines[line]) == 0);
                open--;
            } else if (mode & EPOLLONESHOT) {
                CHECK(change(set, EPOLL_CTL_MOD, lines[line], EPOLLIN | mode, line) == 0);
            }
        }
    }
    reap(child);
    close(door);
    close(set);
}

/* Room that was missing, ends, resets and changes of a connection that was quiet. */
static void quiet_ones(void)
{
    int set = set_of(), copy;
    open_all(set, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    struct epoll_event events[COUNT];
    for (int all = 0, count; all < COUNT; all += count)
        CHECK((count = epoll_wait(set, events, COUNT, 5000)) > 0);
    rest(set);
    fill(ends[17][0]);
    rest(set);
    drain(ends[17][1]);
    CHECK(news_of(set, 17) == EPOLLOUT);
    rest(set);
    CHECK(shutdown(ends[33][1], SHUT_WR) == 0);
    CHECK(news_of(set, 33) == (EPOLLIN | EPOLLOUT | EPOLLRDHUP));
    struct linger abort = {.l_onoff = 1};
    CHECK(setsockopt(ends[44][1], SOL_SOCKET, SO_LINGER, &abort, sizeof abort) == 0 && close(ends[44][1]) == 0);
    CHECK((news_of(set, 44) & (EPOLLERR | EPOLLHUP)) == (EPOLLERR | EPOLLHUP));
    rest(set);
    CHECK(shutdown(ends[55][0], SHUT_RD) == 0);
    CHECK(news_of(set, 55) & EPOLLIN);
    rest(set);
    CHECK(change(set, EPOLL_CTL_MOD, ends[66][0], EPOLLOUT, 66) == 0);
    CHECK(news_of(set, 66) == EPOLLOUT);
    CHECK(change(set, EPOLL_CTL_MOD, ends[66][0], EPOLLIN, 66) == 0);
    rest(set);
    CHECK((copy = dup(ends[77][0])) >= 0 && close(ends[77][0]) == 0);
    send_all(ends[77][1], "x", 1);
    CHECK(news_of(set, 77) == (EPOLLIN | EPOLLOUT));
    close(copy);
    close_all(set);
}

/* Each of two sets reports it; what another process does with it counts, too. */
static void shared_ones(void)
{
    int set = set_of(), other = set_of();
    char got[4];
    open_all(set, EPOLLIN);
    for (int i = 0; i < COUNT; i++)
        CHECK(change(other, EPOLL_CTL_ADD, ends[i][0], EPOLLIN, (uint64_t)i) == 0);
    rest(set);
    rest(other);
    for (int i = 0; i < COUNT; i += 97) {
        send_all(ends[i][1], "x", 1);
        CHECK(news_of(other, i) == EPOLLIN && news_of(set, i) == EPOLLIN);
        receive_all(ends[i][0], got, 1);
        rest(set);
    }
    CHECK(change(set, EPOLL_CTL_MOD, ends[8][0], EPOLLIN | EPOLLOUT | EPOLLET, 8) == 0);
    CHECK(news_of(set, 8) == EPOLLOUT);
    rest(set);
    pid_t child = fork();
    if (child == 0) {
        receive_all(ends[5][0], got, 1);
        fill(ends[8][0]);
        _exit(got[0] == 'a' ? 0 : 2);
    }
    send_all(ends[5][1], "a", 1);
    reap(child);
    rest(set);
    drain(ends[8][1]);
    CHECK(news_of(set, 8) == EPOLLOUT);
    send_all(ends[5][1], "b", 1);
    CHECK(news_of(set, 5) == EPOLLIN && news_of(other, 5) == EPOLLIN);
    close(other);
    close_all(set);
}

int main(void)
{
    struct rlimit limit = {4096, 4096};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 4096)
        return SKIPPED;
    answers(0);
    answers(EPOLLET);
    answers(EPOLLONESHOT);
    quiet_ones();
    shared_ones();
    return 0;
}

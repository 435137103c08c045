/* Copies of a descriptor in a set. An interest is known by the number that it was added by, and lives until the last copy is
 * closed: it goes on telling when that number is closed, and another copy is added beside it. */
#include "epoll.h"

enum { OLD = 1001, NEW = 1002 };

/* Which of the two interests tell of input now: one bit each. */
static int told(int set)
{
    struct epoll_event events[4];
    int count = epoll_wait(set, events, 4, 200), which = 0;
    CHECK(count >= 0);
    for (int i = 0; i < count; i++) {
        CHECK(events[i].events & EPOLLIN);
        CHECK(events[i].data.u64 == OLD || events[i].data.u64 == NEW);
        which |= events[i].data.u64 == OLD ? 1 : 2;
    }
    return which;
}

/* The first number is closed, taken out of the set before or not; its copy is added. */
static void first_is_closed(int taken_out, uint32_t mode)
{
    int ends[2], set = set_of();
    pair(ends);
    CHECK(change(set, EPOLL_CTL_ADD, ends[0], EPOLLIN | mode, OLD) == 0);
    CHECK(epoll_wait(set, &(struct epoll_event){0}, 1, 0) == 0);
    if (taken_out)
        CHECK(epoll_ctl(set, EPOLL_CTL_DEL, ends[0], NULL) == 0);
    int copy = dup(ends[0]);
    CHECK(copy >= 0 && close(ends[0]) == 0);
    CHECK(change(set, EPOLL_CTL_ADD, copy, EPOLLIN | mode, NEW) == 0);
    FAILS(change(set, EPOLL_CTL_ADD, copy, EPOLLIN, NEW), EEXIST);
    send_all(ends[1], "x", 1);
    CHECK(told(set) == (taken_out ? 2 : 3));
    expect(copy, "x");
    CHECK(told(set) == 0);
    /* A further copy, while the second number is closed as well. */
    int third = fcntl(copy, F_DUPFD, 100);
    CHECK(third >= 0 && close(copy) == 0);
    CHECK(change(set, EPOLL_CTL_ADD, third, EPOLLIN | mode, NEW) == 0);
    send_all(ends[1], "y", 1);
    CHECK((told(set) & 2) != 0);
    expect(third, "y");
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, third, NULL) == 0);
    /* With the last copy all of it goes, and the far side hears of it. */
    CHECK(close(third) == 0);
    CHECK(epoll_wait(set, &(struct epoll_event){0}, 1, 20) == 0);
    char byte;
    CHECK(recv(ends[1], &byte, 1, 0) == 0);
    close(ends[1]);
    close(set);
}

/* Both copies are in the set; each tells, and one goes without the other. */
static void side_by_side(void)
{
    int ends[2], set = set_of();
    pair(ends);
    int copy = dup(ends[0]);
    CHECK(change(set, EPOLL_CTL_ADD, ends[0], EPOLLIN, OLD) == 0);
    CHECK(change(set, EPOLL_CTL_ADD, copy, EPOLLIN, NEW) == 0);
    send_all(ends[1], "x", 1);
    CHECK(told(set) == 3);
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, ends[0], NULL) == 0);
    CHECK(told(set) == 2);
    CHECK(close(ends[0]) == 0);
    CHECK(told(set) == 2);
    expect(copy, "x");
    CHECK(told(set) == 0);
    close(copy);
    close(ends[1]);
    close(set);
}

/* A number that is closed and comes back as a copy of the same socket is still in the set. */
static void comes_back(void)
{
    int ends[2], set = set_of();
    pair(ends);
    int copy = dup(ends[0]), number = ends[0];
    CHECK(change(set, EPOLL_CTL_ADD, number, EPOLLIN, OLD) == 0);
    CHECK(close(number) == 0);
    send_all(ends[1], "x", 1);
    CHECK(told(set) == 1);
    FAILS(change(set, EPOLL_CTL_MOD, copy, EPOLLIN, NEW), ENOENT);
    CHECK(dup2(copy, number) == number && close(copy) == 0);
    CHECK(told(set) == 1);
    expect(number, "x");
    CHECK(told(set) == 0);
    /* It is named by that number again. */
    FAILS(change(set, EPOLL_CTL_ADD, number, EPOLLIN, NEW), EEXIST);
    CHECK(change(set, EPOLL_CTL_MOD, number, EPOLLIN, NEW) == 0);
    send_all(ends[1], "y", 1);
    CHECK(told(set) == 2);
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, number, NULL) == 0);
    FAILS(epoll_ctl(set, EPOLL_CTL_DEL, number, NULL), ENOENT);
    CHECK(told(set) == 0);
    expect(number, "y");
    close(number);
    close(ends[1]);
    close(set);
}

int main(void)
{
    for (int taken_out = 0; taken_out < 2; taken_out++) {
        first_is_closed(taken_out, 0);
        first_is_closed(taken_out, EPOLLET);
    }
    side_by_side();
    comes_back();
    return 0;
}

/* Who waits for input only, while a connection is still being made, hears of what comes as soon as it is made: by poll, select and
 * epoll. The connection takes a second, since the listener's queue is full when it is asked for. */
#include "epoll.h"
#include <sys/select.h>

static void by_poll(int fd)
{
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    CHECK(poll(&poller, 1, 20) == 0);
    CHECK(poll(&poller, 1, 20000) == 1 && poller.revents == POLLIN);
}

static void by_select(int fd)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    struct timeval limit = {.tv_sec = 20};
    CHECK(select(fd + 1, &set, NULL, NULL, &limit) == 1 && FD_ISSET(fd, &set));
}

static void by_epoll(int fd, uint32_t mode, int before)
{
    int set = set_of();
    add(set, fd, EPOLLIN | mode);
    /* What a set says of a socket before its connection is made is another matter. */
    uint32_t got = before ? event_of(set, fd, 20) : 0;
    CHECK(got == 0);
    CHECK(event_of(set, fd, 20000) == EPOLLIN);
    close(set);
}

static void level(int fd) { by_epoll(fd, 0, 1); }
static void edge(int fd) { by_epoll(fd, EPOLLET, 1); }
static void asleep(int fd) { by_epoll(fd, 0, 0); }

/* One connection, made while the queue is full. */
static void waits(void (*wait)(int))
{
    struct sockaddr_in at;
    int fd = socket(AF_INET, SOCK_STREAM, 0), filler[2];
    socklen_t len = sizeof at;
    at = here(0);
    CHECK(bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 0) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&at, &len) == 0);
    filler[0] = dial(&at);
    int near = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    FAILS(connect(near, (struct sockaddr *)&at, sizeof at), EINPROGRESS);
    pid_t server = fork();
    CHECK(server >= 0);
    if (server == 0) {
        CHECK(close(near) == 0);
        usleep(200000);
        filler[1] = accept(fd, NULL, NULL);
        int far = accept(fd, NULL, NULL);
        CHECK(filler[1] >= 0 && far >= 0);
        send_all(far, "hello", 5);
        char byte;
        CHECK(recv(far, &byte, 1, 0) == 0);
        _exit(0);
    }
    wait(near);
    char got[8];
    CHECK(recv(near, got, sizeof got, 0) == 5 && memcmp(got, "hello", 5) == 0);
    CHECK(close(near) == 0);
    reap(server);
    close(filler[0]);
    close(fd);
}

int main(void)
{
    void (*all[])(int) = {by_poll, by_select, level, edge, asleep};
    pid_t pids[sizeof all / sizeof *all];
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        pids[i] = fork();
        CHECK(pids[i] >= 0);
        if (pids[i] == 0) {
            waits(all[i]);
            _exit(0);
        }
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        reap(pids[i]);
    return 0;
}

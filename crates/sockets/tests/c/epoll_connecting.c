/* Sockets that are put into a set before they are connected, and connections that fail. */
#include "epoll.h"

static int started(int set, const struct sockaddr_in *at, uint32_t events, int before)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(fd >= 0);
    if (before)
        add(set, fd, events);
    CHECK(connect(fd, (const struct sockaddr *)at, sizeof *at) == 0 || errno == EINPROGRESS);
    if (!before)
        add(set, fd, events);
    return fd;
}

static void connects(int before, uint32_t mode)
{
    struct sockaddr_in at;
    int fd = listener(&at), set = set_of();
    int near = started(set, &at, EPOLLIN | EPOLLOUT | mode, before);
    uint32_t got;
    while (((got = event_of(set, near, 1000)) & EPOLLHUP) != 0)
        ;
    CHECK(got == EPOLLOUT);
    int error = -1;
    socklen_t len = sizeof error;
    CHECK(getsockopt(near, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0);
    int far = accept(fd, NULL, NULL);
    CHECK(far >= 0);
    FAILS(change(set, EPOLL_CTL_ADD, near, EPOLLIN, 0), EEXIST);
    CHECK(change(set, EPOLL_CTL_MOD, near, EPOLLIN | mode, (uint64_t)near) == 0);
    CHECK(event_of(set, near, 20) == 0);
    send_all(far, "x", 1);
    CHECK(event_of(set, near, 1000) == EPOLLIN);
    expect(near, "x");
    send_all(near, "y", 1);
    expect(far, "y");
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, near, NULL) == 0);
    send_all(far, "z", 1);
    CHECK(event_of(set, near, 20) == 0);
    close(near);
    close(far);
    close(fd);
    close(set);
}

/* Both ends of a connection that is made: their first edges come in one event list. */
static void both_at_once(void)
{
    struct sockaddr_in at;
    struct epoll_event events[4];
    int fd = listener(&at), near = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(connect(near, (const struct sockaddr *)&at, sizeof at) == 0 || errno == EINPROGRESS);
    int far = accept(fd, NULL, NULL), set = set_of();
    CHECK(far >= 0);
    add(set, far, EPOLLIN | EPOLLOUT | EPOLLET);
    add(set, near, EPOLLIN | EPOLLOUT | EPOLLET);
    CHECK(epoll_wait(set, events, 4, 1000) == 2);
    CHECK(events[0].events == EPOLLOUT && events[1].events == EPOLLOUT);
    CHECK(epoll_wait(set, events, 4, 50) == 0);
    close(set);
    close(near);
    close(far);
    close(fd);
}

static void refused(int before)
{
    struct sockaddr_in at;
    int fd = listener(&at), set = set_of();
    close(fd);
    int near = started(set, &at, EPOLLIN | EPOLLOUT, before);
    uint32_t got;
    int64_t start = now_ms();
    while (!((got = event_of(set, near, 1000)) & EPOLLERR))
        CHECK(now_ms() - start < 1000);
    CHECK(got == (EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP));
    int error = 0;
    socklen_t len = sizeof error;
    CHECK(getsockopt(near, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == ECONNREFUSED);
    close(near);
    CHECK(epoll_wait(set, &(struct epoll_event){0}, 1, 20) == 0);
    close(set);
}

/* A listener in the set, its streams joining it: what most servers do. */
static void server(void)
{
    struct sockaddr_in at;
    int fd = listener(&at), set = set_of(), clients[12], accepted = 0, echoed = 0;
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    add(set, fd, EPOLLIN);
    for (int i = 0; i < 12; i++) {
        clients[i] = dial(&at);
        send_all(clients[i], "ping", 4);
    }
    while (echoed < 12) {
        struct epoll_event events[3];
        int count = epoll_wait(set, events, 3, 10000);
        CHECK(count > 0);
        for (int i = 0; i < count; i++) {
            if (events[i].data.u64 == (uint64_t)fd) {
                int next = accept4(fd, NULL, NULL, SOCK_NONBLOCK);
                CHECK(next >= 0);
                add(set, next, EPOLLIN | EPOLLRDHUP);
                accepted++;
            } else {
                expect((int)events[i].data.u64, "ping");
                send_all((int)events[i].data.u64, "pong", 4);
                echoed++;
            }
        }
    }
    CHECK(accepted == 12);
    for (int i = 0; i < 12; i++) {
        expect(clients[i], "pong");
        close(clients[i]);
    }
    for (int gone = 0; gone < 12;) {
        struct epoll_event events[3];
        int count = epoll_wait(set, events, 3, 10000);
        CHECK(count > 0);
        for (int i = 0; i < count; i++, gone++) {
            CHECK(events[i].events & EPOLLRDHUP);
            close((int)events[i].data.u64);
        }
    }
    close(fd);
    close(set);
}

int main(void)
{
    for (int before = 0; before < 2; before++) {
        connects(before, 0);
        connects(before, EPOLLET);
        refused(before);
    }
    both_at_once();
    server();
    return 0;
}

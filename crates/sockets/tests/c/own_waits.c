/* A server that waits by a system call of its own, as Bun and Rust's rustix do, and otherwise calls the C library: it hears its
 * clients. They make no stream. */
#include "ring.h"
#include <sys/epoll.h>

static void add(int set, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
}

static void *server(void *argument)
{
    int fd = *(int *)argument, set = epoll_create1(EPOLL_CLOEXEC), accepted = -1;
    CHECK(set >= 0);
    add(set, fd);
    for (;;) {
        struct epoll_event event;
        char data[64];
        ssize_t count;
        long ready = OWN_CALL(SYS_epoll_pwait2, set, &event, 1, NULL, NULL, 8);
        if (ready == -EINTR)
            continue;
        CHECK(ready == 1);
        if (event.data.fd == fd) {
            accepted = accept4(fd, NULL, NULL, SOCK_NONBLOCK);
            CHECK(accepted >= 0);
            add(set, accepted);
            continue;
        }
        count = recv(accepted, data, sizeof data, 0);
        if (count == 0)
            return NULL;
        CHECK(count > 0);
        send_all(accepted, data, (size_t)count);
    }
}

int main(void)
{
    struct sockaddr_in at;
    pthread_t thread;
    int fd = listener(&at), end;
    CHECK(pthread_create(&thread, NULL, server, &fd) == 0);
    end = dial(&at);
    for (int round = 0; round < 3; round++) {
        send_all(end, "hello", 5);
        expect(end, "hello");
    }
    CHECK(close(end) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}

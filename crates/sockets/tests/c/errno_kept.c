/* A call that does not fail leaves `errno` as it was, as the wrappers of system calls do: programs look at it after another
 * call (gRPC asks why its `connect` did not end behind `epoll_ctl`). */
#include "quirk.h"
#include <sys/epoll.h>
#include <sys/select.h>

#define MARK 1234
/* The call gives something that is not negative, and leaves `errno` alone. */
#define KEEPS(call)                                                                                              \
    do {                                                                                                         \
        errno = MARK;                                                                                            \
        long outcome_ = (long)(call);                                                                            \
        if (outcome_ < 0 || errno != MARK) {                                                                     \
            fprintf(stderr, "%s:%d: %s gave %ld with errno %d\n", __FILE__, __LINE__, #call, outcome_, errno);  \
            _exit(1);                                                                                            \
        }                                                                                                        \
    } while (0)

/* Where gRPC looks: behind the `epoll_ctl` that follows a `connect` which is still under way. */
static void connecting(int poller, struct sockaddr_in *at, int server)
{
    for (int step = 0; step < 4; step++) {
        int client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.fd = client};
        int outcome = connect(client, (struct sockaddr *)at, sizeof *at), why = errno;
        KEEPS(epoll_ctl(poller, EPOLL_CTL_ADD, client, &event));
        CHECK(outcome == 0 || why == EINPROGRESS);
        KEEPS(epoll_wait(poller, &event, 1, 10000));
        int peer = accept(server, NULL, NULL);
        CHECK(peer >= 0);
        send_all(peer, "word", 4);
        KEEPS(poll(&(struct pollfd){.fd = client, .events = POLLIN}, 1, 10000));
        expect(client, "word");
        CHECK(close(peer) == 0 && close(client) == 0);
    }
}

static void *late(void *fd)
{
    usleep(20000);
    send_all(*(int *)fd, "late", 4);
    return NULL;
}

/* Each of these waits, since the byte comes 20 ms later. */
static void waiting(int poller, int near, int far)
{
    char byte[4];
    fd_set set;
    pthread_t thread;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = near};
    for (int way = 0; way < 4; way++) {
        CHECK(pthread_create(&thread, NULL, late, &far) == 0);
        if (way == 0)
            KEEPS(poll(&(struct pollfd){.fd = near, .events = POLLIN}, 1, 10000));
        FD_ZERO(&set);
        FD_SET(near, &set);
        if (way == 1)
            KEEPS(select(near + 1, &set, NULL, NULL, NULL));
        if (way == 2) {
            KEEPS(epoll_ctl(poller, EPOLL_CTL_ADD, near, &event));
            KEEPS(epoll_wait(poller, &event, 1, 10000));
            KEEPS(epoll_ctl(poller, EPOLL_CTL_DEL, near, NULL));
        }
        KEEPS(recv(near, byte, 4, MSG_WAITALL));
        CHECK(pthread_join(thread, NULL) == 0);
    }
}

int main(void)
{
    struct sockaddr_in at = here(0);
    socklen_t len = sizeof at;
    int server = socket(AF_INET, SOCK_STREAM, 0), poller = epoll_create1(0), one = 1;
    CHECK(poller >= 0);
    KEEPS(bind(server, (struct sockaddr *)&at, sizeof at));
    KEEPS(listen(server, 16));
    CHECK(getsockname(server, (struct sockaddr *)&at, &len) == 0);

    int near = socket(AF_INET, SOCK_STREAM, 0), far;
    KEEPS(connect(near, (struct sockaddr *)&at, sizeof at));
    KEEPS(far = accept(server, NULL, NULL));
    KEEPS(setsockopt(near, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
    len = sizeof one;
    KEEPS(getsockopt(near, SOL_SOCKET, SO_ERROR, &one, &len));
    KEEPS(fcntl(near, F_SETFL, O_RDWR));
    KEEPS(send(near, "word", 4, MSG_NOSIGNAL));
    expect(far, "word");
    waiting(poller, near, far);
    connecting(poller, &at, server);
    int copy;
    KEEPS(copy = dup(near));
    KEEPS(shutdown(near, SHUT_WR));
    KEEPS(recv(far, &one, 1, 0));
    KEEPS(close(copy));
    KEEPS(close(near));
    KEEPS(close(far));
    KEEPS(close(server));
    return 0;
}

/* The far side has closed: the first send is answered by a reset, which poll, epoll, SO_ERROR, getpeername, shutdown and
 * TCP_INFO tell of as the kernel does, once; and what a send of more than there is room for returns then. */
#include "epoll.h"

static volatile sig_atomic_t pipes;

static void on_pipe(int signal)
{
    (void)signal;
    pipes++;
}

static int error_of(int fd)
{
    int error = -1;
    socklen_t len = sizeof error;
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0);
    return error;
}

static int state_of(int fd)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    CHECK(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0);
    return info.tcpi_state;
}

static int is_named(int fd)
{
    struct sockaddr_in at;
    socklen_t len = sizeof at;
    return getpeername(fd, (struct sockaddr *)&at, &len) == 0 || errno != ENOTCONN;
}

static int polled(int fd)
{
    struct pollfd poller = {.fd = fd, .events = POLLIN | POLLOUT | POLLRDHUP};
    poll(&poller, 1, 0);
    return poller.revents;
}

enum { END = POLLIN | POLLOUT | POLLRDHUP, OVER = END | POLLHUP };

/* Waits for the answer to what was sent. */
static void await_reset(int fd)
{
    int64_t start = now_ms();
    while (!(polled(fd) & POLLHUP))
        CHECK(now_ms() - start < 2000);
}

/* The ways in which the far side ends in order. `toread` bytes lie here unread. */
enum way { CLOSES, AFTER_DATA, AFTER_SHUT_RD, AFTER_SHUT_WR, LINGERING, WAYS };

static int left_by(enum way way)
{
    int ends[2];
    struct linger lingers = {.l_onoff = 1, .l_linger = 5};
    pair(ends);
    if (way == AFTER_DATA)
        send_all(ends[1], "toread", 6);
    if (way == AFTER_SHUT_RD)
        CHECK(shutdown(ends[1], SHUT_RD) == 0);
    if (way == AFTER_SHUT_WR)
        CHECK(shutdown(ends[1], SHUT_WR) == 0);
    if (way == LINGERING)
        CHECK(setsockopt(ends[1], SOL_SOCKET, SO_LINGER, &lingers, sizeof lingers) == 0);
    CHECK(close(ends[1]) == 0);
    while (state_of(ends[0]) != TCP_CLOSE_WAIT)
        sched_yield();
    CHECK(polled(ends[0]) == END && is_named(ends[0]) && error_of(ends[0]) == 0);
    CHECK(send(ends[0], "", 0, 0) == 0 && polled(ends[0]) == END);
    return ends[0];
}

static void told_by_poll(enum way way)
{
    int fd = left_by(way);
    CHECK(send(fd, "x", 1, 0) == 1);
    await_reset(fd);
    CHECK(polled(fd) == (OVER | POLLERR) && !is_named(fd) && state_of(fd) == TCP_CLOSE);
    FAILS(shutdown(fd, SHUT_WR), ENOTCONN);
    CHECK(error_of(fd) == EPIPE && error_of(fd) == 0 && polled(fd) == OVER);
    pipes = 0;
    FAILS(send(fd, "x", 1, 0), EPIPE);
    FAILS(send(fd, "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK(pipes == 1);
    if (way == AFTER_DATA)
        expect(fd, "toread");
    char byte;
    CHECK(recv(fd, &byte, 1, 0) == 0 && close(fd) == 0);
}

/* SO_ERROR is asked before anything else could have noticed. */
static void told_by_option(enum way way)
{
    int fd = left_by(way), error = 0;
    CHECK(send(fd, "x", 1, 0) == 1);
    for (int64_t start = now_ms(); (error = error_of(fd)) == 0;)
        CHECK(now_ms() - start < 2000);
    CHECK(error == EPIPE && polled(fd) == OVER);
    close(fd);
}

static void told_by_send(enum way way)
{
    int fd = left_by(way);
    CHECK(send(fd, "x", 1, 0) == 1);
    await_reset(fd);
    pipes = 0;
    FAILS(write(fd, "x", 1), EPIPE);
    CHECK(pipes == 1 && error_of(fd) == 0 && polled(fd) == OVER);
    close(fd);
}

static void told_as_edge(enum way way)
{
    int fd = left_by(way), set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    CHECK(epoll_wait(set, &event, 1, 0) == 1 && event.events == END);
    CHECK(epoll_wait(set, &event, 1, 0) == 0);
    CHECK(send(fd, "x", 1, 0) == 1);
    CHECK(epoll_wait(set, &event, 1, 2000) == 1 && event.events == (OVER | EPOLLERR));
    CHECK(epoll_wait(set, &event, 1, 0) == 0);
    close(set), close(fd);
}

/* The reset came behind the end of file: the first send is told of it, by a signal too. */
static void reset_behind_the_end(void)
{
    int ends[2];
    pair(ends);
    send_all(ends[0], "never read", 10);
    ready(ends[1], POLLIN);
    CHECK(shutdown(ends[1], SHUT_WR) == 0);
    ready(ends[0], POLLIN);
    CHECK(close(ends[1]) == 0);
    await_reset(ends[0]);
    pipes = 0;
    FAILS(send(ends[0], "x", 1, 0), EPIPE);
    CHECK(pipes == 1 && error_of(ends[0]) == 0);
    close(ends[0]);
}

static void *reads_some(void *argument)
{
    static char block[1 << 16];
    int fd = *(int *)argument;
    for (size_t done = 0; done < 300000;) {
        ssize_t got = recv(fd, block, sizeof block, 0);
        CHECK(got > 0);
        done += (size_t)got;
    }
    usleep(50000);
    CHECK(close(fd) == 0);
    return NULL;
}

/* A blocked writev tells how much it had sent when the far side closed, and the error is the next call's. */
static void closed_half_way(int unread)
{
    enum { PART = 12 << 20 };
    static char block[PART];
    struct iovec parts[4] = {{block, PART}, {block, 1}, {block, PART}, {block, PART}};
    const ssize_t all = 3 * (ssize_t)PART + 1;
    int ends[2];
    pthread_t thread;
    pair(ends);
    if (!unread)
        CHECK(shutdown(ends[1], SHUT_WR) == 0);
    CHECK(pthread_create(&thread, NULL, reads_some, &ends[1]) == 0);
    ssize_t sent = writev(ends[0], parts, 4);
    CHECK(sent >= 300000 && sent < all);
    CHECK(pthread_join(thread, NULL) == 0);
    await_reset(ends[0]);
    FAILS(send(ends[0], "x", 1, MSG_NOSIGNAL), unread ? ECONNRESET : EPIPE);
    FAILS(send(ends[0], "x", 1, MSG_NOSIGNAL), EPIPE);
    close(ends[0]);
}

/* Nobody is there from the first byte on. */
static void much_to_nobody(int flags)
{
    static char block[4 << 20];
    int fd = left_by(CLOSES);
    ssize_t sent = send(fd, block, sizeof block, flags);
    CHECK(sent > 0 && sent < (ssize_t)sizeof block);
    await_reset(fd);
    FAILS(send(fd, block, sizeof block, MSG_NOSIGNAL | flags), EPIPE);
    close(fd);
}

int main(void)
{
    signal(SIGPIPE, on_pipe);
    for (enum way way = CLOSES; way < WAYS; way++) {
        told_by_poll(way);
        told_by_option(way);
        told_by_send(way);
        told_as_edge(way);
    }
    reset_behind_the_end();
    closed_half_way(0);
    closed_half_way(1);
    much_to_nobody(0);
    much_to_nobody(MSG_DONTWAIT);
    return 0;
}

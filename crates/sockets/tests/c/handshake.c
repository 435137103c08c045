/* TCP_QUICKACK 0 and TCP_DEFER_ACCEPT on the connecting socket delay nothing for one that sends at once, and are told as
 * they were set, whichever way the connection is made, and when it is not made; a listener's TCP_DEFER_ACCEPT is told by
 * each of its copies, until the last one is closed. */
#include "quirk.h"

static int get(int fd, int name)
{
    int value = -1;
    socklen_t len = sizeof value;
    CHECK(getsockopt(fd, IPPROTO_TCP, name, &value, &len) == 0);
    return value;
}

static void set(int fd, int name, int value)
{
    CHECK(setsockopt(fd, IPPROTO_TCP, name, &value, sizeof value) == 0);
}

enum { QUICKACK = 1, DEFER = 2, NONBLOCK = 4, ALL = 8 };

static int prepared(int how)
{
    int fd = socket(AF_INET, SOCK_STREAM | (how & NONBLOCK ? SOCK_NONBLOCK : 0), 0);
    CHECK(fd >= 0);
    if (how & QUICKACK)
        set(fd, TCP_QUICKACK, 0);
    if (how & DEFER)
        set(fd, TCP_DEFER_ACCEPT, 5);
    return fd;
}

/* Milliseconds from the beginning of `connect` to the first byte's arrival. */
static int64_t served(int server, const struct sockaddr_in *at, int how)
{
    char byte = 0;
    int fd = prepared(how), deferral = get(fd, TCP_DEFER_ACCEPT);
    CHECK((how & DEFER) ? deferral >= 5 : deferral == 0);
    int64_t start = now_ms();
    if (connect(fd, (const struct sockaddr *)at, sizeof *at) != 0) {
        CHECK(errno == EINPROGRESS);
        CHECK(get(fd, TCP_DEFER_ACCEPT) == deferral);
        CHECK(ready(fd, POLLOUT) == POLLOUT);
    }
    CHECK(get(fd, TCP_DEFER_ACCEPT) == deferral && get(fd, TCP_QUICKACK) == 1);
    send_all(fd, "x", 1);
    int peer = accept(server, NULL, NULL);
    CHECK(peer >= 0);
    CHECK(recv(peer, &byte, 1, 0) == 1 && byte == 'x');
    int64_t took = now_ms() - start;
    CHECK(close(fd) == 0 && close(peer) == 0);
    return took;
}

/* Nobody listens: the options stand for the next attempt. */
static void refused(int how)
{
    struct sockaddr_in at;
    int error = 0, fd = listener(&at);
    socklen_t len = sizeof error;
    CHECK(close(fd) == 0);
    fd = prepared(how);
    int deferral = get(fd, TCP_DEFER_ACCEPT);
    int outcome = connect(fd, (struct sockaddr *)&at, sizeof at);
    CHECK(outcome == -1 && (errno == ECONNREFUSED || errno == EINPROGRESS));
    if (errno == EINPROGRESS) {
        ready(fd, POLLOUT);
        CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == ECONNREFUSED);
    }
    CHECK(get(fd, TCP_DEFER_ACCEPT) == deferral);
    close(fd);
}

static void copies(void)
{
    struct sockaddr_in at;
    int fd = listener(&at), copy = dup(fd);
    CHECK(copy >= 0);
    set(fd, TCP_DEFER_ACCEPT, 3);
    int seconds = get(fd, TCP_DEFER_ACCEPT);
    CHECK(seconds >= 3 && get(copy, TCP_DEFER_ACCEPT) == seconds);
    CHECK(close(fd) == 0 && get(copy, TCP_DEFER_ACCEPT) == seconds);
    int other = fcntl(copy, F_DUPFD, 0);
    CHECK(get(other, TCP_DEFER_ACCEPT) == seconds);
    set(other, TCP_DEFER_ACCEPT, 0);
    CHECK(get(copy, TCP_DEFER_ACCEPT) == 0);
    CHECK(close(copy) == 0 && close(other) == 0);
    fd = listener(&at);
    CHECK(get(fd, TCP_DEFER_ACCEPT) == 0 && close(fd) == 0);
}

int main(void)
{
    struct sockaddr_in at;
    int server = listener(&at);
    for (int how = 0; how < ALL; how++) {
        /* What is delayed is so by 200 ms each time; a busy machine may delay some. */
        int attempts = 20;
        while (served(server, &at, how) >= 100)
            if (--attempts == 0) {
                fprintf(stderr, "how %d: each time 100 ms or more\n", how);
                return 1;
            }
        refused(how);
    }
    copies();
    return 0;
}

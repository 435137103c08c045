/* What a child shuts ends the waits of its parent on the same connection. */
#include "quirk.h"
#include <sys/epoll.h>

/* A child that shuts the connection in a moment. */
static pid_t shuts(int fd, int how)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        usleep(100 * 1000);
        _exit(shutdown(fd, how) != 0);
    }
    return child;
}

/* Time until a wait is over, milliseconds; nothing but the child's call ends it. */
static long since(const struct timespec *begin)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - begin->tv_sec) * 1000 + (now.tv_nsec - begin->tv_nsec) / 1000000;
}

int main(void)
{
    struct sockaddr_in at;
    struct timespec begin;
    char bytes[4];
    int fd = listener(&at);
    signal(SIGPIPE, SIG_IGN);
    for (int round = 0; round < 4; round++) {
        int client = dial(&at), server = accept(fd, NULL, NULL);
        CHECK(server >= 0);
        send_all(server, "x", 1);
        expect(client, "x");
        clock_gettime(CLOCK_MONOTONIC, &begin);
        pid_t child = shuts(client, round == 3 ? SHUT_WR : SHUT_RD);
        if (round == 0) {
            CHECK(recv(client, bytes, sizeof bytes, 0) == 0);
        } else if (round == 1) {
            struct pollfd polled = {.fd = client, .events = POLLIN | POLLRDHUP};
            CHECK(poll(&polled, 1, 10000) == 1 && polled.revents == (POLLIN | POLLRDHUP));
        } else if (round == 2) {
            int set = epoll_create1(0);
            struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP};
            CHECK(epoll_ctl(set, EPOLL_CTL_ADD, client, &event) == 0);
            CHECK(epoll_wait(set, &event, 1, 10000) == 1 && event.events == (EPOLLIN | EPOLLRDHUP));
            CHECK(close(set) == 0);
        } else {
            static char many[1 << 20];
            ssize_t count;
            while ((count = send(client, many, sizeof many, 0)) > 0) {
            }
            CHECK(count == -1 && errno == EPIPE);
        }
        CHECK(since(&begin) < 5000);
        reap(child);
        CHECK(close(client) == 0 && close(server) == 0);
    }
    CHECK(close(fd) == 0);
    return 0;
}

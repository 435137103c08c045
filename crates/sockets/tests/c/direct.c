/* A program that makes its system calls by syscall() alone, from listen to close. */
#include "epoll.h"
#include <linux/close_range.h>
#include <sys/syscall.h>

int main(void)
{
    struct sockaddr_in at = here(0);
    socklen_t len = sizeof at;
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 5};
    char text[16] = "";
    int listening = (int)syscall(SYS_socket, AF_INET, SOCK_STREAM, 0), pipes[2];
    CHECK(bind(listening, (struct sockaddr *)&at, sizeof at) == 0);
    CHECK(syscall(SYS_listen, listening, 8) == 0);
    CHECK(getsockname(listening, (struct sockaddr *)&at, &len) == 0);
    int from = (int)syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);
    CHECK(syscall(SYS_connect, from, &at, sizeof at) == 0);
#ifdef SYS_accept
    int to = (int)syscall(SYS_accept, listening, NULL, NULL);
#else
    int to = (int)syscall(SYS_accept4, listening, NULL, NULL, 0);
#endif
    CHECK(to >= 0);
    CHECK(syscall(SYS_sendto, from, "hello", 5, MSG_NOSIGNAL, NULL, 0) == 5);
    int set = (int)syscall(SYS_epoll_create1, 0);
    CHECK(set >= 0);
    CHECK(syscall(SYS_epoll_ctl, set, EPOLL_CTL_ADD, to, &event) == 0);
    event.data.u64 = 0;
    CHECK(syscall(SYS_epoll_pwait, set, &event, 1, 5000, NULL, 8) == 1 && event.data.u64 == 5);
    CHECK(syscall(SYS_read, to, text, sizeof text) == 5 && memcmp(text, "hello", 5) == 0);
    CHECK(syscall(SYS_epoll_pwait, set, &event, 1, 0, NULL, 8) == 0);
    int file = unnamed_file();
    CHECK(write(file, "from a file", 11) == 11);
    off_t offset = 5;
    CHECK(syscall(SYS_sendfile, to, file, &offset, 100) == 6 && offset == 11);
    expect(from, "a file");
    CHECK(pipe(pipes) == 0);
    CHECK(write(pipes[1], "from a pipe", 11) == 11);
    CHECK(syscall(SYS_splice, pipes[0], NULL, to, NULL, 100, 0) == 11);
    expect(from, "from a pipe");
    int copy = (int)syscall(SYS_dup, to);
    CHECK(syscall(SYS_close, to) == 0);
    send_all(copy, "last", 4);
    CHECK(syscall(SYS_close_range, copy, copy, 0) == 0);
    expect(from, "last");
    CHECK(syscall(SYS_recvfrom, from, text, sizeof text, 0, NULL, NULL) == 0);
    return 0;
}

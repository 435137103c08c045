/* A process that lets itself have no descriptor any more, as FTP and SSH servers do: it still waits for data, for room
 * and for the end. */
#include "quirk.h"
#include <sys/resource.h>

enum { MUCH = 20 << 20 };

static void confined(int fd, rlim_t limit)
{
    char first = 0, *much = calloc(1, MUCH);
    struct rlimit none = {limit, limit};
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    CHECK(recv(fd, &first, 1, MSG_PEEK) == 1 && first == 'q');
    expect(fd, "question");
    send_all(fd, much, MUCH);
    CHECK(recv(fd, &first, 1, 0) == 0);
    struct timeval soon = {.tv_usec = 20000};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon) == 0);
    _exit(0);
}

int main(void)
{
    for (rlim_t limit = 0; limit < 3; limit++) {
        int ends[2];
        char *much = calloc(1, MUCH);
        pair(ends);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            CHECK(close(ends[0]) == 0);
            confined(ends[1], limit);
        }
        CHECK(close(ends[1]) == 0);
        usleep(50000);
        send_all(ends[0], "question", 8);
        usleep(50000);
        receive_all(ends[0], much, MUCH);
        usleep(50000);
        CHECK(shutdown(ends[0], SHUT_WR) == 0);
        reap(child);
        CHECK(close(ends[0]) == 0);
        free(much);
    }
    return 0;
}

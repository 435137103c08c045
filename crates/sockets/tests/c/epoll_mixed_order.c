/* Who sleeps in epoll_wait is told of pipes and connections in the order in which they became ready, also if a signal comes in
 * between. Not on posted stores. */
#include "epoll.h"

#include <sys/syscall.h>

enum { PIPE, CONNECTION, OTHER_PIPE, KINDS, ORDERS = 4, ROUNDS = 15 };

static const int orders[ORDERS][KINDS] = {{PIPE, CONNECTION, OTHER_PIPE},
                                          {CONNECTION, PIPE, OTHER_PIPE},
                                          {PIPE, OTHER_PIPE, CONNECTION},
                                          {OTHER_PIPE, CONNECTION, PIPE}};

/* Is stopped while it sleeps, until all are ready. */
static void told(const int *from, int done)
{
    int set = set_of();
    char byte;
    for (int round = 0; round < ROUNDS * ORDERS; round++) {
        const int *order = orders[round % ORDERS];
        struct epoll_event events[KINDS];
        for (int i = 0; i < KINDS; i++)
            CHECK(change(set, round ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, from[i], EPOLLIN | EPOLLONESHOT, (unsigned)i) == 0);
        for (int number = 0; number < KINDS;) {
            int count = epoll_wait(set, events, KINDS, 5000);
            CHECK(count > 0 || (count < 0 && errno == EINTR));
            for (int i = 0; i < count; i++, number++) {
                if ((int)events[i].data.u32 != order[number]) {
                    fprintf(stderr, "round %d: told of %d as number %d, not of %d\n", round, (int)events[i].data.u32, number,
                            order[number]);
                    _exit(1);
                }
            }
        }
        for (int i = 0; i < KINDS; i++)
            CHECK(read(from[i], &byte, 1) == 1);
        CHECK(write(done, "!", 1) == 1);
    }
    _exit(0);
}

static char state_of(pid_t pid)
{
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY);
    ssize_t got = read(fd, text, sizeof text - 1);
    CHECK(got > 0 && close(fd) == 0);
    text[got] = 0;
    const char *name_end = strrchr(text, ')');
    CHECK(name_end != NULL && name_end[2] != 'Z');
    return name_end[2];
}

/* Whether it sleeps in a wait of epoll, and not in a request to the daemon. */
static int waits(pid_t pid)
{
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/%d/syscall", (int)pid);
    int fd = open(path, O_RDONLY);
    ssize_t got = read(fd, text, sizeof text - 1);
    CHECK(got > 0 && close(fd) == 0);
    text[got] = 0;
    long number = strtol(text, NULL, 10);
    return text[0] != 'r' && (number == SYS_epoll_wait || number == SYS_epoll_pwait || number == SYS_epoll_pwait2);
}

int main(void)
{
    int ends[2], pipes[2][2], gate[2];
    char byte;
    pair(ends);
    CHECK(pipe(pipes[0]) == 0 && pipe(pipes[1]) == 0 && pipe(gate) == 0);
    const int to[KINDS] = {pipes[0][1], ends[0], pipes[1][1]}, from[KINDS] = {pipes[0][0], ends[1], pipes[1][0]};
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(close(ends[0]) == 0);
        told(from, gate[1]);
    }
    CHECK(close(ends[1]) == 0 && close(gate[1]) == 0);
    for (int round = 0; round < ROUNDS * ORDERS; round++) {
        for (int held = 0; held < 3; usleep(1000))
            held = state_of(child) == 'S' && waits(child) ? held + 1 : 0;
        CHECK(kill(child, SIGSTOP) == 0);
        while (state_of(child) != 'T')
            usleep(1000);
        for (int i = 0; i < KINDS; i++)
            CHECK(write(to[orders[round % ORDERS][i]], "x", 1) == 1);
        CHECK(kill(child, SIGCONT) == 0);
        CHECK(read(gate[0], &byte, 1) == 1);
    }
    reap(child);
    return 0;
}

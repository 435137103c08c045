/* Whoever sleeps in an epoll set is woken for all that arrives: one byte at a time, there and back, between two
 * processes that share a processor and so interrupt each other anywhere. */
#include "epoll.h"
#include <sched.h>

enum { BYTES = 300000, BLOCK = 1 << 16 };

static void share_a_processor(void)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
}

/* What came, 0 if nothing lies there. */
static size_t take(int fd, char *block)
{
    ssize_t got = recv(fd, block, BLOCK, MSG_DONTWAIT);
    CHECK(got > 0 || (got == -1 && errno == EAGAIN));
    return got > 0 ? (size_t)got : 0;
}

static void echo(int fd)
{
    static char block[BLOCK];
    int set = set_of();
    add(set, fd, EPOLLIN);
    for (size_t done = 0; done < BYTES;) {
        CHECK(event_of(set, fd, -1) == EPOLLIN);
        size_t got = take(fd, block);
        send_all(fd, block, got);
        done += got;
    }
}

static void ask(int fd)
{
    static char block[BLOCK];
    size_t sent = 0, back = 0;
    int set = set_of();
    add(set, fd, EPOLLIN);
    while (back < BYTES) {
        if (sent < BYTES) {
            ssize_t count = send(fd, "P", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
            CHECK(count == 1 || errno == EAGAIN);
            if (count == 1) {
                sent++;
                if (sent % 16 == 0)
                    back += take(fd, block);
                continue;
            }
        }
        uint32_t wanted = sent < BYTES ? EPOLLIN | EPOLLOUT : EPOLLIN;
        CHECK(change(set, EPOLL_CTL_MOD, fd, wanted, (uint64_t)fd) == 0);
        CHECK(event_of(set, fd, -1) & wanted);
        back += take(fd, block);
    }
}

int main(void)
{
    int ends[2];
    share_a_processor();
    pair(ends);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(ends[0]);
        echo(ends[1]);
        _exit(0);
    }
    close(ends[1]);
    ask(ends[0]);
    reap(child);
    return 0;
}

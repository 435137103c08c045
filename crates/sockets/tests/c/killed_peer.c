/* A program learns of a killed peer: one that asks now and then without waiting by its next questions, not after a
 * thousand; one that waits for room, also while it leaves unread what the peer had sent. */
#include "quirk.h"

/* Leaves ends[0] to a child, and nothing else. */
static pid_t only_holder(int ends[2])
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(ends[1]);
        pause();
        _exit(0);
    }
    close(ends[0]);
    return child;
}

static void asks(void)
{
    int ends[2];
    char byte;
    ssize_t got = -1;
    pair(ends);
    send_all(ends[0], "x", 1);
    expect(ends[1], "x");
    pid_t child = only_holder(ends);
    FAILS(recv(ends[1], &byte, 1, MSG_DONTWAIT), EAGAIN);
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, NULL, 0) == child);
    for (int asked = 0; asked < 200 && got < 0; asked++) {
        usleep(10000);
        got = recv(ends[1], &byte, 1, MSG_DONTWAIT);
        CHECK(got == 0 || errno == EAGAIN || errno == ECONNRESET);
        if (got < 0 && errno == ECONNRESET)
            got = 0;
    }
    CHECK(got == 0);
    close(ends[1]);
}

static void waits_for_room(void)
{
    static char block[1 << 20];
    int ends[2];
    pair(ends);
    send_all(ends[0], "never read", 10);
    CHECK(ready(ends[1], POLLIN) & POLLIN);
    pid_t child = only_holder(ends);
    while (send(ends[1], block, sizeof block, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
        ;
    CHECK(errno == EAGAIN);
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, NULL, 0) == child);
    CHECK(ready(ends[1], POLLOUT) & (POLLOUT | POLLERR));
    int64_t start = now_ms();
    while (send(ends[1], block, sizeof block, MSG_NOSIGNAL) > 0)
        CHECK(now_ms() - start < 5000);
    CHECK(errno == EPIPE || errno == ECONNRESET);
    close(ends[1]);
}

int main(void)
{
    asks();
    waits_for_room();
    return 0;
}

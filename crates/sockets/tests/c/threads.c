/* While one thread is blocked another one shuts the socket down, closes it, or uses its number again. */
#include "quirk.h"

struct blocked {
    int fd;
    ssize_t outcome;
    int error;
    volatile int entered;
};

static void *receiver(void *argument)
{
    struct blocked *blocked = argument;
    char byte;
    blocked->entered = 1;
    blocked->outcome = recv(blocked->fd, &byte, 1, 0);
    blocked->error = errno;
    return NULL;
}

static void *sender(void *argument)
{
    static char block[1 << 20];
    struct blocked *blocked = argument;
    blocked->entered = 1;
    while ((blocked->outcome = send(blocked->fd, block, sizeof block, MSG_NOSIGNAL)) > 0)
        ;
    blocked->error = errno;
    return NULL;
}

/* Starts a thread and gives it time to block; whether it does so before or after what follows, the outcome is one. */
static pthread_t start(void *(*work)(void *), struct blocked *blocked)
{
    pthread_t thread;
    struct timespec pause = {.tv_nsec = 50 * 1000000};
    CHECK(pthread_create(&thread, NULL, work, blocked) == 0);
    while (!blocked->entered)
        sched_yield();
    nanosleep(&pause, NULL);
    return thread;
}

static void shut_down(void)
{
    int ends[2];
    pair(ends);
    struct blocked blocked = {.fd = ends[0]};
    pthread_t thread = start(receiver, &blocked);
    CHECK(shutdown(ends[0], SHUT_RDWR) == 0);
    CHECK(pthread_join(thread, NULL) == 0 && blocked.outcome == 0);
    close(ends[0]);
    close(ends[1]);

    pair(ends);
    struct blocked sending = {.fd = ends[0]};
    thread = start(sender, &sending);
    CHECK(shutdown(ends[0], SHUT_WR) == 0);
    CHECK(pthread_join(thread, NULL) == 0 && sending.outcome == -1 && sending.error == EPIPE);
    close(ends[0]);
    close(ends[1]);
}

/* The far side's end wakes a blocked receiver and a blocked sender. */
static void far_side_ends(void)
{
    int ends[2];
    pair(ends);
    struct blocked blocked = {.fd = ends[0]};
    pthread_t thread = start(receiver, &blocked);
    CHECK(close(ends[1]) == 0);
    CHECK(pthread_join(thread, NULL) == 0 && blocked.outcome == 0);
    close(ends[0]);

    pair(ends);
    struct blocked sending = {.fd = ends[0]};
    thread = start(sender, &sending);
    CHECK(close(ends[1]) == 0);
    CHECK(pthread_join(thread, NULL) == 0 && sending.outcome == -1);
    CHECK(sending.error == ECONNRESET || sending.error == EPIPE);
    close(ends[0]);
}

/* A descriptor is closed under a blocked receiver, which waits for what comes still, and does not take the bytes of another
 * stream that has the number by then. */
static void closed_below(void)
{
    int ends[2], others[2];
    pair(ends);
    struct blocked blocked = {.fd = ends[0]};
    pthread_t thread = start(receiver, &blocked);
    CHECK(close(ends[0]) == 0);
    pair(others);
    (void)!send(ends[1], "x", 1, MSG_NOSIGNAL);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(blocked.outcome == 1);
    send_all(others[0], "new", 3);
    expect(others[1], "new");
    send_all(others[1], "new", 3);
    expect(others[0], "new");
    close(ends[1]);
    close(others[0]);
    close(others[1]);
}

static void *pinger(void *argument)
{
    int *fds = argument;
    char block[300];
    for (int round = 0; round < 3000; round++) {
        size_t len = 1 + (size_t)(round * 7919 % 299);
        memset(block, round, len);
        send_all(fds[0], block, len);
        receive_all(fds[0], block, len);
    }
    return NULL;
}

static void *ponger(void *argument)
{
    int *fds = argument;
    char block[300];
    ssize_t got;
    while ((got = recv(fds[1], block, sizeof block, 0)) > 0)
        send_all(fds[1], block, (size_t)got);
    return NULL;
}

static void many_threads(void)
{
    int ends[8][2];
    pthread_t pings[8], pongs[8];
    for (int i = 0; i < 8; i++) {
        pair(ends[i]);
        CHECK(pthread_create(&pings[i], NULL, pinger, ends[i]) == 0);
        CHECK(pthread_create(&pongs[i], NULL, ponger, ends[i]) == 0);
    }
    for (int i = 0; i < 8; i++) {
        CHECK(pthread_join(pings[i], NULL) == 0);
        CHECK(close(ends[i][0]) == 0);
        CHECK(pthread_join(pongs[i], NULL) == 0);
        CHECK(close(ends[i][1]) == 0);
    }
}

int main(void)
{
    shut_down();
    far_side_ends();
    closed_below();
    many_threads();
    return 0;
}

/* A handler runs during a blocked call: EINTR without SA_RESTART, going on with it; a timeout is EAGAIN. */
#include "quirk.h"
#include <sys/time.h>

static volatile sig_atomic_t handled;

static void handler(int signal)
{
    (void)signal;
    handled++;
}

static void on_alarm(int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    handled = 0;
}

struct later {
    pthread_t whom;
    int fd;
    volatile sig_atomic_t over;
};

static void pause_ms(long ms)
{
    struct timespec pause = {.tv_nsec = ms * 1000000};
    nanosleep(&pause, NULL);
}

/* Signals until the other thread says that its call was interrupted: on a busy machine the first signals may come
 * before it is blocked. Then sends a byte. */
static void *interrupter(void *argument)
{
    struct later *later = argument;
    for (int round = 0; round < 500 && !later->over; round++) {
        pause_ms(20);
        pthread_kill(later->whom, SIGUSR1);
    }
    CHECK(write(later->fd, "x", 1) == 1);
    return NULL;
}

/* Signals three times, each after the one before was handled: two that are pending would be one. Then sends a byte. */
static void *signaller(void *argument)
{
    struct later *later = argument;
    for (int round = 0; round < 3; round++) {
        pause_ms(20);
        pthread_kill(later->whom, SIGUSR1);
        while (handled == round)
            pause_ms(1);
    }
    pause_ms(20);
    CHECK(write(later->fd, "x", 1) == 1);
    return NULL;
}

static void blocked_receive(void)
{
    int ends[2];
    char byte;
    pthread_t thread;
    pair(ends);
    struct later later = {.whom = pthread_self(), .fd = ends[1]};

    on_alarm(0);
    CHECK(pthread_create(&thread, NULL, interrupter, &later) == 0);
    FAILS(recv(ends[0], &byte, 1, 0), EINTR);
    later.over = 1;
    CHECK(handled >= 1);
    CHECK(pthread_join(thread, NULL) == 0);
    expect(ends[0], "x");

    on_alarm(SA_RESTART);
    CHECK(pthread_create(&thread, NULL, signaller, &later) == 0);
    CHECK(recv(ends[0], &byte, 1, 0) == 1 && byte == 'x');
    CHECK(handled == 3);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void blocked_send(void)
{
    static char block[1 << 20];
    int ends[2];
    pthread_t thread;
    pair(ends);
    int sink[2];
    CHECK(pipe(sink) == 0);
    struct later later = {.whom = pthread_self(), .fd = sink[1]};
    CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
    while (send(ends[0], block, sizeof block, 0) > 0)
        ;
    CHECK(errno == EAGAIN);
    CHECK(fcntl(ends[0], F_SETFL, 0) == 0);
    on_alarm(0);
    CHECK(pthread_create(&thread, NULL, interrupter, &later) == 0);
    FAILS(send(ends[0], block, sizeof block, 0), EINTR);
    later.over = 1;
    CHECK(pthread_join(thread, NULL) == 0);
}

static void timeouts(void)
{
    static char block[1 << 20];
    struct timeval soon = {.tv_usec = 50000}, got;
    socklen_t len = sizeof got;
    int ends[2];
    char byte;
    pair(ends);
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon) == 0);
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon) == 0);
    CHECK(getsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &got, &len) == 0 && got.tv_usec >= 48000);
    int64_t start = now_ms();
    FAILS(recv(ends[0], &byte, 1, 0), EAGAIN);
    CHECK(now_ms() - start >= 45);
    ssize_t sent;
    while ((sent = send(ends[0], block, sizeof block, 0)) > 0)
        ;
    CHECK(errno == EAGAIN);
    send_all(ends[1], "y", 1);
    expect(ends[0], "y");
}

int main(void)
{
    blocked_receive();
    blocked_send();
    timeouts();
    return 0;
}

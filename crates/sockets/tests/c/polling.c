/* poll and ppoll: readiness, half close and reset, timeouts, signals, kernel descriptors in the same call. */
#include "quirk.h"

static short revents(int fd, short events, int timeout)
{
    struct pollfd poller = {.fd = fd, .events = events, .revents = -1};
    int count = poll(&poller, 1, timeout);
    CHECK(count == (poller.revents != 0));
    return poller.revents;
}

static void data_and_room(void)
{
    int ends[2];
    static char block[1 << 16];
    pair(ends);
    CHECK(revents(ends[0], POLLIN, 0) == 0);
    CHECK(revents(ends[0], POLLOUT, 0) == POLLOUT);
    CHECK(revents(ends[0], POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM, 0) == (POLLOUT | POLLWRNORM));
    CHECK(revents(ends[0], 0, 0) == 0);
    send_all(ends[1], "x", 1);
    CHECK(revents(ends[0], POLLIN | POLLRDNORM, 1000) == (POLLIN | POLLRDNORM));
    CHECK(revents(ends[0], POLLIN | POLLOUT, 0) == (POLLIN | POLLOUT));
    CHECK(revents(ends[0], POLLPRI, 0) == 0);
    expect(ends[0], "x");
    CHECK(revents(ends[0], POLLIN, 0) == 0);
    CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
    while (send(ends[0], block, sizeof block, 0) > 0)
        ;
    CHECK(errno == EAGAIN);
    CHECK(revents(ends[0], POLLOUT, 0) == 0);
    CHECK(fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
    while (revents(ends[0], POLLOUT, 0) == 0)
        CHECK(recv(ends[1], block, sizeof block, 0) > 0 || errno == EAGAIN);
    close(ends[0]);
    close(ends[1]);
}

static void ends_of_streams(void)
{
    int ends[2];
    pair(ends);
    send_all(ends[1], "last", 4);
    CHECK(shutdown(ends[1], SHUT_WR) == 0);
    CHECK(revents(ends[0], POLLRDHUP, 1000) == POLLRDHUP);
    CHECK(revents(ends[0], POLLIN | POLLOUT, 0) == (POLLIN | POLLOUT));
    expect(ends[0], "last");
    CHECK(revents(ends[0], POLLIN | POLLOUT | POLLRDHUP, 0) == (POLLIN | POLLOUT | POLLRDHUP));
    CHECK(revents(ends[0], 0, 0) == 0);
    CHECK(shutdown(ends[0], SHUT_WR) == 0);
    CHECK(revents(ends[0], 0, 1000) == POLLHUP);
    CHECK(revents(ends[1], POLLIN, 1000) == (POLLIN | POLLHUP));
    close(ends[0]);
    close(ends[1]);

    pair(ends);
    struct linger hard = {.l_onoff = 1};
    CHECK(setsockopt(ends[1], SOL_SOCKET, SO_LINGER, &hard, sizeof hard) == 0);
    close(ends[1]);
    int64_t start = now_ms();
    while (revents(ends[0], POLLIN | POLLOUT | POLLRDHUP, 1000) != (POLLIN | POLLOUT | POLLRDHUP | POLLERR | POLLHUP))
        CHECK(now_ms() - start < 1000);
    close(ends[0]);

    pair(ends);
    CHECK(shutdown(ends[0], SHUT_RD) == 0);
    CHECK(revents(ends[0], POLLIN | POLLRDHUP, 0) == (POLLIN | POLLRDHUP));
    close(ends[0]);
    close(ends[1]);
}

static void mixed(void)
{
    int ends[2], pipes[2];
    pair(ends);
    CHECK(pipe(pipes) == 0);
    int closed = dup(pipes[0]);
    close(closed);
    struct pollfd fds[6] = {
        {.fd = ends[0], .events = POLLIN},  {.fd = -1, .events = POLLIN, .revents = 99},
        {.fd = pipes[0], .events = POLLIN}, {.fd = ends[0], .events = POLLIN | POLLOUT},
        {.fd = pipes[1], .events = POLLIN}, {.fd = closed, .events = POLLIN},
    };
    CHECK(poll(fds, 5, 0) == 1 && fds[3].revents == POLLOUT && fds[1].revents == 0);
    CHECK(poll(fds, 6, -1) == 2 && fds[5].revents == POLLNVAL);
    CHECK(write(pipes[1], "p", 1) == 1);
    CHECK(poll(fds, 5, -1) == 2 && fds[2].revents == POLLIN && fds[0].revents == 0);
    send_all(ends[1], "s", 1);
    while (poll(fds, 5, 1000) == 2)
        ;
    CHECK(fds[0].revents == POLLIN && fds[2].revents == POLLIN && fds[3].revents == (POLLIN | POLLOUT));
    /* A pipe that never stops does not hide the stream, nor the other way round. */
    fds[3].fd = -5;
    CHECK(poll(fds, 5, 1000) == 2);
    expect(ends[0], "s");
    struct pollfd many[300];
    for (int i = 0; i < 300; i++)
        many[i] = (struct pollfd){.fd = i % 3 ? ends[0] : pipes[0], .events = POLLIN};
    CHECK(poll(many, 300, 1000) == 100 && many[0].revents == POLLIN && many[1].revents == 0);
    send_all(ends[1], "s", 1);
    while (poll(many, 300, 1000) != 300)
        ;
    close(pipes[0]);
    close(pipes[1]);
    close(ends[0]);
    close(ends[1]);
}

static void *later(void *argument)
{
    struct timespec pause = {.tv_nsec = 60 * 1000000};
    nanosleep(&pause, NULL);
    send_all(*(int *)argument, "now", 3);
    return NULL;
}

static void *write_later(void *argument)
{
    struct timespec pause = {.tv_nsec = 60 * 1000000};
    nanosleep(&pause, NULL);
    CHECK(write(*(int *)argument, "now", 3) == 3);
    return NULL;
}

static void times(void)
{
    int ends[2], pipes[2];
    pthread_t thread;
    pair(ends);
    CHECK(pipe(pipes) == 0);
    int64_t start = now_ms();
    CHECK(revents(ends[0], POLLIN, 80) == 0);
    CHECK(now_ms() - start >= 79);
    struct timespec time = {.tv_nsec = 50 * 1000000};
    struct pollfd two[2] = {{.fd = ends[0], .events = POLLIN}, {.fd = pipes[0], .events = POLLIN}};
    start = now_ms();
    CHECK(ppoll(two, 2, &time, NULL) == 0);
    CHECK(now_ms() - start >= 49 && time.tv_nsec == 50 * 1000000);
    time.tv_nsec = -1;
    FAILS(ppoll(two, 2, &time, NULL), EINVAL);
    CHECK(pthread_create(&thread, NULL, later, &ends[1]) == 0);
    CHECK(poll(two, 2, 10000) == 1 && two[0].revents == POLLIN);
    CHECK(pthread_join(thread, NULL) == 0);
    expect(ends[0], "now");
    CHECK(pthread_create(&thread, NULL, write_later, &pipes[1]) == 0);
    CHECK(poll(two, 2, -1) == 1 && two[1].revents == POLLIN);
    CHECK(pthread_join(thread, NULL) == 0);
    close(pipes[0]);
    close(pipes[1]);
    close(ends[0]);
    close(ends[1]);
}

static volatile sig_atomic_t caught;
static void on_signal(int number) { caught = number; }

static void signals(void)
{
    int ends[2];
    pair(ends);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    sigset_t blocked, before, none;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    CHECK(sigprocmask(SIG_BLOCK, &blocked, &before) == 0);
    CHECK(raise(SIGUSR1) == 0);
    struct pollfd poller = {.fd = ends[0], .events = POLLIN};
    CHECK(poll(&poller, 1, 10) == 0 && !caught);
    sigemptyset(&none);
    FAILS(ppoll(&poller, 1, NULL, &none), EINTR);
    CHECK(caught == SIGUSR1);
    caught = 0;
    CHECK(raise(SIGUSR1) == 0);
    struct timespec zero = {0};
    int outcome = ppoll(&poller, 1, &zero, &none);
    CHECK(outcome == 0 || (outcome == -1 && errno == EINTR));
    CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
    CHECK(caught == SIGUSR1);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    data_and_room();
    ends_of_streams();
    mixed();
    times();
    signals();
    return 0;
}

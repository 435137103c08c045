/* select and pselect: three sets, high numbers, time left, errors leave the sets alone. */
#include "quirk.h"
#include <sys/resource.h>
#include <sys/select.h>

static void sets(void)
{
    int ends[2], pipes[2];
    pair(ends);
    CHECK(pipe(pipes) == 0);
    fd_set read, write_set, except;
    int most = 1 + (ends[0] > pipes[0] ? ends[0] : pipes[0]);
    struct timeval zero = {0};
    FD_ZERO(&read);
    FD_ZERO(&write_set);
    FD_ZERO(&except);
    FD_SET(ends[0], &read);
    FD_SET(pipes[0], &read);
    FD_SET(ends[0], &write_set);
    FD_SET(ends[0], &except);
    CHECK(select(most, &read, &write_set, &except, &zero) == 1);
    CHECK(!FD_ISSET(ends[0], &read) && FD_ISSET(ends[0], &write_set) && !FD_ISSET(ends[0], &except));
    send_all(ends[1], "x", 1);
    CHECK(write(pipes[1], "x", 1) == 1);
    FD_SET(ends[0], &read);
    FD_SET(pipes[0], &read);
    ready(ends[0], POLLIN);
    CHECK(select(most, &read, &write_set, NULL, NULL) == 3);
    CHECK(FD_ISSET(ends[0], &read) && FD_ISSET(pipes[0], &read) && FD_ISSET(ends[0], &write_set));
    /* Bits at and beyond the count are not looked at. */
    FD_ZERO(&write_set);
    FD_SET(ends[0], &write_set);
    CHECK(select(ends[0], NULL, &write_set, NULL, &zero) == 0);
    FD_ZERO(&read);
    FD_SET(ends[0], &read);
    close(pipes[0]);
    FD_SET(pipes[0], &read);
    FAILS(select(most, &read, NULL, NULL, &zero), EBADF);
    CHECK(FD_ISSET(ends[0], &read) && FD_ISSET(pipes[0], &read));
    FAILS(select(-1, &read, NULL, NULL, &zero), EINVAL);
    close(pipes[1]);
    close(ends[0]);
    close(ends[1]);
}

static void ends_of_streams(void)
{
    int ends[2];
    pair(ends);
    struct linger hard = {.l_onoff = 1};
    CHECK(setsockopt(ends[1], SOL_SOCKET, SO_LINGER, &hard, sizeof hard) == 0);
    close(ends[1]);
    fd_set read, write_set;
    FD_ZERO(&read);
    FD_ZERO(&write_set);
    FD_SET(ends[0], &read);
    struct timeval second = {.tv_sec = 1};
    CHECK(select(ends[0] + 1, &read, NULL, NULL, &second) == 1);
    FD_SET(ends[0], &write_set);
    CHECK(select(ends[0] + 1, &read, &write_set, NULL, NULL) == 2);
    close(ends[0]);
    pair(ends);
    CHECK(shutdown(ends[1], SHUT_WR) == 0);
    FD_ZERO(&read);
    FD_SET(ends[0], &read);
    CHECK(select(ends[0] + 1, &read, NULL, NULL, NULL) == 1 && FD_ISSET(ends[0], &read));
    close(ends[0]);
    close(ends[1]);
}

static void times(void)
{
    int ends[2];
    pair(ends);
    fd_set read;
    FD_ZERO(&read);
    FD_SET(ends[0], &read);
    struct timeval time = {.tv_usec = 60000};
    int64_t start = now_ms();
    CHECK(select(ends[0] + 1, &read, NULL, NULL, &time) == 0 && !FD_ISSET(ends[0], &read));
    CHECK(now_ms() - start >= 59 && time.tv_sec == 0 && time.tv_usec == 0);
    send_all(ends[1], "x", 1);
    FD_SET(ends[0], &read);
    time.tv_sec = 100;
    CHECK(select(ends[0] + 1, &read, NULL, NULL, &time) == 1);
    CHECK(time.tv_sec >= 98 && time.tv_sec < 100);
    const struct timespec left = {.tv_sec = 100};
    CHECK(pselect(ends[0] + 1, &read, NULL, NULL, &left, NULL) == 1 && left.tv_sec == 100);
    time = (struct timeval){.tv_sec = -1};
    FAILS(select(ends[0] + 1, &read, NULL, NULL, &time), EINVAL);
    CHECK(FD_ISSET(ends[0], &read));
    close(ends[0]);
    close(ends[1]);
}

static volatile sig_atomic_t caught;
static void on_signal(int number) { caught = number; }

static void signals(void)
{
    int ends[2];
    pair(ends);
    CHECK(signal(SIGUSR1, on_signal) != SIG_ERR);
    sigset_t blocked, none;
    sigemptyset(&blocked);
    sigemptyset(&none);
    sigaddset(&blocked, SIGUSR1);
    CHECK(sigprocmask(SIG_BLOCK, &blocked, NULL) == 0);
    CHECK(raise(SIGUSR1) == 0);
    fd_set read;
    FD_ZERO(&read);
    FD_SET(ends[0], &read);
    FAILS(pselect(ends[0] + 1, &read, NULL, NULL, NULL, &none), EINTR);
    CHECK(caught && FD_ISSET(ends[0], &read));
    close(ends[0]);
    close(ends[1]);
}

/* Sets that are larger than an fd_set: programs with many descriptors make their own. */
static void high_numbers(void)
{
    int ends[2];
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    if (limit.rlim_max < 1300)
        return;
    limit.rlim_cur = limit.rlim_cur < 1300 ? 1300 : limit.rlim_cur;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    pair(ends);
    int high = fcntl(ends[0], F_DUPFD, 1200);
    CHECK(high >= 1200);
    unsigned long read[40] = {0}, bits = 8 * sizeof(unsigned long);
    read[(unsigned)high / bits] |= 1ul << ((unsigned)high % bits);
    send_all(ends[1], "x", 1);
    struct timeval second = {.tv_sec = 1};
    CHECK(select(high + 1, (fd_set *)read, NULL, NULL, &second) == 1);
    CHECK(read[(unsigned)high / bits] == 1ul << ((unsigned)high % bits));
    close(high);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    sets();
    ends_of_streams();
    times();
    signals();
    high_numbers();
    return 0;
}

/* SIGPIPE and EPIPE, ECONNRESET once and then EPIPE, SO_LINGER 0 is a reset, unread bytes at close are one too. */
#include "quirk.h"

static volatile sig_atomic_t pipes;

static void on_pipe(int signal)
{
    (void)signal;
    pipes++;
}

static void broken_pipe(void)
{
    int ends[2];
    struct iovec out = {"x", 1};
    struct msghdr message = {.msg_iov = &out, .msg_iovlen = 1};
    pair(ends);
    CHECK(shutdown(ends[0], SHUT_WR) == 0);
    pipes = 0;
    FAILS(write(ends[0], "x", 1), EPIPE);
    CHECK(pipes == 1);
    FAILS(send(ends[0], "x", 1, 0), EPIPE);
    CHECK(pipes == 2);
    FAILS(writev(ends[0], &out, 1), EPIPE);
    CHECK(pipes == 3);
    FAILS(sendmsg(ends[0], &message, MSG_NOSIGNAL), EPIPE);
    FAILS(send(ends[0], "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK(pipes == 3);
    close(ends[0]);
    close(ends[1]);
}

static void kills_by_default(void)
{
    int ends[2], status;
    pair(ends);
    CHECK(shutdown(ends[0], SHUT_WR) == 0);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGPIPE, SIG_DFL);
        CHECK(write(ends[0], "x", 1) == 0);
        _exit(3);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
    close(ends[0]);
    close(ends[1]);
}

/* The far side is closed: what is sent after that ends in an error soon, never in a hang. */
static void far_side_closed(void)
{
    int ends[2];
    char byte;
    pair(ends);
    CHECK(close(ends[1]) == 0);
    CHECK(recv(ends[0], &byte, 1, 0) == 0);
    int64_t start = now_ms();
    while (send(ends[0], "x", 1, MSG_NOSIGNAL) == 1)
        CHECK(now_ms() - start < 5000);
    CHECK(errno == EPIPE || errno == ECONNRESET);
    close(ends[0]);
}

/* A reset behind a FIN is EPIPE to a sender; who receives got the end of file already, and gets it again. */
static void reset_behind_the_end(void)
{
    int ends[2];
    char byte;
    pair(ends);
    send_all(ends[0], "never read", 10);
    CHECK(ready(ends[1], POLLIN) & POLLIN);
    CHECK(shutdown(ends[1], SHUT_WR) == 0);
    CHECK(ready(ends[0], POLLIN) & POLLIN);
    CHECK(recv(ends[0], &byte, 1, 0) == 0);
    CHECK(close(ends[1]) == 0);
    CHECK(ready(ends[0], 0) & (POLLERR | POLLHUP));
    CHECK(recv(ends[0], &byte, 1, 0) == 0);
    CHECK(recv(ends[0], &byte, 1, 0) == 0);
    FAILS(send(ends[0], "x", 1, MSG_NOSIGNAL), EPIPE);
    close(ends[0]);
}

/* A send that is larger than all buffers does not seem to succeed. */
static void much_to_a_closed_side(void)
{
    static char block[64 << 20];
    int ends[2];
    pair(ends);
    CHECK(close(ends[1]) == 0);
    ssize_t sent = send(ends[0], block, sizeof block, MSG_NOSIGNAL);
    CHECK(sent < (ssize_t)sizeof block);
    CHECK(sent > 0 || errno == EPIPE || errno == ECONNRESET);
    close(ends[0]);
}

static void expect_reset(int fd)
{
    char byte;
    FAILS(recv(fd, &byte, 1, 0), ECONNRESET);
    CHECK(recv(fd, &byte, 1, 0) == 0);
    FAILS(send(fd, "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK(close(fd) == 0);
}

static void resets(void)
{
    int ends[2], error = -1;
    socklen_t len = sizeof error;
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    pair(ends);
    CHECK(setsockopt(ends[1], SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
    CHECK(close(ends[1]) == 0);
    expect_reset(ends[0]);

    pair(ends);
    CHECK(setsockopt(ends[1], SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
    CHECK(close(ends[1]) == 0);
    CHECK(ready(ends[0], POLLIN) & (POLLERR | POLLHUP));
    CHECK(getsockopt(ends[0], SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == ECONNRESET);
    CHECK(getsockopt(ends[0], SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0);
    close(ends[0]);

    pair(ends);
    send_all(ends[0], "never read", 10);
    CHECK(ready(ends[1], POLLIN) & POLLIN);
    CHECK(close(ends[1]) == 0);
    expect_reset(ends[0]);
}

/* What was sent before a reset is lost with it, as TCP has it; a blocked receiver wakes. */
static void reset_wakes(void)
{
    int ends[2];
    char byte;
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    pair(ends);
    pid_t child = fork();
    if (child == 0) {
        struct timespec pause = {.tv_nsec = 50 * 1000000};
        close(ends[0]);
        nanosleep(&pause, NULL);
        CHECK(setsockopt(ends[1], SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
        close(ends[1]);
        _exit(0);
    }
    CHECK(close(ends[1]) == 0);
    FAILS(recv(ends[0], &byte, 1, 0), ECONNRESET);
    reap(child);
}

int main(void)
{
    signal(SIGPIPE, on_pipe);
    broken_pipe();
    kills_by_default();
    far_side_closed();
    reset_behind_the_end();
    much_to_a_closed_side();
    resets();
    reset_wakes();
    return 0;
}

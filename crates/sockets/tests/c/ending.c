/* Data is flushed after close and _exit; a killed holder is seen at once; what it had sent is still delivered. */
#include "quirk.h"

enum { LARGE = 200000 };

static void fill(char *data)
{
    for (int i = 0; i < LARGE; i++)
        data[i] = (char)(i * 13 + i / 256);
}

/* The far side reads only after the sender is gone. */
static void sender_is_gone(int how)
{
    static char data[LARGE], got[LARGE];
    int ends[2], gate[2], status;
    char byte;
    fill(data);
    pair(ends);
    CHECK(pipe(gate) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(ends[1]);
        send_all(ends[0], data, LARGE);
        CHECK(write(gate[1], "!", 1) == 1);
        if (how == 0) {
            close(ends[0]);
            _exit(0);
        }
        if (how == 1)
            _exit(0);
        if (how == 2)
            exit(0);
        for (;;)
            pause();
    }
    CHECK(close(ends[0]) == 0);
    CHECK(read(gate[0], &byte, 1) == 1);
    if (how == 3)
        CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, &status, 0) == child);
    receive_all(ends[1], got, LARGE);
    CHECK(memcmp(got, data, LARGE) == 0);
    CHECK(recv(ends[1], &byte, 1, 0) == 0);
    CHECK(close(ends[1]) == 0 && close(gate[0]) == 0 && close(gate[1]) == 0);
}

/* A process that is killed while the far side waits for it: end of file (or a reset) at once. */
static void killed(void)
{
    int ends[2], status;
    char byte;
    pair(ends);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(ends[1]);
        send_all(ends[0], "!", 1);
        for (;;)
            pause();
    }
    CHECK(close(ends[0]) == 0);
    expect(ends[1], "!");
    CHECK(kill(child, SIGKILL) == 0);
    int64_t start = now_ms();
    CHECK(recv(ends[1], &byte, 1, 0) == 0);
    CHECK(now_ms() - start < 2000);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(close(ends[1]) == 0);
}

/* Killed with unread bytes: the kernel resets. */
static void killed_with_unread(void)
{
    int ends[2], status;
    char byte;
    pair(ends);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(ends[1]);
        send_all(ends[0], "!", 1);
        for (;;)
            pause();
    }
    CHECK(close(ends[0]) == 0);
    expect(ends[1], "!");
    send_all(ends[1], "never read", 10);
    CHECK(kill(child, SIGKILL) == 0);
    ssize_t got = recv(ends[1], &byte, 1, 0);
    CHECK(got == 0 || (got == -1 && errno == ECONNRESET));
    CHECK(waitpid(child, &status, 0) == child);
    int64_t start = now_ms();
    while (send(ends[1], "x", 1, MSG_NOSIGNAL) == 1)
        CHECK(now_ms() - start < 5000);
    CHECK(close(ends[1]) == 0);
}

/* The connecting side is gone before it was accepted. */
static void gone_before_accept(void)
{
    struct sockaddr_in at;
    char byte;
    int server = listener(&at);
    pid_t child = fork();
    if (child == 0) {
        int fd = dial(&at);
        send_all(fd, "short visit", 11);
        _exit(0);
    }
    reap(child);
    int peer = accept(server, NULL, NULL);
    CHECK(peer >= 0);
    expect(peer, "short visit");
    CHECK(recv(peer, &byte, 1, 0) == 0);
    CHECK(close(peer) == 0 && close(server) == 0);
}

int main(void)
{
    for (int how = 0; how < 4; how++)
        sender_is_gone(how);
    killed();
    killed_with_unread();
    gone_before_accept();
    return 0;
}

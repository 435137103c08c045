/* O_NONBLOCK belongs to the open file description; EAGAIN everywhere; SOCK_NONBLOCK, SOCK_CLOEXEC, accept4. */
#include "quirk.h"

static void per_description(void)
{
    int ends[2], copy, on = 1, off = 0;
    char byte;
    pair(ends);
    copy = dup(ends[0]);
    CHECK(fcntl(ends[0], F_SETFL, fcntl(ends[0], F_GETFL) | O_NONBLOCK) == 0);
    CHECK(fcntl(copy, F_GETFL) & O_NONBLOCK);
    FAILS(recv(copy, &byte, 1, 0), EAGAIN);
    FAILS(read(copy, &byte, 1), EAGAIN);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        FAILS(recv(copy, &byte, 1, 0), EAGAIN);
        CHECK(fcntl(copy, F_SETFL, fcntl(copy, F_GETFL) & ~O_NONBLOCK) == 0);
        _exit(0);
    }
    reap(child);
    CHECK((fcntl(ends[0], F_GETFL) & O_NONBLOCK) == 0);
    child = fork();
    if (child == 0) {
        send_all(ends[1], "waited for", 10);
        _exit(0);
    }
    expect(ends[0], "waited for");
    reap(child);
    CHECK(ioctl(copy, FIONBIO, &on) == 0);
    FAILS(recv(ends[0], &byte, 1, 0), EAGAIN);
    CHECK(fcntl(ends[0], F_GETFL) & O_NONBLOCK);
    CHECK(ioctl(ends[0], FIONBIO, &off) == 0);
    CHECK((fcntl(copy, F_GETFL) & O_NONBLOCK) == 0);
}

/* A full connection says EAGAIN, and takes more after the far side has read. */
static void full(void)
{
    static char block[65536], sink[65536];
    int ends[2];
    size_t sent = 0;
    pair(ends);
    CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
    for (;;) {
        ssize_t now = write(ends[0], block, sizeof block);
        if (now < 0) {
            CHECK(errno == EAGAIN);
            break;
        }
        CHECK(now > 0);
        sent += (size_t)now;
        CHECK(sent < (size_t)1 << 31);
    }
    FAILS(send(ends[0], block, sizeof block, MSG_DONTWAIT), EAGAIN);
    for (size_t left = sent; left > 0;) {
        size_t want = left < sizeof sink ? left : sizeof sink;
        receive_all(ends[1], sink, want);
        left -= want;
    }
    FAILS(recv(ends[1], sink, 1, MSG_DONTWAIT), EAGAIN);
    CHECK(ready(ends[0], POLLOUT) & POLLOUT);
    CHECK(write(ends[0], block, 1) == 1);
}

static void types(void)
{
    struct sockaddr_in at;
    int server = listener(&at);
    int client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
    char byte;
    CHECK(fcntl(client, F_GETFD) == FD_CLOEXEC && (fcntl(client, F_GETFL) & O_NONBLOCK));
    int outcome = connect(client, (struct sockaddr *)&at, sizeof at);
    CHECK(outcome == 0 || errno == EINPROGRESS);
    int peer = accept4(server, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    CHECK(fcntl(peer, F_GETFD) == FD_CLOEXEC && (fcntl(peer, F_GETFL) & O_NONBLOCK));
    FAILS(recv(peer, &byte, 1, 0), EAGAIN);
    FAILS(recv(client, &byte, 1, 0), EAGAIN);
    int second = dial(&at), blocking = accept(server, NULL, NULL);
    CHECK(fcntl(blocking, F_GETFD) == 0 && (fcntl(blocking, F_GETFL) & O_NONBLOCK) == 0);
    /* accept takes nothing over from a non-blocking listener. */
    CHECK(fcntl(server, F_SETFL, O_NONBLOCK) == 0);
    FAILS(accept(server, NULL, NULL), EAGAIN);
    int third = dial(&at);
    CHECK(ready(server, POLLIN) & POLLIN);
    int after = accept(server, NULL, NULL);
    CHECK(after >= 0 && (fcntl(after, F_GETFL) & O_NONBLOCK) == 0);
    CHECK(close(second) == 0 && close(third) == 0);
}

int main(void)
{
    per_description();
    full();
    types();
    return 0;
}

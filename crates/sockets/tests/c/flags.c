/* MSG_PEEK, MSG_DONTWAIT, MSG_WAITALL, MSG_TRUNC, MSG_NOSIGNAL, and calls of no bytes. Not on posted stores. */
#include "quirk.h"

static void peek(int from, int to)
{
    char text[32] = "";
    send_all(from, "look ", 5);
    send_all(from, "twice", 5);
    CHECK(ready(to, POLLIN) & POLLIN);
    CHECK(recv(to, text, 3, MSG_PEEK) == 3 && memcmp(text, "loo", 3) == 0);
    CHECK(recv(to, text, 10, MSG_PEEK | MSG_WAITALL) == 10 && memcmp(text, "look twice", 10) == 0);
    CHECK(recv(to, text, 2, 0) == 2 && memcmp(text, "lo", 2) == 0);
    struct iovec in = {text, sizeof text};
    struct msghdr message = {.msg_iov = &in, .msg_iovlen = 1};
    CHECK(recvmsg(to, &message, MSG_PEEK) == 8 && memcmp(text, "ok twice", 8) == 0);
    expect(to, "ok twice");
    FAILS(recv(to, text, 1, MSG_PEEK | MSG_DONTWAIT), EAGAIN);
}

static void all(int from, int to)
{
    static char data[300000], got[300000];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)(i * 7 + i / 256);
    pid_t child = fork();
    if (child == 0) {
        for (size_t done = 0; done < sizeof data; done += 1000)
            send_all(from, data + done, 1000);
        _exit(0);
    }
    CHECK(recv(to, got, sizeof got, MSG_WAITALL) == sizeof got);
    CHECK(memcmp(got, data, sizeof got) == 0);
    reap(child);
    send_all(from, "short", 5);
    CHECK(recv(to, got, 100, MSG_WAITALL | MSG_DONTWAIT) == 5);
}

/* On TCP, MSG_TRUNC throws bytes away. */
static void thrown_away(int from, int to)
{
    char text[8] = "12345";
    send_all(from, "dropped kept", 12);
    CHECK(ready(to, POLLIN) & POLLIN);
    CHECK(recv(to, text, 8, MSG_TRUNC) == 8);
    CHECK(strcmp(text, "12345") == 0);
    expect(to, "kept");
}

static void nothing(int from, int to)
{
    char byte;
    CHECK(send(from, "", 0, 0) == 0);
    CHECK(write(from, "", 0) == 0);
    FAILS(recv(to, &byte, 1, MSG_DONTWAIT), EAGAIN);
    send_all(from, "z", 1);
    CHECK(read(to, &byte, 0) == 0);
    expect(to, "z");
}

/* WAITALL ends early at the end of file. */
static void ended(int from, int to)
{
    char text[32];
    send_all(from, "the end", 7);
    CHECK(shutdown(from, SHUT_WR) == 0);
    CHECK(recv(to, text, sizeof text, MSG_WAITALL) == 7);
    CHECK(recv(to, text, sizeof text, MSG_WAITALL) == 0);
    CHECK(recv(to, text, sizeof text, MSG_PEEK) == 0);
    FAILS(send(from, "x", 1, MSG_NOSIGNAL), EPIPE);
}

int main(void)
{
    int ends[2];
    pair(ends);
    for (int i = 0; i < 2; i++) {
        peek(ends[i], ends[!i]);
        all(ends[i], ends[!i]);
        thrown_away(ends[i], ends[!i]);
        nothing(ends[i], ends[!i]);
    }
    for (int i = 0; i < 2; i++)
        ended(ends[i], ends[!i]);
    return 0;
}

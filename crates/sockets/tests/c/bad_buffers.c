/* Buffers that are not there, or not to their end, are EFAULT, and the connection goes on as if nobody had called. */
#include "bad.h"

static int near, far;

/* The connection is as it was: nothing lies in it, and bytes get through both ways. */
static void unharmed(void)
{
    char byte;
    FAILS(recv(near, &byte, 1, MSG_DONTWAIT), EAGAIN);
    FAILS(recv(far, &byte, 1, MSG_DONTWAIT), EAGAIN);
    send_all(near, "there", 5);
    expect(far, "there");
    send_all(far, "back", 4);
    expect(near, "back");
}

static void sending(void)
{
    char *bad[] = {edge, edge - 1, edge - 100, edge - 4096, edge - 30000, cut_off, (char *)1, (char *)(1L << 62), NULL};
    for (char **from = bad; from[0] || from == bad; from++) {
        struct iovec one = {*from, 40000}, two[2] = {{edge - 100, 100}, {*from, 40000}};
        struct msghdr message = {.msg_iov = two, .msg_iovlen = 2};
        FAILS(send(near, *from, 40000, MSG_NOSIGNAL), EFAULT);
        FAILS(write(near, *from, 40000), EFAULT);
        FAILS(sendto(near, *from, 40000, MSG_DONTWAIT, NULL, 0), EFAULT);
        FAILS(writev(near, &one, 1), EFAULT);
        FAILS(writev(near, two, 2), EFAULT);
        FAILS(sendmsg(near, &message, 0), EFAULT);
    }
    FAILS(send(near, edge - 7, 8, 0), EFAULT);
    FAILS(send(near, edge - 64, 65, 0), EFAULT);
    unharmed();
}

/* What the kernel copies at a time is sent, if it is all there. */
static void sending_part(void)
{
    static char got[AREA];
    int ends[2];
    pair(ends);
    ssize_t sent = send(ends[0], edge - 40000, 60000, 0);
    CHECK(sent >= 32700 && sent <= 40000);
    receive_all(ends[1], got, (size_t)sent);
    CHECK(close(ends[0]) == 0 && recv(ends[1], got, 1, 0) == 0 && close(ends[1]) == 0);
    sent = send(near, edge - 100000, 300000, 0);
    CHECK(sent > 0 && sent <= 100000);
    receive_all(far, got, (size_t)sent);
    struct iovec two[2] = {{edge - 40000, 40000}, {edge - 50, 100}};
    sent = writev(near, two, 2);
    CHECK(sent > 0 && sent <= 40050);
    receive_all(far, got, (size_t)sent);
    unharmed();
}

static void receiving(void)
{
    char *bad[] = {edge, edge - 1, edge - 100, constant, cut_off, (char *)1, (char *)(1L << 62)};
    char got[201] = "", sent[201];
    memset(sent, 's', 200);
    send_all(far, sent, 200);
    arrived(near, 200);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct iovec one = {bad[i], 200}, two[2] = {{got, 50}, {bad[i], 200}};
        struct msghdr message = {.msg_iov = two, .msg_iovlen = 2};
        FAILS(recv(near, bad[i], 200, 0), EFAULT);
        FAILS(read(near, bad[i], 200), EFAULT);
        FAILS(recv(near, bad[i], 200, MSG_PEEK), EFAULT);
        FAILS(recv(near, bad[i], 200, MSG_WAITALL), EFAULT);
        FAILS(recvfrom(near, bad[i], 200, MSG_DONTWAIT, NULL, NULL), EFAULT);
        FAILS(readv(near, &one, 1), EFAULT);
        FAILS(readv(near, two, 2), EFAULT);
        FAILS(recvmsg(near, &message, MSG_PEEK), EFAULT);
        FAILS(recvmsg(near, &message, 0), EFAULT);
        CHECK(unread(near) == 200);
    }
    /* What does not come needs no place. */
    struct iovec three[3] = {{got, 100}, {edge - 50, 50}, {edge - 50, 1000}};
    CHECK(readv(near, three, 3) == 200 && memcmp(got, sent, 100) == 0 && edge[-1] == 's');
    unharmed();
}

/* Whether there is a place is asked when there is something for it; what cannot be one is refused at once. */
static void nothing_there(void)
{
    FAILS(recv(near, edge, 10, MSG_DONTWAIT), EAGAIN);
    FAILS(recv(near, NULL, 10, MSG_DONTWAIT), EAGAIN);
    FAILS(recv(near, (void *)-4096L, 10, MSG_DONTWAIT), EFAULT);
    FAILS(recv(near, (void *)-4096L, 0, MSG_DONTWAIT), EFAULT);
    FAILS(read(near, (void *)-4096L, 0), EFAULT);
    FAILS(send(near, (void *)-4096L, 10, 0), EFAULT);
    FAILS(send(near, (void *)-4096L, 0, 0), EFAULT);
    CHECK(shutdown(far, SHUT_WR) == 0);
    ready(near, POLLIN);
    CHECK(recv(near, edge, 10, 0) == 0);
    CHECK(shutdown(near, SHUT_WR) == 0);
    FAILS(send(near, edge, 10, MSG_NOSIGNAL), EPIPE);
}

int main(void)
{
    int ends[2];
    pair(ends);
    near = ends[0], far = ends[1];
    make_bad();
    sending();
    sending_part();
    receiving();
    nothing_there();
    return 0;
}

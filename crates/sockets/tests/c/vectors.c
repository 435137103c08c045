/* readv, writev, sendmsg, recvmsg, sendmmsg, recvmmsg: pieces in order, empty ones too, and what they say of themselves. Not on posted stores. */
#include "quirk.h"

static void vectors(int from, int to)
{
    char a[4] = "", b[4] = "", c[8] = "";
    struct iovec out[4] = {{"abc", 3}, {NULL, 0}, {"d", 1}, {"efghij", 6}};
    struct iovec in[4] = {{a, 3}, {NULL, 0}, {b, 2}, {c, 5}};
    volatile int negative = -1, excessive = 5000;
    CHECK(writev(from, out, 4) == 10);
    CHECK(readv(to, in, 4) == 10);
    CHECK(memcmp(a, "abc", 3) == 0 && memcmp(b, "de", 2) == 0 && memcmp(c, "fghij", 5) == 0);
    FAILS(writev(from, out, negative), EINVAL);
    FAILS(readv(to, in, excessive), EINVAL);
    CHECK(writev(from, out, 0) == 0);
}

static void messages(int from, int to)
{
    char a[4] = "", b[8] = "", control[64];
    struct sockaddr_storage name;
    struct iovec out[2] = {{"hello ", 6}, {"world", 5}}, in[2] = {{a, 4}, {b, 8}};
    struct msghdr sent = {.msg_iov = out, .msg_iovlen = 2};
    CHECK(sendmsg(from, &sent, 0) == 11);
    struct msghdr got = {.msg_name = &name, .msg_namelen = sizeof name, .msg_iov = in, .msg_iovlen = 2,
        .msg_control = control, .msg_controllen = sizeof control, .msg_flags = -1};
    CHECK(recvmsg(to, &got, 0) == 11);
    CHECK(memcmp(a, "hell", 4) == 0 && memcmp(b, "o world", 7) == 0);
    CHECK(got.msg_namelen == 0 && got.msg_controllen == 0 && got.msg_flags == 0);
    FAILS(recvmsg(to, &got, MSG_DONTWAIT), EAGAIN);
}

static void many(int from, int to)
{
    char in[3][4];
    struct iovec out[3] = {{"abc", 3}, {"def", 3}, {"gh", 2}}, into[3] = {{in[0], 3}, {in[1], 3}, {in[2], 3}};
    struct mmsghdr sent[3], got[3];
    memset(sent, 0, sizeof sent);
    memset(got, 0, sizeof got);
    for (int i = 0; i < 3; i++) {
        sent[i].msg_hdr.msg_iov = &out[i];
        sent[i].msg_hdr.msg_iovlen = 1;
        got[i].msg_hdr.msg_iov = &into[i];
        got[i].msg_hdr.msg_iovlen = 1;
    }
    CHECK(sendmmsg(from, sent, 3, 0) == 3);
    CHECK(sent[0].msg_len == 3 && sent[1].msg_len == 3 && sent[2].msg_len == 2);
    CHECK(recvmmsg(to, got, 3, MSG_WAITFORONE, NULL) == 3);
    CHECK(got[0].msg_len == 3 && got[1].msg_len == 3 && got[2].msg_len == 2);
    CHECK(memcmp(in[0], "abc", 3) == 0 && memcmp(in[1], "def", 3) == 0 && memcmp(in[2], "gh", 2) == 0);
    FAILS(recvmmsg(to, got, 3, MSG_DONTWAIT, NULL), EAGAIN);
}

static void addresses_are_ignored(int from, int to)
{
    struct sockaddr_in other = here(9);
    socklen_t len = sizeof other;
    char text[8] = "";
    CHECK(sendto(from, "where", 5, 0, (struct sockaddr *)&other, sizeof other) == 5);
    CHECK(recvfrom(to, text, sizeof text, 0, (struct sockaddr *)&other, &len) == 5 && strcmp(text, "where") == 0);
    CHECK(len == 0);
}

/* Many small pieces, and more bytes than a ring takes at once. */
static void large(int from, int to)
{
    enum { PIECES = 1000, PIECE = 4001 };
    static unsigned char data[PIECES][PIECE], got[PIECES * PIECE];
    struct iovec out[PIECES];
    for (int i = 0; i < PIECES; i++) {
        memset(data[i], i * 31, PIECE);
        out[i] = (struct iovec){data[i], PIECE};
    }
    pid_t child = fork();
    if (child == 0) {
        CHECK(writev(from, out, PIECES) == PIECES * PIECE);
        _exit(0);
    }
    receive_all(to, got, sizeof got);
    CHECK(memcmp(got, data, sizeof got) == 0);
    reap(child);
}

int main(void)
{
    int ends[2];
    pair(ends);
    for (int i = 0; i < 2; i++) {
        vectors(ends[i], ends[!i]);
        messages(ends[i], ends[!i]);
        many(ends[i], ends[!i]);
        addresses_are_ignored(ends[i], ends[!i]);
        large(ends[i], ends[!i]);
    }
    return 0;
}

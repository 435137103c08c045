/* What calls store where, and what they refuse: lengths, flags, times left, bytes that are not to be stored. */
#include "quirk.h"

static int64_t ms_of(struct timespec at) { return at.tv_sec * 1000 + at.tv_nsec / 1000000; }

static void messages(int near, int far)
{
    char bytes[16], control[64], name[64];
    struct iovec part = {.iov_base = bytes, .iov_len = sizeof bytes};
    struct msghdr message = {.msg_name = name, .msg_namelen = 33, .msg_iov = &part, .msg_iovlen = 1,
                             .msg_control = control, .msg_controllen = sizeof control, .msg_flags = 4711};
    FAILS(recvmsg(near, &message, MSG_DONTWAIT), EAGAIN);
    CHECK(message.msg_namelen == 33 && message.msg_controllen == sizeof control && message.msg_flags == 4711);
    send_all(far, "abc", 3);
    ready(near, POLLIN);
    CHECK(recvmsg(near, &message, MSG_CMSG_CLOEXEC) == 3);
    CHECK(message.msg_namelen == 0 && message.msg_controllen == 0 && message.msg_flags == MSG_CMSG_CLOEXEC);
    /* Without a place for a name its length is nobody's. */
    message.msg_name = NULL;
    message.msg_namelen = 33;
    send_all(far, "abc", 3);
    ready(near, POLLIN);
    CHECK(recvmsg(near, &message, 0) == 3 && message.msg_namelen == 33 && message.msg_flags == 0);
    socklen_t len = 33;
    FAILS(recvfrom(near, bytes, sizeof bytes, MSG_DONTWAIT, (struct sockaddr *)name, &len), EAGAIN);
    CHECK(len == 33);
    send_all(far, "abc", 3);
    ready(near, POLLIN);
    CHECK(recvfrom(near, bytes, sizeof bytes, 0, (struct sockaddr *)name, &len) == 3 && len == 0);
}

static void thrown_away(int near, int far)
{
    enum { MANY = 300000 };
    static char much[MANY];
    char bytes[8] = "unharmed";
    send_all(far, "abcdef", 6);
    ready(near, POLLIN);
    CHECK(recv(near, bytes, 4, MSG_TRUNC | MSG_PEEK) == 4 && memcmp(bytes, "unharmed", 8) == 0);
    CHECK(recv(near, bytes, 4, MSG_TRUNC) == 4 && memcmp(bytes, "unharmed", 8) == 0);
    struct iovec part = {.iov_base = bytes, .iov_len = sizeof bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    CHECK(recvmsg(near, &message, MSG_TRUNC) == 2 && memcmp(bytes, "unharmed", 8) == 0);
    pid_t sender = fork();
    CHECK(sender >= 0);
    if (sender == 0) {
        send_all(far, much, sizeof much);
        send_all(far, "end", 3);
        _exit(0);
    }
    CHECK(recv(near, much, sizeof much, MSG_TRUNC | MSG_WAITALL) == sizeof much);
    expect(near, "end");
    reap(sender);
}

static void many(int near, int far)
{
    char bytes[2][4];
    struct iovec parts[2] = {{bytes[0], 4}, {bytes[1], 4}};
    struct mmsghdr all[2] = {{.msg_hdr = {.msg_iov = &parts[0], .msg_iovlen = 1}},
                             {.msg_hdr = {.msg_iov = &parts[1], .msg_iovlen = 1}}};
    struct timespec wrong[] = {{.tv_sec = -1}, {.tv_nsec = 1000000000}, {.tv_nsec = -1}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        FAILS(recvmmsg(near, all, 2, 0, &wrong[i]), EINVAL);
    send_all(far, "12345678", 8);
    ready(near, POLLIN);
    struct timespec left = {.tv_sec = 20};
    CHECK(recvmmsg(near, all, 2, 0, &left) == 2 && all[0].msg_len == 4 && all[1].msg_len == 4);
    CHECK(ms_of(left) < 20000 && ms_of(left) > 10000);
    left = (struct timespec){.tv_sec = 20};
    FAILS(recvmmsg(near, all, 2, MSG_DONTWAIT, &left), EAGAIN);
    CHECK(left.tv_sec == 20 && left.tv_nsec == 0);
}

static void lengths(int near, int far)
{
    /* Not known to the compiler, which warns of them. */
    volatile size_t most = (size_t)-1;
    volatile int few = -1;
    char bytes[8];
    struct iovec parts[2] = {{bytes, 4}, {bytes + 4, most}};
    FAILS(readv(near, parts, 2), EINVAL);
    FAILS(writev(near, parts, 2), EINVAL);
    FAILS(readv(near, parts, few), EINVAL);
    FAILS(read(near, bytes, most), EFAULT);
    FAILS(write(near, bytes, most), EFAULT);
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    FAILS(recvmsg(near, &message, MSG_DONTWAIT), EINVAL);
    FAILS(sendmsg(near, &message, MSG_NOSIGNAL), EINVAL);
    message.msg_iovlen = 1025;
    FAILS(recvmsg(near, &message, MSG_DONTWAIT), EMSGSIZE);
    FAILS(sendmsg(near, &message, MSG_NOSIGNAL), EMSGSIZE);
    parts[1].iov_len = (size_t)1 << 62;
    FAILS(readv(near, parts, 2), EFAULT);
    send_all(far, "ok", 2);
    expect(near, "ok");
}

/* A negative time-out is over at once, and then there is none that `getsockopt` could tell. */
static void negative(int near)
{
    struct timeval limit = {.tv_sec = -5}, got = {.tv_sec = 7};
    socklen_t len = sizeof got;
    char byte;
    CHECK(setsockopt(near, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    FAILS(recv(near, &byte, 1, 0), EAGAIN);
    CHECK(getsockopt(near, SOL_SOCKET, SO_RCVTIMEO, &got, &len) == 0 && got.tv_sec == 0 && got.tv_usec == 0);
    limit.tv_sec = 0;
    CHECK(setsockopt(near, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
}

int main(void)
{
    int ends[2];
    pair(ends);
    messages(ends[0], ends[1]);
    thrown_away(ends[0], ends[1]);
    many(ends[0], ends[1]);
    lengths(ends[0], ends[1]);
    negative(ends[0]);
    /* At the end all messages are filled, with nothing. */
    CHECK(close(ends[1]) == 0);
    char bytes[2][4];
    struct iovec parts[2] = {{bytes[0], 4}, {bytes[1], 4}};
    struct mmsghdr all[2] = {{.msg_hdr = {.msg_iov = &parts[0], .msg_iovlen = 1}},
                             {.msg_hdr = {.msg_iov = &parts[1], .msg_iovlen = 1}}};
    CHECK(recvmmsg(ends[0], all, 2, 0, NULL) == 2 && all[0].msg_len == 0 && all[1].msg_len == 0);
    return 0;
}

/* What goes with a message: names of absurd lengths, control data that is none, flags that no connection takes, and the
 * bytes that are left (TCP_INQ). */
#include "quirk.h"

#ifndef TCP_INQ
#define TCP_INQ 36
#endif

static void names(int near, int far)
{
    struct sockaddr_in at = here(9);
    struct sockaddr_storage name = {0};
    volatile socklen_t beyond = 129, negative = (socklen_t)-1;
    char byte[2];
    memcpy(&name, &at, sizeof at);
    CHECK(sendto(near, "a", 1, 0, (struct sockaddr *)&name, 128) == 1);
    CHECK(sendto(near, "b", 1, 0, (struct sockaddr *)&name, 0) == 1);
    CHECK(sendto(near, "c", 1, 0, NULL, negative) == 1);
    FAILS(sendto(near, "x", 1, 0, (struct sockaddr *)&name, beyond), EINVAL);
    FAILS(sendto(near, "x", 1, 0, (struct sockaddr *)&name, negative), EINVAL);
    struct iovec part = {byte, 1};
    struct msghdr message = {.msg_name = &name, .msg_namelen = beyond, .msg_iov = &part, .msg_iovlen = 1};
    byte[0] = 'd';
    CHECK(sendmsg(near, &message, 0) == 1);
    message.msg_namelen = negative;
    FAILS(sendmsg(near, &message, 0), EINVAL);
    message.msg_name = NULL;
    byte[0] = 'e';
    CHECK(sendmsg(near, &message, 0) == 1);
    expect(far, "abcde");

    send_all(near, "xabc", 4);
    ready(far, POLLIN);
    socklen_t len = negative;
    /* The byte is lost, as the name is stored behind it. */
    FAILS(recvfrom(far, byte, 1, 0, (struct sockaddr *)&name, &len), EINVAL);
    message.msg_name = &name;
    FAILS(recvmsg(far, &message, 0), EINVAL);
    message.msg_name = NULL;
    CHECK(recvmsg(far, &message, 0) == 1 && byte[0] == 'a');
    expect(far, "bc");
}

static void control(int near, int far)
{
    _Alignas(struct cmsghdr) char data[CMSG_SPACE(8)] = {0};
    struct cmsghdr *head = (struct cmsghdr *)data;
    struct iovec part = {"x", 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = data, .msg_controllen = CMSG_SPACE(4)};
    /* No head can be so short, nor data so long. */
    size_t wrong[] = {0, 5, 1000};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        *head = (struct cmsghdr){.cmsg_len = wrong[i], .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        FAILS(sendmsg(near, &message, 0), EINVAL);
        struct mmsghdr many = {.msg_hdr = message};
        FAILS(sendmmsg(near, &many, 1, 0), EINVAL);
    }
    /* Of the socket's level, and nothing that it knows; then of another level, which is passed over. */
    *head = (struct cmsghdr){.cmsg_len = CMSG_LEN(4), .cmsg_level = SOL_SOCKET, .cmsg_type = 99};
    FAILS(sendmsg(near, &message, 0), EINVAL);
    head->cmsg_level = 77;
    CHECK(sendmsg(near, &message, 0) == 1);
    head->cmsg_level = SOL_SOCKET;
    message.msg_controllen = 1 << 28;
    FAILS(sendmsg(near, &message, 0), ENOBUFS);
    message.msg_controllen = 5;
    CHECK(sendmsg(near, &message, 0) == 1);
    expect(far, "xx");
}

static void flags(int near, int far)
{
    struct sockaddr_in at = here(9);
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    char byte;
    struct iovec part = {&byte, 1};
    struct mmsghdr many = {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}};
    const int compat = INT32_MIN;
    FAILS(send(near, "x", 1, MSG_FASTOPEN | MSG_NOSIGNAL), EISCONN);
    FAILS(sendto(near, "x", 1, MSG_FASTOPEN | MSG_NOSIGNAL, (struct sockaddr *)&at, sizeof at), EISCONN);
    FAILS(sendto(near, "x", 1, MSG_FASTOPEN | MSG_NOSIGNAL, &none, sizeof none), EOPNOTSUPP);
    FAILS(sendmsg(near, &many.msg_hdr, MSG_FASTOPEN | MSG_NOSIGNAL), EISCONN);
    FAILS(sendmmsg(near, &many, 1, compat), EINVAL);
    FAILS(sendmsg(near, &many.msg_hdr, compat), EINVAL);
    send_all(near, "y", 1);
    ready(far, POLLIN);
    FAILS(recvmsg(far, &many.msg_hdr, compat), EINVAL);
    FAILS(recvmmsg(far, &many, 1, compat, NULL), EINVAL);
    FAILS(recvmmsg(far, &many, 1, MSG_ERRQUEUE, NULL), EAGAIN);
    FAILS(recvmmsg(far, &many, 1, MSG_OOB, NULL), EINVAL);
    CHECK(recv(far, &byte, 1, compat) == 1 && byte == 'y');
}

/* Receives a byte into a message with `room` bytes for control data. */
static int left(int fd, size_t room, size_t used, int told)
{
    _Alignas(struct cmsghdr) char data[64];
    char byte;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = data, .msg_controllen = room};
    int got = (int)recvmsg(fd, &message, 0), unread = -1;
    CHECK(got >= 0);
    CHECK(message.msg_controllen == used && message.msg_flags == told);
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (used >= CMSG_LEN(4)) {
        CHECK(head->cmsg_level == SOL_TCP && head->cmsg_type == TCP_INQ && head->cmsg_len == CMSG_LEN(4));
        memcpy(&unread, CMSG_DATA(head), sizeof unread);
    }
    return unread;
}

static void bytes_left(int near, int far)
{
    int on = 1;
    send_all(near, "0123456789", 10);
    ready(far, POLLIN);
    CHECK(left(far, 64, 0, 0) == -1);
    CHECK(setsockopt(far, IPPROTO_TCP, TCP_INQ, &on, sizeof on) == 0);
    CHECK(left(far, 64, CMSG_SPACE(4), 0) == 8);
    CHECK(left(far, CMSG_LEN(4), CMSG_LEN(4), 0) == 7);
    left(far, 18, 18, MSG_CTRUNC);
    left(far, 10, 0, MSG_CTRUNC);
    left(far, 0, 0, MSG_CTRUNC);
    CHECK(left(far, 64, CMSG_SPACE(4), 0) == 3);
    on = 0;
    CHECK(setsockopt(far, IPPROTO_TCP, TCP_INQ, &on, sizeof on) == 0);
    CHECK(left(far, 64, 0, 0) == -1);
    on = 1;
    CHECK(setsockopt(far, IPPROTO_TCP, TCP_INQ, &on, sizeof on) == 0);
    CHECK(shutdown(near, SHUT_WR) == 0);
    ready(far, POLLRDHUP);
    /* The end of file is something to come for. */
    CHECK(left(far, 64, CMSG_SPACE(4), 0) == 2);
    CHECK(left(far, 64, CMSG_SPACE(4), 0) == 1);
    CHECK(left(far, 64, CMSG_SPACE(4), 0) == 1);
}

int main(void)
{
    int ends[2];
    pair(ends);
    for (int i = 0; i < 2; i++) {
        names(ends[i], ends[!i]);
        control(ends[i], ends[!i]);
        flags(ends[i], ends[!i]);
    }
    bytes_left(ends[0], ends[1]);
    return 0;
}

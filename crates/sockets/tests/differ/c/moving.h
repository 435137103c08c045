/* Calls that move bytes. Arguments: slot, then as named in each first line. */
#ifndef MOVING_H
#define MOVING_H
#include "core.h"

/* Any address given with data: 0 none, 1 the script's own, 2 too short, 3 of no family. */
static socklen_t destination(long kind, struct sockaddr_storage *at)
{
    struct sockaddr_in *in = (void *)at;
    memset(at, 0, sizeof *at);
    in->sin_family = kind == 3 ? AF_UNSPEC : AF_INET;
    in->sin_addr = script_address;
    in->sin_port = htons(9);
    return kind == 0 ? 0 : kind == 2 ? 4 : sizeof *in;
}

/* Buffers of a vector: `kind` chooses how `len` bytes are split; the number of them. */
static int split(struct iovec *iov, unsigned char *data, size_t len, long kind)
{
    size_t third = len / 3;
    switch (kind) {
    case 0: /* one */
        iov[0] = (struct iovec){data, len};
        return 1;
    case 1: /* three, the middle one empty */
        iov[0] = (struct iovec){data, third};
        iov[1] = (struct iovec){NULL, 0};
        iov[2] = (struct iovec){data + third, len - third};
        return 3;
    case 2: /* single bytes and the rest */
        for (int at = 0; at < 4; at++)
            iov[at] = (struct iovec){data + at, (size_t)at < len ? 1 : 0};
        iov[4] = (struct iovec){data + 4, len > 4 ? len - 4 : 0};
        return 5;
    case 3: /* none */
        return 0;
    case 4: /* one of a negative length */
        iov[0] = (struct iovec){data, (size_t)-1};
        return 1;
    case 5: /* two, of which the sum is too large */
        iov[0] = (struct iovec){data, third};
        iov[1] = (struct iovec){data, (size_t)-1 / 2};
        return 2;
    default: /* two */
        iov[0] = (struct iovec){data, third};
        iov[1] = (struct iovec){data + third, len - third};
        return 2;
    }
}

/* slot len flags */
static void call_send(const struct op *op)
{
    size_t len = (size_t)arg(op, 1);
    out_result(send(fd_of(arg(op, 0)), payload(len), len, (int)arg(op, 2)));
}

/* slot len */
static void call_write(const struct op *op)
{
    size_t len = (size_t)arg(op, 1);
    out_result(write(fd_of(arg(op, 0)), payload(len), len));
}

/* slot len flags destination */
static void call_sendto(const struct op *op)
{
    struct sockaddr_storage at;
    size_t len = (size_t)arg(op, 1);
    socklen_t at_len = destination(arg(op, 3), &at);
    out_result(sendto(fd_of(arg(op, 0)), payload(len), len, (int)arg(op, 2), at_len ? (void *)&at : NULL, at_len));
}

/* slot len split */
static void call_writev(const struct op *op)
{
    struct iovec iov[8];
    size_t len = (size_t)arg(op, 1);
    int count = split(iov, payload(len), len, arg(op, 2));
    out_result(writev(fd_of(arg(op, 0)), iov, arg(op, 2) == 6 ? -1 : arg(op, 2) == 7 ? 1025 : count));
}

/* slot len split flags destination control: 0 none, 1 an empty one, 2 too short, 3 of an unknown type, 4 of another level */
static void call_sendmsg(const struct op *op)
{
    struct iovec iov[8];
    struct sockaddr_storage at;
    union {
        struct cmsghdr head;
        char bytes[64];
    } control = {0};
    size_t len = (size_t)arg(op, 1);
    struct msghdr msg = {.msg_iov = iov, .msg_flags = 0x7f};
    msg.msg_iovlen = (size_t)split(iov, payload(len), len, arg(op, 2));
    msg.msg_namelen = destination(arg(op, 4), &at);
    msg.msg_name = msg.msg_namelen ? &at : NULL;
    if (arg(op, 5) > 0) {
        msg.msg_control = &control;
        msg.msg_controllen = CMSG_SPACE(sizeof(int));
        control.head.cmsg_len = arg(op, 5) == 2 ? 3 : CMSG_LEN(sizeof(int));
        control.head.cmsg_level = arg(op, 5) == 4 ? IPPROTO_UDP : SOL_SOCKET;
        control.head.cmsg_type = arg(op, 5) == 3 ? 99 : 0;
        if (arg(op, 5) == 1)
            msg.msg_controllen = 0;
    }
    out_result(sendmsg(fd_of(arg(op, 0)), &msg, (int)arg(op, 3)));
    if (msg.msg_flags != 0x7f)
        out(" msg_flags=%x", msg.msg_flags);
}

/* slot count len flags */
static void call_sendmmsg(const struct op *op)
{
    struct iovec iov[8];
    struct mmsghdr msgs[8];
    size_t len = (size_t)arg(op, 2);
    unsigned char *data = payload(8 * (len + 1));
    memset(msgs, 0, sizeof msgs);
    for (int at = 0; at < 8; at++) {
        iov[at] = (struct iovec){data + (size_t)at * len, len};
        msgs[at].msg_hdr.msg_iov = &iov[at];
        msgs[at].msg_hdr.msg_iovlen = 1;
        msgs[at].msg_len = 77;
    }
    out_result(sendmmsg(fd_of(arg(op, 0)), msgs, (unsigned)arg(op, 1) & 7, (int)arg(op, 3)));
    out(" lens=");
    for (int at = 0; at < 8; at++)
        out("%u,", msgs[at].msg_len);
}

/* slot len flags */
static void call_recv(const struct op *op)
{
    size_t len = (size_t)arg(op, 1);
    unsigned char *data = canvas(len);
    long got = recv(fd_of(arg(op, 0)), data, len, (int)arg(op, 2));
    out_result(got);
    out_bytes("data", data, got, len);
}

/* slot len */
static void call_read(const struct op *op)
{
    size_t len = (size_t)arg(op, 1);
    unsigned char *data = canvas(len);
    long got = read(fd_of(arg(op, 0)), data, len);
    out_result(got);
    out_bytes("data", data, got, len);
}

/* slot len flags, length for the address (-1: no address) */
static void call_recvfrom(const struct op *op)
{
    size_t len = (size_t)arg(op, 1);
    unsigned char *data = canvas(len);
    struct sockaddr_storage at;
    socklen_t at_len = (socklen_t)arg(op, 3), told = at_len;
    memset(&at, CANARY, sizeof at);
    int none = arg(op, 3) == -1;
    long got = recvfrom(fd_of(arg(op, 0)), data, len, (int)arg(op, 2), none ? NULL : (void *)&at, none ? NULL : &told);
    out_result(got);
    out_bytes("data", data, got, len);
    if (!none)
        out_address(&at, at_len, told);
}

/* slot len split */
static void call_readv(const struct op *op)
{
    struct iovec iov[8];
    size_t len = (size_t)arg(op, 1);
    unsigned char *data = canvas(len);
    int count = split(iov, data, len, arg(op, 2));
    long got = readv(fd_of(arg(op, 0)), iov, arg(op, 2) == 6 ? -1 : arg(op, 2) == 7 ? 1025 : count);
    out_result(got);
    out_bytes("data", data, got, len);
}

static void out_message(const struct msghdr *msg, const char *control, socklen_t name_len)
{
    out(" msg_flags=%x controllen=%zu namelen=%u", msg->msg_flags, (size_t)msg->msg_controllen, msg->msg_namelen);
    if (msg->msg_name != NULL && !untouched(msg->msg_name, 0, name_len))
        out(" name_stored=1");
    if (!untouched(control, msg->msg_controllen < 64 ? msg->msg_controllen : 64, 64))
        out(" control_beyond=1");
}

/* slot len split flags, with a name, with control */
static void call_recvmsg(const struct op *op)
{
    struct iovec iov[8];
    struct sockaddr_storage at;
    char control[64];
    size_t len = (size_t)arg(op, 1);
    unsigned char *data = canvas(len);
    struct msghdr msg = {.msg_iov = iov, .msg_flags = 0x7f};
    msg.msg_iovlen = (size_t)split(iov, data, len, arg(op, 2));
    memset(&at, CANARY, sizeof at);
    memset(control, CANARY, sizeof control);
    if (arg(op, 4)) {
        msg.msg_name = &at;
        msg.msg_namelen = sizeof at;
    }
    if (arg(op, 5)) {
        msg.msg_control = control;
        msg.msg_controllen = sizeof control;
    }
    long got = recvmsg(fd_of(arg(op, 0)), &msg, (int)arg(op, 3));
    out_result(got);
    out_bytes("data", data, got, len);
    out_message(&msg, control, sizeof at);
}

/* slot count len flags, milliseconds to wait (-1: for ever) */
static void call_recvmmsg(const struct op *op)
{
    struct iovec iov[8];
    struct mmsghdr msgs[8];
    size_t len = (size_t)arg(op, 2);
    unsigned char *data = canvas(8 * len);
    struct timespec limit = {0, arg(op, 4) * 1000000};
    memset(msgs, 0, sizeof msgs);
    for (int at = 0; at < 8; at++) {
        iov[at] = (struct iovec){data + (size_t)at * len, len};
        msgs[at].msg_hdr.msg_iov = &iov[at];
        msgs[at].msg_hdr.msg_iovlen = 1;
        msgs[at].msg_hdr.msg_flags = 0x7f;
        msgs[at].msg_len = 77;
    }
    long got = recvmmsg(fd_of(arg(op, 0)), msgs, (unsigned)arg(op, 1) & 7, (int)arg(op, 3), arg(op, 4) < 0 ? NULL : &limit);
    out_result(got);
    out(" msgs=");
    for (int at = 0; at < 8; at++)
        out("%u/%x,", msgs[at].msg_len, msgs[at].msg_hdr.msg_flags);
    for (int at = 0; at < got; at++)
        out(" data%d=%016llx", at, (unsigned long long)hash(iov[at].iov_base, msgs[at].msg_len));
}

/* slot len offset flags: preadv2, pwritev2 and the older forms; `which` 0 pread, 1 pwrite, 2 preadv2, 3 pwritev2 */
static void call_at(const struct op *op)
{
    size_t len = (size_t)arg(op, 2);
    int fd = fd_of(arg(op, 0));
    long got;
    int reads = arg(op, 1) == 0 || arg(op, 1) == 2;
    unsigned char *data = reads ? canvas(len) : payload(len);
    struct iovec iov = {data, len};
    switch (arg(op, 1)) {
    case 0:
        got = pread(fd, data, len, arg(op, 3));
        break;
    case 1:
        got = pwrite(fd, data, len, arg(op, 3));
        break;
    case 2:
        got = preadv2(fd, &iov, 1, arg(op, 3), (int)arg(op, 4));
        break;
    default:
        got = pwritev2(fd, &iov, 1, arg(op, 3), (int)arg(op, 4));
    }
    out_result(got);
    if (reads)
        out_bytes("data", data, got, len);
}

static off_t *offset_of(long kind, off_t *offset)
{
    *offset = kind == 2 ? -1 : kind == 3 ? 1000000 : 5;
    return kind == 0 ? NULL : offset;
}

/* out-slot in-slot len, offset: 0 none, 1 five, 2 negative, 3 behind the end */
static void call_sendfile(const struct op *op)
{
    off_t offset, *at = offset_of(arg(op, 3), &offset);
    out_result(sendfile(fd_of(arg(op, 0)), fd_of(arg(op, 1)), at, (size_t)arg(op, 2)));
    if (at != NULL)
        out(" offset=%ld", (long)offset);
}

/* in-slot out-slot len flags, offset of the input, offset of the output */
static void call_splice(const struct op *op)
{
    off_t from, to, *in = offset_of(arg(op, 4), &from), *to_at = offset_of(arg(op, 5), &to);
    out_result(splice(fd_of(arg(op, 0)), in, fd_of(arg(op, 1)), to_at, (size_t)arg(op, 2), (unsigned)arg(op, 3)));
    if (in != NULL)
        out(" in=%ld", (long)from);
    if (to_at != NULL)
        out(" out=%ld", (long)to);
}

/* in-slot out-slot len flags */
static void call_tee(const struct op *op)
{
    out_result(tee(fd_of(arg(op, 0)), fd_of(arg(op, 1)), (size_t)arg(op, 2), (unsigned)arg(op, 3)));
}

/* slot: sends without waiting until no more goes; then what was taken is as long as a buffer is. */
static void call_flood(const struct op *op)
{
    long total = 0, sent;
    size_t len = 16384;
    unsigned char *data = payload(len);
    do {
        sent = send(fd_of(arg(op, 0)), data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
        total += sent > 0 ? sent : 0;
    } while (sent > 0 && total < (64 << 20));
    out_result(sent);
    out(" total=%ld", total);
}

/* slot: receives without waiting until there is no more. */
static void call_drain(const struct op *op)
{
    long total = 0, got;
    unsigned char *data = canvas(65536);
    for (int patience = 0; patience < 20; patience++) {
        while ((got = recv(fd_of(arg(op, 0)), data, 65536, MSG_DONTWAIT)) > 0) {
            total += got;
            patience = 0;
        }
        if (got == 0 || errno != EAGAIN || total == 0)
            break;
        usleep(1000);
    }
    out_result(got);
    out(" total=%ld", total);
}

#endif

/* Calls that make, name, connect, copy and close descriptors, and what is asked of them. */
#ifndef NAMING_H
#define NAMING_H
#include "core.h"

/* slot family type protocol */
static void call_socket(const struct op *op)
{
    int fd = socket((int)arg(op, 1), (int)arg(op, 2), (int)arg(op, 3));
    out_result(fd);
    keep(arg(op, 0), fd);
}

/* slot slot type */
static void call_socketpair(const struct op *op)
{
    int fds[2] = {-7, -7};
    out_result(socketpair(AF_UNIX, (int)arg(op, 2), 0, fds));
    out(" fds=%d,%d", fds[0], fds[1]);
    keep(arg(op, 0), fds[0]);
    keep(arg(op, 1), fds[1]);
}

/* reading-slot writing-slot flags */
static void call_pipe(const struct op *op)
{
    int fds[2] = {-7, -7};
    out_result(pipe2(fds, (int)arg(op, 2)));
    out(" fds=%d,%d", fds[0], fds[1]);
    keep(arg(op, 0), fds[0]);
    keep(arg(op, 1), fds[1]);
}

/* slot len: a file of `len` known bytes, at its beginning */
static void call_file(const struct op *op)
{
    int fd = memfd_create("differ", 0);
    out_result(fd);
    if (fd < 0)
        return;
    size_t len = within((size_t)arg(op, 1));
    if (write(fd, payload(len), len) != (ssize_t)len || lseek(fd, 0, SEEK_SET) != 0)
        out(" file=?");
    keep(arg(op, 0), fd);
}

/* An address to bind or connect to; its length, -1 if `kind` means the null pointer. */
static long address(long kind, long of, struct sockaddr_storage *at)
{
    struct sockaddr_in *in = (void *)at;
    struct sockaddr_in6 *six = (void *)at;
    memset(at, 0, sizeof *at);
    in->sin_family = AF_INET;
    in->sin_addr = script_address;
    switch (kind) {
    case 0: /* the script's own address and any port */
        return sizeof *in;
    case 1: /* any address, any port */
        in->sin_addr.s_addr = 0;
        return sizeof *in;
    case 2: /* that of a bound socket */
        if (of >= 0 && of < SLOTS && shared->at_len[of] > 0) {
            *at = shared->at[of];
            return shared->at_len[of];
        }
        in->sin_port = htons(9);
        return sizeof *in;
    case 3: /* too short */
        return 7;
    case 4: /* another family */
        in->sin_family = AF_UNIX;
        return sizeof *in;
    case 5: /* no family */
        in->sin_family = AF_UNSPEC;
        return sizeof *in;
    case 6: /* IPv6, any */
        six->sin6_family = AF_INET6;
        six->sin6_addr = in6addr_any;
        six->sin6_port = 0;
        return sizeof *six;
    case 7: { /* that of a bound socket, as IPv6 says an IPv4 address */
        uint16_t port = htons(9);
        if (of >= 0 && of < SLOTS && shared->at_len[of] > 0)
            port = ((struct sockaddr_in *)&shared->at[of])->sin_port;
        six->sin6_family = AF_INET6;
        six->sin6_port = port;
        six->sin6_addr.s6_addr[10] = six->sin6_addr.s6_addr[11] = 0xff;
        memcpy(&six->sin6_addr.s6_addr[12], &script_address, 4);
        return sizeof *six;
    }
    case 8: /* longer than it need be */
        return sizeof *at;
    case 9: /* too long */
        return 4096;
    default: /* nobody listens there */
        in->sin_port = htons(1);
        return sizeof *in;
    }
}

/* What others connect to: the address of this slot, and the script's own host if it is any. */
static void remember(long name, int fd)
{
    struct sockaddr_storage at;
    socklen_t len = sizeof at;
    if (name < 0 || name >= SLOTS || getsockname(fd, (void *)&at, &len) != 0)
        return;
    if (at.ss_family == AF_INET && ((struct sockaddr_in *)&at)->sin_addr.s_addr == 0)
        ((struct sockaddr_in *)&at)->sin_addr = script_address;
    if (at.ss_family == AF_INET6) {
        struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr = script_address};
        in.sin_port = ((struct sockaddr_in6 *)&at)->sin6_port;
        memset(&at, 0, sizeof at);
        memcpy(&at, &in, sizeof in);
        len = sizeof in;
    }
    shared->at[name] = at;
    shared->at_len[name] = len;
}

/* slot address slot */
static void call_bind(const struct op *op)
{
    struct sockaddr_storage at[33];
    memset(at, 0, sizeof at);
    long len = address(arg(op, 1), arg(op, 2), at);
    long result = bind(fd_of(arg(op, 0)), (void *)at, (socklen_t)len);
    out_result(result);
    if (result == 0)
        remember(arg(op, 0), fd_of(arg(op, 0)));
}

/* slot backlog */
static void call_listen(const struct op *op)
{
    long result = listen(fd_of(arg(op, 0)), (int)arg(op, 1));
    out_result(result);
    if (result == 0)
        remember(arg(op, 0), fd_of(arg(op, 0)));
}

/* slot address slot */
static void call_connect(const struct op *op)
{
    struct sockaddr_storage at[33];
    memset(at, 0, sizeof at);
    long len = address(arg(op, 1), arg(op, 2), at);
    out_result(connect(fd_of(arg(op, 0)), (void *)at, (socklen_t)len));
}

/* slot new-slot flags (-1: accept), length for the address (-1: none) */
static void call_accept(const struct op *op)
{
    struct sockaddr_storage at;
    socklen_t len = (socklen_t)arg(op, 3), told = len;
    int none = arg(op, 3) == -1, fd;
    memset(&at, CANARY, sizeof at);
    if (arg(op, 2) == -1)
        fd = accept(fd_of(arg(op, 0)), none ? NULL : (void *)&at, none ? NULL : &told);
    else
        fd = accept4(fd_of(arg(op, 0)), none ? NULL : (void *)&at, none ? NULL : &told, (int)arg(op, 2));
    out_result(fd);
    if (!none)
        out_address(&at, len, told);
    keep(arg(op, 1), fd);
}

static void call_close(const struct op *op) { out_result(close(fd_of(arg(op, 0)))); }

/* slot how */
static void call_shutdown(const struct op *op) { out_result(shutdown(fd_of(arg(op, 0)), (int)arg(op, 1))); }

/* slot new-slot */
static void call_dup(const struct op *op)
{
    int fd = dup(fd_of(arg(op, 0)));
    out_result(fd);
    keep(arg(op, 1), fd);
}

/* slot target-slot flags (-1: dup2): onto the number in the target's slot, or 60 and more if it holds none */
static void call_dup2(const struct op *op)
{
    int onto = fd_of(arg(op, 1)), fd;
    if (onto < 0 && arg(op, 1) >= 0 && arg(op, 1) < SLOTS)
        onto = 60 + (int)arg(op, 1);
    if (arg(op, 2) == -1)
        fd = dup2(fd_of(arg(op, 0)), onto);
    else
        fd = dup3(fd_of(arg(op, 0)), onto, (int)arg(op, 2));
    out_result(fd);
    keep(arg(op, 1), fd);
}

/* slot command value new-slot */
static void call_fcntl(const struct op *op)
{
    int command = (int)arg(op, 1);
    int result = fcntl(fd_of(arg(op, 0)), command, (int)arg(op, 2));
    if (command == F_GETFL && result >= 0)
        out(" r=0 flags=%x", result);
    else
        out_result(result);
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)
        keep(arg(op, 3), result);
}

/* slot request value */
static void call_ioctl(const struct op *op)
{
    int value[4];
    memset(value, CANARY, sizeof value);
    if (arg(op, 1) == FIONBIO || arg(op, 1) == FIOASYNC)
        value[0] = (int)arg(op, 2);
    out_result(ioctl(fd_of(arg(op, 0)), (unsigned long)arg(op, 1), value));
    out(" value=%d", value[0]);
    if (!untouched(value, sizeof value[0], sizeof value))
        out(" value_beyond=1");
}

/* slot, length for the address (-1: no length, -2: no address), which: 0 own, 1 peer */
static void call_name(const struct op *op)
{
    struct sockaddr_storage at;
    int fd = fd_of(arg(op, 0));
    socklen_t len = arg(op, 1) == -2 ? sizeof at : (socklen_t)arg(op, 1), told = len;
    socklen_t *told_at = arg(op, 1) == -1 ? NULL : &told;
    void *to = arg(op, 1) == -2 ? NULL : &at;
    memset(&at, CANARY, sizeof at);
    out_result(arg(op, 2) ? getpeername(fd, to, told_at) : getsockname(fd, to, told_at));
    if (told_at != NULL && to != NULL)
        out_address(&at, len > sizeof at ? sizeof at : len, told);
}

/* slot level name len value second: two ints are the value */
static void call_setopt(const struct op *op)
{
    int value[16] = {(int)arg(op, 4), (int)arg(op, 5)};
    int fd = fd_of(arg(op, 0));
    out_result(setsockopt(fd, (int)arg(op, 1), (int)arg(op, 2), arg(op, 3) == -2 ? NULL : value,
                          arg(op, 3) == -2 ? 4 : (socklen_t)arg(op, 3)));
}

/* slot level name, seconds and microseconds: a time-out */
static void call_settime(const struct op *op)
{
    struct timeval value = {arg(op, 2), arg(op, 3)};
    out_result(setsockopt(fd_of(arg(op, 0)), SOL_SOCKET, (int)arg(op, 1), &value, sizeof value));
}

/* slot level name len */
static void call_getopt(const struct op *op)
{
    unsigned char value[256];
    socklen_t len = (socklen_t)arg(op, 3);
    memset(value, CANARY, sizeof value);
    out_result(getsockopt(fd_of(arg(op, 0)), (int)arg(op, 1), (int)arg(op, 2), value, &len));
    out(" len=%u", len);
    size_t stored = len < sizeof value ? len : sizeof value;
    if (arg(op, 1) == IPPROTO_TCP && arg(op, 2) == TCP_INFO) {
        out(" state=%d", value[0]); /* Counters and times are not compared, here or elsewhere. */
    } else if (stored <= 16) {
        out(" value=");
        for (size_t at = 0; at < stored; at++)
            out("%02x", value[at]);
    } else {
        out(" value=%016llx", (unsigned long long)hash(value, stored));
    }
    if (!untouched(value, stored, sizeof value))
        out(" value_beyond=1");
}

/* slot */
static void call_stat(const struct op *op)
{
    struct stat about;
    int result = fstat(fd_of(arg(op, 0)), &about);
    out_result(result);
    if (result == 0)
        out(" mode=%o size=%ld", about.st_mode, (long)about.st_size);
}

/* slot which offset: calls that a socket refuses */
static void call_refused(const struct op *op)
{
    int fd = fd_of(arg(op, 0));
    switch (arg(op, 1)) {
    case 0:
        out_result(lseek(fd, arg(op, 2), SEEK_SET));
        break;
    case 1:
        out_result(fsync(fd));
        break;
    case 2:
        out_result(ftruncate(fd, arg(op, 2)));
        break;
    case 3:
        out_result(isatty(fd));
        break;
    case 4:
        out_result(posix_fadvise(fd, 0, 0, POSIX_FADV_NORMAL));
        break;
    default: {
        void *at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
        out_result(at == MAP_FAILED ? -1 : 0);
        if (at != MAP_FAILED)
            munmap(at, 4096); /* A mapping would keep the socket. */
    }
    }
}

#endif

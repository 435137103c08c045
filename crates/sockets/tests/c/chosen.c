/* SOL_CROSSLANE: what is chosen before connect and on listeners counts for the stream, what is chosen later too; counters
 * tell what was moved; mistakes are the kernel's errors. Without the library the kernel refuses the level. */
#include "quirk.h"

#include "../../../../include/crosslane.h"

static int get(int fd, int name)
{
    int value = -1;
    socklen_t len = sizeof value;
    CHECK(getsockopt(fd, SOL_CROSSLANE, name, &value, &len) == 0 && len == sizeof value);
    return value;
}

static void set(int fd, int name, int value)
{
    CHECK(setsockopt(fd, SOL_CROSSLANE, name, &value, sizeof value) == 0);
    CHECK(get(fd, name) == value);
}

static int fresh(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    return fd;
}

static void connected_to(int fd, const struct sockaddr_in *at)
{
    CHECK(connect(fd, (const struct sockaddr *)at, sizeof *at) == 0);
}

static void mistakes(int fd)
{
    int value = 4;
    socklen_t len = sizeof value;
    FAILS(setsockopt(fd, SOL_CROSSLANE, XL_TRANSFER, &value, sizeof value), EINVAL);
    value = -1;
    FAILS(setsockopt(fd, SOL_CROSSLANE, XL_TRANSFER, &value, sizeof value), EINVAL);
    value = 2;
    FAILS(setsockopt(fd, SOL_CROSSLANE, XL_OFFLOAD, &value, sizeof value), EINVAL);
    value = 1;
    FAILS(setsockopt(fd, SOL_CROSSLANE, XL_TRANSFER, &value, 3), EINVAL);
    FAILS(setsockopt(fd, SOL_CROSSLANE, XL_TRANSFER, NULL, sizeof value), EFAULT);
    FAILS(setsockopt(fd, SOL_CROSSLANE, XL_STATE, &value, sizeof value), ENOPROTOOPT);
    FAILS(setsockopt(fd, SOL_CROSSLANE, 99, &value, sizeof value), ENOPROTOOPT);
    FAILS(getsockopt(fd, SOL_CROSSLANE, 99, &value, &len), ENOPROTOOPT);
    FAILS(getsockopt(fd, SOL_CROSSLANE, XL_TRANSFER, &value, NULL), EFAULT);
    FAILS(getsockopt(fd, SOL_CROSSLANE, XL_TRANSFER, NULL, &len), EFAULT);
    len = 3;
    FAILS(getsockopt(fd, SOL_CROSSLANE, XL_TRANSFER, &value, &len), EINVAL);
}

/* What is said of a socket is gone with it, also if its number comes back; a copy has it too. */
static void kept_with_the_socket(const struct sockaddr_in *at)
{
    int fd = fresh();
    set(fd, XL_OFFLOAD, 1);
    int copy = dup(fd);
    CHECK(copy >= 0 && get(copy, XL_OFFLOAD) == 1 && close(copy) == 0);
    int other = dup2(STDERR_FILENO, fd);
    CHECK(other == fd && close(fd) == 0);
    int next = fresh();
    CHECK(next == fd && get(next, XL_OFFLOAD) == 0);
    connected_to(next, at);
    CHECK(get(next, XL_STATE) == XL_STATE_STREAM && get(next, XL_OFFLOAD) == 0);
    CHECK(close(next) == 0);
}

static void counted(int from, int to)
{
    struct xl_stats before, after;
    char bytes[3000] = "";
    socklen_t len = sizeof before;
    CHECK(getsockopt(from, SOL_CROSSLANE, XL_STATS, &before, &len) == 0);
    CHECK(len == sizeof before && before.size == sizeof before);
    send_all(from, bytes, sizeof bytes);
    receive_all(to, bytes, sizeof bytes);
    CHECK(getsockopt(from, SOL_CROSSLANE, XL_STATS, &after, &len) == 0);
    CHECK(after.tx_bytes - before.tx_bytes == sizeof bytes && after.rx_bytes == before.rx_bytes);
    CHECK(after.tx_bcopy + after.tx_read_zcopy + after.tx_write_zcopy + after.tx_transaction == after.tx_bytes);
    CHECK(after.tx_copied <= after.tx_bytes);
    CHECK(getsockopt(to, SOL_CROSSLANE, XL_STATS, &after, &len) == 0 && after.rx_bytes >= sizeof bytes);
    /* As much as fits. */
    uint64_t part[2] = {0, 77};
    len = sizeof part[0];
    CHECK(getsockopt(to, SOL_CROSSLANE, XL_STATS, part, &len) == 0 && len == sizeof part[0]);
    CHECK(part[0] == sizeof after && part[1] == 77);
    char long_enough[sizeof after + 8];
    len = sizeof long_enough;
    CHECK(getsockopt(to, SOL_CROSSLANE, XL_STATS, long_enough, &len) == 0 && len == sizeof after);
}

static void streams(void)
{
    struct sockaddr_in at;
    int server = listener(&at), client = fresh(), value = 0;
    socklen_t len = sizeof value;
    CHECK(get(server, XL_STATE) == XL_STATE_LISTENER && get(client, XL_STATE) == XL_STATE_TCP);
    CHECK(get(client, XL_TRANSFER) == XL_TRANSFER_AUTO && get(client, XL_OFFLOAD) == 0);
    set(server, XL_TRANSFER, XL_TRANSFER_WRITE_ZCOPY);
    set(client, XL_TRANSFER, XL_TRANSFER_READ_ZCOPY);
    set(client, XL_OFFLOAD, 1);
    FAILS(getsockopt(client, SOL_CROSSLANE, XL_STATS, &value, &len), ENOPROTOOPT);
    connected_to(client, &at);
    int peer = accept(server, NULL, NULL);
    CHECK(peer >= 0 && get(client, XL_STATE) == XL_STATE_STREAM && get(peer, XL_STATE) == XL_STATE_STREAM);
    CHECK(get(client, XL_TRANSFER) == XL_TRANSFER_READ_ZCOPY && get(client, XL_OFFLOAD) == 1);
    CHECK(get(peer, XL_TRANSFER) == XL_TRANSFER_WRITE_ZCOPY && get(peer, XL_OFFLOAD) == 0);
    set(client, XL_OFFLOAD, 0);
    for (int way = XL_TRANSFER_AUTO; way <= XL_TRANSFER_WRITE_ZCOPY; way++) {
        set(client, XL_TRANSFER, way);
        set(peer, XL_TRANSFER, way);
        counted(client, peer);
        counted(peer, client);
    }
    mistakes(client);
    mistakes(server);
    kept_with_the_socket(&at);
    CHECK(close(peer) == 0 && close(client) == 0 && close(server) == 0);
}

/* Sockets that the library leaves to the kernel. */
static void others(void)
{
    int value = 1, fds[2], file = unnamed_file();
    socklen_t len = sizeof value;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    FAILS(setsockopt(file, SOL_CROSSLANE, XL_OFFLOAD, &value, sizeof value), ENOTSOCK);
    FAILS(getsockopt(-1, SOL_CROSSLANE, XL_STATE, &value, &len), EBADF);
    CHECK(getsockopt(fds[0], SOL_CROSSLANE, XL_STATE, &value, &len) == -1);
}

int main(void)
{
    int value = 0, ends[2];
    socklen_t len = sizeof value;
    others();
    if (getenv("LD_PRELOAD")) {
        streams();
        return 0;
    }
    pair(ends);
    CHECK(getsockopt(ends[0], SOL_CROSSLANE, XL_STATE, &value, &len) == -1);
    FAILS(setsockopt(ends[0], SOL_CROSSLANE, XL_TRANSFER, &value, sizeof value), ENOPROTOOPT);
    return 0;
}

/* Socket options both ways: what is set is told, the buffer sizes doubled, TCP_INFO, and the kernel's errors. */
#include "quirk.h"

static int get(int fd, int level, int name)
{
    int value = -1;
    socklen_t len = sizeof value;
    CHECK(getsockopt(fd, level, name, &value, &len) == 0);
    return value;
}

static void set(int fd, int level, int name, int value)
{
    CHECK(setsockopt(fd, level, name, &value, sizeof value) == 0);
}

static void told_back(int fd)
{
    set(fd, SOL_SOCKET, SO_SNDBUF, 20000);
    CHECK(get(fd, SOL_SOCKET, SO_SNDBUF) == 40000);
    set(fd, SOL_SOCKET, SO_RCVBUF, 30000);
    CHECK(get(fd, SOL_SOCKET, SO_RCVBUF) == 60000);
    set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    CHECK(get(fd, SOL_SOCKET, SO_KEEPALIVE) == 1);
    set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    CHECK(get(fd, IPPROTO_TCP, TCP_NODELAY) == 1);
    set(fd, IPPROTO_TCP, TCP_NODELAY, 0);
    CHECK(get(fd, IPPROTO_TCP, TCP_NODELAY) == 0);
    set(fd, IPPROTO_TCP, TCP_CORK, 1);
    CHECK(get(fd, IPPROTO_TCP, TCP_CORK) == 1);
    set(fd, IPPROTO_TCP, TCP_CORK, 0);
    set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 77);
    CHECK(get(fd, IPPROTO_TCP, TCP_KEEPIDLE) == 77);
    set(fd, IPPROTO_IP, IP_TOS, 16);
    CHECK(get(fd, IPPROTO_IP, IP_TOS) == 16);
    CHECK(get(fd, SOL_SOCKET, SO_TYPE) == SOCK_STREAM);
    CHECK(get(fd, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_TCP);
    CHECK(get(fd, SOL_SOCKET, SO_DOMAIN) == AF_INET);
    CHECK(get(fd, SOL_SOCKET, SO_ACCEPTCONN) == 0);
    CHECK(get(fd, SOL_SOCKET, SO_ERROR) == 0);
    struct tcp_info info;
    socklen_t len = sizeof info;
    memset(&info, 0, sizeof info);
    CHECK(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 && info.tcpi_state == TCP_ESTABLISHED);
}

static void errors(int fd)
{
    int value = 0;
    socklen_t len = sizeof value;
    FAILS(getsockopt(fd, SOL_SOCKET, 9999, &value, &len), ENOPROTOOPT);
    FAILS(setsockopt(fd, IPPROTO_TCP, 9999, &value, sizeof value), ENOPROTOOPT);
    FAILS(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, 1), EINVAL);
    FAILS(getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, NULL), EFAULT);
    struct {
        int linger_on, linger_s;
    } linger = {1, 5}, got = {0, 0};
    len = sizeof got;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_LINGER, &got, &len) == 0 && got.linger_on == 1 && got.linger_s == 5);
}

/* Small writes under TCP_CORK and without TCP_NODELAY arrive all the same. */
static void small_writes(int from, int to)
{
    set(from, IPPROTO_TCP, TCP_CORK, 1);
    send_all(from, "abc", 3);
    send_all(from, "def", 3);
    set(from, IPPROTO_TCP, TCP_CORK, 0);
    expect(to, "abcdef");
    CHECK(send(from, "more", 4, MSG_MORE) == 4);
    CHECK(send(from, "less", 4, 0) == 4);
    expect(to, "moreless");
    /* SO_RCVLOWAT: recv waits for no less than that. */
    set(to, SOL_SOCKET, SO_RCVLOWAT, 1);
    CHECK(get(to, SOL_SOCKET, SO_RCVLOWAT) == 1);
}

int main(void)
{
    int ends[2];
    pair(ends);
    for (int i = 0; i < 2; i++) {
        small_writes(ends[i], ends[!i]);
        told_back(ends[i]);
        errors(ends[i]);
    }
    send_all(ends[0], "after", 5);
    expect(ends[1], "after");
    return 0;
}

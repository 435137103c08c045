/* Sockets of the families of SDP, 26 and 27, are streams; addresses of either family do, and are told as AF_INET. IPv6
 * addresses do that say what IPv4 can say. */
#include "quirk.h"

static void talk(int family, int address_family)
{
    struct sockaddr_in at = here(0);
    socklen_t len = sizeof at;
    int server = socket(family, SOCK_STREAM, 0), client = socket(family, SOCK_STREAM, 0);
    at.sin_family = (sa_family_t)address_family;
    CHECK(server >= 0 && client >= 0);
    CHECK(bind(server, (struct sockaddr *)&at, sizeof at) == 0 && listen(server, 5) == 0);
    CHECK(getsockname(server, (struct sockaddr *)&at, &len) == 0 && at.sin_family == AF_INET);
    at.sin_family = (sa_family_t)address_family;
    CHECK(connect(client, (struct sockaddr *)&at, sizeof at) == 0);
    int peer = accept(server, NULL, NULL);
    CHECK(peer >= 0);
    send_all(client, "sdp", 3);
    expect(peer, "sdp");
    CHECK(close(server) == 0 && close(client) == 0 && close(peer) == 0);
}

/* As qperf's server has it: a socket of SDP that listens at the IPv6 address of all addresses. */
static void with_v6(int family)
{
    struct sockaddr_in6 at6 = {.sin6_family = AF_INET6};
    struct sockaddr_in at;
    socklen_t len = sizeof at;
    int server = socket(family, SOCK_STREAM, 0), client = socket(family, SOCK_STREAM, 0);
    CHECK(bind(server, (struct sockaddr *)&at6, sizeof at6) == 0 && listen(server, 5) == 0);
    CHECK(getsockname(server, (struct sockaddr *)&at, &len) == 0 && at.sin_family == AF_INET);
    CHECK(at.sin_addr.s_addr == INADDR_ANY && at.sin_port != 0);
    at6.sin6_port = at.sin_port;
    at6.sin6_addr = (struct in6_addr){.s6_addr = {[10] = 0xff, [11] = 0xff}};
    at = here(0);
    memcpy(&at6.sin6_addr.s6_addr[12], &at.sin_addr, sizeof at.sin_addr);
    CHECK(connect(client, (struct sockaddr *)&at6, sizeof at6) == 0);
    int peer = accept(server, NULL, NULL);
    CHECK(peer >= 0);
    send_all(client, "v6", 2);
    expect(peer, "v6");
    CHECK(close(server) == 0 && close(client) == 0 && close(peer) == 0);
    int other = socket(family, SOCK_STREAM, 0);
    at6.sin6_addr = in6addr_loopback;
    FAILS(bind(other, (struct sockaddr *)&at6, sizeof at6), EAFNOSUPPORT);
    CHECK(close(other) == 0);
}

int main(void)
{
    int fd = socket(27, SOCK_STREAM, 0);
    if (fd < 0)
        return SKIPPED;
    CHECK(close(fd) == 0);
    for (int family = 26; family <= 27; family++) {
        talk(family, AF_INET);
        talk(family, family);
        with_v6(family);
    }
    fd = socket(27, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC && (fcntl(fd, F_GETFL) & O_NONBLOCK));
    FAILS(socket(27, SOCK_DGRAM, 0), EAFNOSUPPORT);
    return 0;
}

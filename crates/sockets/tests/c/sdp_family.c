/* Sockets of the families of SDP, 26 and 27, are streams; addresses of either family do, and are told as AF_INET. */
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

int main(void)
{
    int fd = socket(27, SOCK_STREAM, 0);
    if (fd < 0)
        return SKIPPED;
    CHECK(close(fd) == 0);
    for (int family = 26; family <= 27; family++) {
        talk(family, AF_INET);
        talk(family, family);
    }
    fd = socket(27, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC && (fcntl(fd, F_GETFL) & O_NONBLOCK));
    FAILS(socket(27, SOCK_DGRAM, 0), EAFNOSUPPORT);
    return 0;
}

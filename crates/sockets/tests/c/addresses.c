/* Addresses tell the truth: both names of both ends, IPv4 in IPv6, wildcard listeners, bound clients. */
#include "quirk.h"

static struct sockaddr_in name(int fd, int (*call)(int, struct sockaddr *, socklen_t *))
{
    struct sockaddr_in at = {0};
    socklen_t len = sizeof at;
    CHECK(call(fd, (struct sockaddr *)&at, &len) == 0 && len == sizeof at && at.sin_family == AF_INET);
    return at;
}

static int same(struct sockaddr_in a, struct sockaddr_in b)
{
    return a.sin_addr.s_addr == b.sin_addr.s_addr && a.sin_port == b.sin_port;
}

static void ipv4(void)
{
    struct sockaddr_in at, from = {0};
    socklen_t len = sizeof from;
    int server = listener(&at), client = dial(&at);
    int peer = accept(server, (struct sockaddr *)&from, &len);
    CHECK(peer >= 0 && len == sizeof from);
    CHECK(same(name(client, getpeername), at) && same(name(peer, getsockname), at));
    CHECK(same(name(client, getsockname), from) && same(name(peer, getpeername), from));
    CHECK(from.sin_addr.s_addr == at.sin_addr.s_addr && from.sin_port != 0);
    send_all(client, "hello", 5);
    expect(peer, "hello");
    close(client);
    close(peer);
    close(server);
}

/* A client that chose its own address and port. */
static void bound(void)
{
    struct sockaddr_in at, mine = here(0);
    int server = listener(&at), client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(client, (struct sockaddr *)&mine, sizeof mine) == 0);
    mine = name(client, getsockname);
    CHECK(connect(client, (struct sockaddr *)&at, sizeof at) == 0);
    CHECK(same(name(client, getsockname), mine));
    int peer = accept(server, NULL, NULL);
    CHECK(same(name(peer, getpeername), mine));
    send_all(peer, "hello", 5);
    expect(client, "hello");
    close(client);
    close(peer);
    close(server);
}

/* A listener on all addresses of both families; the client comes by IPv4, by mapped IPv4, and by IPv6 if there is. */
static void wildcard(void)
{
    struct sockaddr_in6 any = {.sin6_family = AF_INET6}, at = {0}, from = {0};
    socklen_t len = sizeof at;
    int server = socket(AF_INET6, SOCK_STREAM, 0), off = 0;
    if (server < 0)
        return;
    CHECK(setsockopt(server, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0);
    CHECK(bind(server, (struct sockaddr *)&any, sizeof any) == 0 && listen(server, 5) == 0);
    CHECK(getsockname(server, (struct sockaddr *)&at, &len) == 0 && at.sin6_port != 0);

    struct sockaddr_in to = here(ntohs(at.sin6_port));
    int client = dial(&to);
    len = sizeof from;
    int peer = accept(server, (struct sockaddr *)&from, &len);
    CHECK(peer >= 0 && len == sizeof from && IN6_IS_ADDR_V4MAPPED(&from.sin6_addr));
    CHECK(memcmp(&from.sin6_addr.s6_addr[12], &to.sin_addr, 4) == 0);
    len = sizeof at;
    CHECK(getsockname(peer, (struct sockaddr *)&at, &len) == 0 && IN6_IS_ADDR_V4MAPPED(&at.sin6_addr));
    send_all(client, "four", 4);
    expect(peer, "four");
    send_all(peer, "back", 4);
    expect(client, "back");
    close(client);
    close(peer);

    struct sockaddr_in6 mapped = at;
    client = socket(AF_INET6, SOCK_STREAM, 0);
    CHECK(connect(client, (struct sockaddr *)&mapped, sizeof mapped) == 0);
    peer = accept(server, NULL, NULL);
    len = sizeof at;
    CHECK(getpeername(client, (struct sockaddr *)&at, &len) == 0 && at.sin6_port == mapped.sin6_port);
    CHECK(memcmp(&at.sin6_addr, &mapped.sin6_addr, 16) == 0);
    send_all(client, "mapped", 6);
    expect(peer, "mapped");
    close(client);
    close(peer);

    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = mapped.sin6_port, .sin6_addr = in6addr_loopback};
    client = socket(AF_INET6, SOCK_STREAM, 0);
    if (connect(client, (struct sockaddr *)&six, sizeof six) == 0) {
        len = sizeof from;
        peer = accept(server, (struct sockaddr *)&from, &len);
        CHECK(memcmp(&from.sin6_addr, &in6addr_loopback, 16) == 0);
        send_all(client, "six", 3);
        expect(peer, "six");
        close(peer);
    }
    close(client);
    close(server);
}

/* A buffer that is too short gets what fits and is told the whole length. */
static void short_buffer(void)
{
    int ends[2];
    struct sockaddr_in at = {0};
    socklen_t len = 4;
    pair(ends);
    CHECK(getpeername(ends[0], (struct sockaddr *)&at, &len) == 0 && len == sizeof at);
    CHECK(at.sin_family == AF_INET && at.sin_addr.s_addr == 0);
}

/* Many listeners and connections: each accept gives the connection whose name it tells. */
static void matched(void)
{
    enum { COUNT = 20 };
    struct sockaddr_in at;
    int server = listener(&at), clients[COUNT];
    for (int i = 0; i < COUNT; i++) {
        clients[i] = dial(&at);
        if (i >= 10) {
            struct sockaddr_in from;
            socklen_t len = sizeof from;
            int peer = accept(server, (struct sockaddr *)&from, &len), found = 0;
            CHECK(peer >= 0);
            for (int j = 0; j <= i; j++) {
                if (clients[j] >= 0 && same(name(clients[j], getsockname), from)) {
                    send_all(clients[j], "me", 2);
                    expect(peer, "me");
                    close(clients[j]);
                    clients[j] = -1;
                    found = 1;
                }
            }
            CHECK(found);
            close(peer);
        }
    }
}

int main(void)
{
    ipv4();
    bound();
    wildcard();
    short_buffer();
    matched();
    return 0;
}

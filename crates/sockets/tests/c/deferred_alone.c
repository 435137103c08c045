/* Ends its daemon. A listener with TCP_DEFER_ACCEPT from which streams were accepted has no daemon any more: as on the kernel's
 * TCP, of which all connections are then, a connection without data is not told. */
#include "quirk.h"

int main(void)
{
    const char *daemon = getenv("QUIRK_DAEMON");
    struct sockaddr_in at;
    int server = listener(&at), seconds = 20, ours = 0;
    socklen_t len = sizeof ours;
    CHECK(setsockopt(server, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds) == 0);
    int client = dial(&at);
    send_all(client, "request", 7);
    int peer = accept(server, NULL, NULL);
    CHECK(peer >= 0);
    expect(peer, "request");
    if (daemon) {
        char byte;
        CHECK(kill(atoi(daemon), SIGKILL) == 0);
        FAILS(recv(peer, &byte, 1, 0), ECONNRESET);
    }
    CHECK(close(client) == 0 && close(peer) == 0);
    CHECK(getsockopt(server, IPPROTO_TCP, TCP_DEFER_ACCEPT, &ours, &len) == 0 && ours >= seconds);
    client = dial(&at);
    struct pollfd poller = {.fd = server, .events = POLLIN};
    CHECK(poll(&poller, 1, 300) == 0);
    send_all(client, "data", 4);
    CHECK(poll(&poller, 1, 5000) == 1);
    peer = accept(server, NULL, NULL);
    CHECK(peer >= 0);
    expect(peer, "data");
    close(client), close(peer), close(server);
    return 0;
}

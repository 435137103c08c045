/* A connection is dissolved (AF_UNSPEC), and a failed non-blocking one is made to somewhere else on the same socket. */
#include "quirk.h"

static void dissolve(void)
{
    struct sockaddr_in at;
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    char byte;
    int server = listener(&at), client = dial(&at), peer = accept(server, NULL, NULL);
    CHECK(peer >= 0);
    send_all(client, "a", 1);
    expect(peer, "a");
    CHECK(connect(client, &none, sizeof none) == 0);
    ssize_t got = recv(peer, &byte, 1, 0);
    CHECK(got == -1 && errno == ECONNRESET);
    CHECK(send(client, "b", 1, MSG_NOSIGNAL) == -1);
    CHECK(connect(client, (struct sockaddr *)&at, sizeof at) == 0);
    int second = accept(server, NULL, NULL);
    CHECK(second >= 0);
    send_all(client, "again", 5);
    expect(second, "again");
    close(client);
    close(peer);
    close(second);
    close(server);
}

/* Whoever has a copy of the socket has none of the connection any more. */
static void dissolve_copy(void)
{
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    int ends[2];
    char byte;
    pair(ends);
    int copy = dup(ends[0]);
    CHECK(connect(copy, &none, sizeof none) == 0);
    FAILS(recv(ends[1], &byte, 1, 0), ECONNRESET);
    struct sockaddr_in at;
    socklen_t len = sizeof at;
    FAILS(getpeername(ends[0], (struct sockaddr *)&at, &len), ENOTCONN);
    FAILS(send(ends[0], "b", 1, MSG_NOSIGNAL), ECONNRESET);
    FAILS(send(ends[0], "b", 1, MSG_NOSIGNAL), EPIPE);
    close(copy);
    close(ends[0]);
    close(ends[1]);
}

static void elsewhere(void)
{
    struct sockaddr_in nowhere, at;
    int gone = listener(&nowhere), server = listener(&at), error = 0;
    socklen_t len = sizeof error;
    CHECK(close(gone) == 0);
    int client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (connect(client, (struct sockaddr *)&nowhere, sizeof nowhere) != 0 && errno == EINPROGRESS) {
        ready(client, POLLOUT);
        CHECK(getsockopt(client, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == ECONNREFUSED);
    }
    int outcome = connect(client, (struct sockaddr *)&at, sizeof at);
    if (outcome != 0 && errno == ECONNABORTED) /* Linux tells once more of the first attempt. */
        outcome = connect(client, (struct sockaddr *)&at, sizeof at);
    if (outcome != 0) {
        CHECK(errno == EINPROGRESS);
        ready(client, POLLOUT);
        CHECK(getsockopt(client, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0);
    }
    int peer = accept(server, NULL, NULL);
    CHECK(peer >= 0);
    send_all(client, "here", 4);
    expect(peer, "here");
    close(client);
    close(peer);
    close(server);
}

int main(void)
{
    dissolve();
    dissolve_copy();
    elsewhere();
    return 0;
}

/* A negative SO_RCVTIMEO or SO_SNDTIMEO has calls wait for nothing, wherever it was set: before connect, on a listener, on a
 * copy, by the option's new name. It is over when another time-out is set. */
#include "quirk.h"

enum { MUCH = 32 << 20 };
static char much[MUCH];

static void limit(int fd, int name, long seconds, long micros)
{
    struct timeval time = {.tv_sec = seconds, .tv_usec = micros};
    CHECK(setsockopt(fd, SOL_SOCKET, name, &time, sizeof time) == 0);
}

static int fresh(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    return fd;
}

static void receives_at_once(int fd)
{
    char byte;
    int64_t start = now_ms();
    for (int i = 0; i < 10; i++)
        FAILS(recv(fd, &byte, 1, i % 2 ? MSG_WAITALL : 0), EAGAIN);
    CHECK(now_ms() - start < 500);
}

static void receives_late(int fd)
{
    char byte;
    limit(fd, SO_RCVTIMEO, 0, 200000);
    int64_t start = now_ms();
    FAILS(recv(fd, &byte, 1, 0), EAGAIN);
    CHECK(now_ms() - start >= 190);
}

static void sends_at_once(int fd)
{
    int64_t start = now_ms();
    ssize_t sent = send(fd, much, MUCH, 0);
    CHECK(sent > 0 && sent < MUCH);
    while (send(fd, much, MUCH, 0) > 0)
        ;
    CHECK(errno == EAGAIN && now_ms() - start < 3000);
}

static void both(int rcvtimeo, int sndtimeo)
{
    struct sockaddr_in at;
    int server = listener(&at), error = -1;
    socklen_t len = sizeof error;

    int client = fresh();
    limit(client, rcvtimeo, -1, 0);
    int copy = dup(client);
    CHECK(close(client) == 0 && connect(copy, (struct sockaddr *)&at, sizeof at) == 0);
    receives_at_once(copy);
    receives_late(copy);
    limit(copy, rcvtimeo, -3, 500000);
    receives_at_once(copy);
    int peer = accept(server, NULL, NULL);
    CHECK(close(copy) == 0 && close(peer) == 0);

    client = fresh();
    limit(client, sndtimeo, -1, 0);
    FAILS(connect(client, (struct sockaddr *)&at, sizeof at), EINPROGRESS);
    ready(client, POLLOUT);
    CHECK(getsockopt(client, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0);
    peer = accept(server, NULL, NULL);
    sends_at_once(client);
    receives_late(client);
    CHECK(close(client) == 0 && close(peer) == 0);

    /* Taken back before the connection. */
    client = fresh();
    limit(client, rcvtimeo, -1, 0);
    limit(client, rcvtimeo, 0, 0);
    CHECK(connect(client, (struct sockaddr *)&at, sizeof at) == 0);
    receives_late(client);
    peer = accept(server, NULL, NULL);
    CHECK(close(client) == 0 && close(peer) == 0);

    /* What a listener brings has its time-outs. */
    limit(server, sndtimeo, -1, 0);
    client = fresh();
    CHECK(connect(client, (struct sockaddr *)&at, sizeof at) == 0);
    peer = accept(server, NULL, NULL);
    CHECK(peer >= 0);
    sends_at_once(peer);
    CHECK(close(client) == 0 && close(peer) == 0 && close(server) == 0);
}

int main(void)
{
    both(SO_RCVTIMEO, SO_SNDTIMEO);
    both(66, 67);
    return 0;
}

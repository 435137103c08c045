/* TCP_DEFER_ACCEPT: a connection is accepted when its first data is there at the latest, whenever the option was set,
 * and the option is told as the kernel rounded it. */
#include "quirk.h"

static int deferral(int fd)
{
    int seconds = -1;
    socklen_t len = sizeof seconds;
    CHECK(getsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, &len) == 0);
    return seconds;
}

static void defer(int fd, int seconds)
{
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds) == 0);
}

static void request_and_answer(int fd, const struct sockaddr_in *at)
{
    int client = dial(at);
    send_all(client, "request", 7);
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    CHECK(poll(&ready, 1, 5000) == 1);
    int server = accept(fd, NULL, NULL);
    CHECK(server >= 0);
    expect(server, "request");
    send_all(server, "answer", 6);
    expect(client, "answer");
    CHECK(close(client) == 0 && close(server) == 0);
}

int main(void)
{
    struct sockaddr_in at = here(0);
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0);
    defer(fd, 30);
    int rounded = deferral(fd);
    CHECK(rounded >= 30);
    CHECK(listen(fd, 16) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&at, &len) == 0);
    CHECK(deferral(fd) == rounded);
    request_and_answer(fd, &at);
    defer(fd, 0);
    CHECK(deferral(fd) == 0);
    request_and_answer(fd, &at);
    defer(fd, 1);
    CHECK(deferral(fd) >= 1);
    request_and_answer(fd, &at);
    CHECK(close(fd) == 0);
    fd = listener(&at);
    CHECK(deferral(fd) == 0);
    request_and_answer(fd, &at);
    return 0;
}

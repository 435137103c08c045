/* Options that only the kernel's TCP has: a SYN that waits for the first data, word of when a buffer may be overwritten.
 * Such a socket stays TCP: no stream. */
#include "quirk.h"
#include <linux/errqueue.h>

static int dial_with(const struct sockaddr_in *at, int level, int name)
{
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    if (setsockopt(fd, level, name, &on, sizeof on) != 0) {
        exit(SKIPPED);
    }
    CHECK(connect(fd, (const struct sockaddr *)at, sizeof *at) == 0);
    return fd;
}

static void answer(int fd)
{
    int server = accept(fd, NULL, NULL);
    CHECK(server >= 0);
    expect(server, "request");
    CHECK(close(server) == 0);
}

int main(void)
{
    struct sockaddr_in at;
    int fd = listener(&at);
    int client = dial_with(&at, IPPROTO_TCP, TCP_FASTOPEN_CONNECT);
    send_all(client, "request", 7);
    answer(fd);
    CHECK(close(client) == 0);
    client = dial_with(&at, SOL_SOCKET, SO_ZEROCOPY);
    CHECK(send(client, "request", 7, MSG_ZEROCOPY) == 7);
    answer(fd);
    struct pollfd told = {.fd = client, .events = 0};
    CHECK(poll(&told, 1, 5000) == 1 && told.revents & POLLERR);
    char space[256];
    struct msghdr message = {.msg_control = space, .msg_controllen = sizeof space};
    CHECK(recvmsg(client, &message, MSG_ERRQUEUE) == 0);
    CHECK(CMSG_FIRSTHDR(&message) != NULL);
    CHECK(close(client) == 0);
    CHECK(close(fd) == 0);
    return 0;
}

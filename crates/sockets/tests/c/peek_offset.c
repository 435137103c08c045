/* SO_PEEK_OFF: peeks begin behind what was consumed, and each goes on where the last one ended. */
#include "quirk.h"

static int offset_of(int fd)
{
    int offset = -2;
    socklen_t len = sizeof offset;
    CHECK(getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, &len) == 0 && len == sizeof offset);
    return offset;
}

static void give(int fd, int offset)
{
    CHECK(setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof offset) == 0);
}

static void peeks(int fd, size_t len, int flags, const char *text)
{
    char bytes[32];
    memset(bytes, '#', sizeof bytes);
    ssize_t count = recv(fd, bytes, len, MSG_PEEK | flags);
    CHECK(count == (ssize_t)strlen(text) && memcmp(bytes, text, strlen(text)) == 0);
    CHECK(bytes[count] == '#');
}

/* Whoever peeks behind what is there waits for more. */
static void waits(int client, int server)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        usleep(50 * 1000);
        send_all(server, "late", 4);
        _exit(0);
    }
    peeks(client, 10, 0, "late");
    reap(child);
}

int main(void)
{
    struct sockaddr_in at;
    int fd = listener(&at), client = socket(AF_INET, SOCK_STREAM, 0), two = 2;
    CHECK(client >= 0);
    if (setsockopt(client, SOL_SOCKET, SO_PEEK_OFF, &two, sizeof two) != 0)
        exit(SKIPPED);
    CHECK(connect(client, (struct sockaddr *)&at, sizeof at) == 0);
    int server = accept(fd, NULL, NULL);
    CHECK(server >= 0 && offset_of(client) == 2 && offset_of(server) == -1);
    send_all(server, "request", 7);
    peeks(client, 3, MSG_WAITALL, "que");
    CHECK(offset_of(client) == 5);
    peeks(client, 10, 0, "st");
    CHECK(recv(client, &two, 1, MSG_PEEK | MSG_DONTWAIT) == -1 && errno == EAGAIN);
    /* What is consumed counts off, also with a peek of it without the option in between. */
    char bytes[8];
    CHECK(recv(client, bytes, 3, 0) == 3 && memcmp(bytes, "req", 3) == 0 && offset_of(client) == 4);
    give(client, -1);
    peeks(client, 10, 0, "uest");
    CHECK(offset_of(client) == -1);
    give(client, 1);
    peeks(client, 2, 0, "es");
    /* Bytes that are only counted are passed over as well. */
    CHECK(recv(client, bytes, sizeof bytes, MSG_PEEK | MSG_TRUNC) == 1 && offset_of(client) == 4);
    struct iovec parts[2] = {{bytes, 1}, {bytes + 1, 3}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    give(client, 0);
    CHECK(recvmsg(client, &message, MSG_PEEK) == 4 && memcmp(bytes, "uest", 4) == 0 && offset_of(client) == 4);
    waits(client, server);
    CHECK(offset_of(client) == 8);
    expect(client, "uestlate");
    CHECK(offset_of(client) == 0);
    send_all(server, "end", 3);
    CHECK(close(server) == 0);
    peeks(client, 10, MSG_WAITALL, "end");
    peeks(client, 10, MSG_WAITALL, "");
    CHECK(close(client) == 0);
    /* A connection has it of its listener. */
    give(fd, 1);
    client = dial(&at);
    server = accept(fd, NULL, NULL);
    send_all(client, "abc", 3);
    CHECK(offset_of(server) == 1);
    peeks(server, 10, 0, "bc");
    CHECK(close(client) == 0 && close(server) == 0 && close(fd) == 0);
    return 0;
}

/* Non-blocking connect: EINPROGRESS, writable when made, SO_ERROR told once; refused; connecting twice. */
#include "quirk.h"

static int socket_error(int fd)
{
    int error = -1;
    socklen_t len = sizeof error;
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && len == sizeof error);
    return error;
}

static void made(void)
{
    struct sockaddr_in at;
    int server = listener(&at);
    int client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    int outcome = connect(client, (struct sockaddr *)&at, sizeof at);
    CHECK(outcome == 0 || errno == EINPROGRESS);
    CHECK(ready(client, POLLOUT) == POLLOUT);
    CHECK(socket_error(client) == 0);
    if (outcome != 0)
        CHECK(connect(client, (struct sockaddr *)&at, sizeof at) == 0 || errno == EISCONN);
    FAILS(connect(client, (struct sockaddr *)&at, sizeof at), EISCONN);
    CHECK(write(client, "early", 5) == 5);
    int peer = accept(server, NULL, NULL);
    expect(peer, "early");
    CHECK(write(peer, "late", 4) == 4);
    CHECK(ready(client, POLLIN) & POLLIN);
    expect(client, "late");
    CHECK(close(client) == 0 && close(peer) == 0 && close(server) == 0);
}

static void refused(void)
{
    struct sockaddr_in at;
    char byte;
    CHECK(close(listener(&at)) == 0);
    int client = socket(AF_INET, SOCK_STREAM, 0);
    FAILS(connect(client, (struct sockaddr *)&at, sizeof at), ECONNREFUSED);
    CHECK(close(client) == 0);
    client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    int outcome = connect(client, (struct sockaddr *)&at, sizeof at);
    CHECK(outcome == -1 && (errno == EINPROGRESS || errno == ECONNREFUSED));
    if (errno == EINPROGRESS) {
        CHECK(ready(client, POLLOUT) & (POLLERR | POLLHUP));
        CHECK(socket_error(client) == ECONNREFUSED);
    }
    CHECK(socket_error(client) == 0);
    FAILS(send(client, "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK(recv(client, &byte, 1, 0) == 0 || errno == ENOTCONN);
    /* The socket can be used for another attempt. */
    struct sockaddr_in there;
    int server = listener(&there);
    CHECK(close(client) == 0);
    client = socket(AF_INET, SOCK_STREAM, 0);
    FAILS(connect(client, (struct sockaddr *)&at, sizeof at), ECONNREFUSED);
    CHECK(connect(client, (struct sockaddr *)&there, sizeof there) == 0);
    int peer = accept(server, NULL, NULL);
    send_all(client, "second try", 10);
    expect(peer, "second try");
}

static void unconnected(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at;
    socklen_t len = sizeof at;
    char byte;
    FAILS(recv(fd, &byte, 1, 0), ENOTCONN);
    FAILS(send(fd, "x", 1, MSG_NOSIGNAL), EPIPE);
    FAILS(getpeername(fd, (struct sockaddr *)&at, &len), ENOTCONN);
    FAILS(shutdown(fd, SHUT_WR), ENOTCONN);
    FAILS(accept(fd, NULL, NULL), EINVAL);
    FAILS(recv(0, &byte, 1, 0), ENOTSOCK);
}

int main(void)
{
    CHECK(dup2(open("/dev/null", O_RDONLY), 0) == 0);
    made();
    refused();
    unconnected();
    return 0;
}

/* A server that accepts, receives and sends by an io_uring that it makes by system calls of its own, as programs with liburing
 * do: its clients are answered. They make no stream. */
#include "ring.h"

static void *client(void *at)
{
    char got[6] = "";
    int fd = dial(at);
    send_all(fd, "hello", 5);
    expect(fd, "hello");
    CHECK(shutdown(fd, SHUT_WR) == 0);
    CHECK(recv(fd, got, sizeof got, 0) == 0);
    CHECK(close(fd) == 0);
    return NULL;
}

int main(void)
{
    struct sockaddr_in at;
    struct ring ring = own_ring();
    int fd = listener(&at);
    for (int round = 0; round < 3; round++) {
        char data[64];
        pthread_t thread;
        int accepted, count;
        CHECK(pthread_create(&thread, NULL, client, &at) == 0);
        accepted = by_ring(&ring, IORING_OP_ACCEPT, fd, NULL, 0);
        CHECK(accepted >= 0);
        while ((count = by_ring(&ring, IORING_OP_RECV, accepted, data, sizeof data)) > 0)
            CHECK(by_ring(&ring, IORING_OP_SEND, accepted, data, (unsigned)count) == count);
        CHECK(count == 0);
        CHECK(close(accepted) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    return 0;
}

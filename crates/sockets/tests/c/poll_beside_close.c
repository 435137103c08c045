/* A descriptor that another thread closes ends no poll, but when that is over it is told. */
#include "quirk.h"
#include <pthread.h>
#include <sys/select.h>

static int pipes[2];
static int far;

/* Closes what is polled, and sends only later. */
static void *close_and_send(void *nothing)
{
    usleep(50 * 1000);
    CHECK(close(pipes[0]) == 0);
    usleep(150 * 1000);
    send_all(far, "x", 1);
    return nothing;
}

/* Another thread waits for the same connection, and looks at it now and then only. */
static void *wait_too(void *polled)
{
    CHECK(poll(polled, 1, 10000) == 1);
    return NULL;
}

int main(void)
{
    struct sockaddr_in at;
    int fd = listener(&at), client = dial(&at), server = accept(fd, NULL, NULL);
    CHECK(server >= 0);
    send_all(server, "x", 1);
    expect(client, "x");
    far = server;
    for (int round = 0; round < 3; round++) {
        pthread_t thread, other;
        struct pollfd alone = {.fd = client, .events = POLLIN};
        CHECK(pipe(pipes) == 0);
        struct pollfd fds[2] = {{.fd = client, .events = POLLIN}, {.fd = pipes[0], .events = POLLIN}};
        CHECK(pthread_create(&other, NULL, wait_too, &alone) == 0);
        usleep(20 * 1000);
        CHECK(pthread_create(&thread, NULL, close_and_send, NULL) == 0);
        if (round == 0) {
            CHECK(poll(fds, 2, 10000) == 2);
            CHECK(fds[0].revents == POLLIN && fds[1].revents == POLLNVAL);
        } else if (round == 1) {
            CHECK(poll(fds, 2, 100) == 1);
            CHECK(fds[0].revents == 0 && fds[1].revents == POLLNVAL);
        } else {
            /* To select it is ready. */
            fd_set set;
            FD_ZERO(&set);
            FD_SET(client, &set);
            FD_SET(pipes[0], &set);
            int most = client > pipes[0] ? client : pipes[0];
            CHECK(select(most + 1, &set, NULL, NULL, NULL) == 2);
            CHECK(FD_ISSET(client, &set) && FD_ISSET(pipes[0], &set));
        }
        CHECK(pthread_join(thread, NULL) == 0 && pthread_join(other, NULL) == 0);
        expect(client, "x");
        CHECK(close(pipes[1]) == 0);
    }
    CHECK(close(client) == 0 && close(server) == 0 && close(fd) == 0);
    return 0;
}

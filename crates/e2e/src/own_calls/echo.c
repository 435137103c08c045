/* An echo server as liburing's documentation writes them: it accepts, receives and sends by a ring.
 *
 *   echo ADDRESS PORT */
#include <arpa/inet.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum what { ACCEPT, RECEIVE, SEND };

struct connection {
    int fd;
    enum what what;
    int got, sent;
    char data[65536];
};

static struct io_uring ring;

static void fail(const char *what, int error)
{
    fprintf(stderr, "%s: %s\n", what, strerror(error));
    exit(1);
}

static struct io_uring_sqe *entry(struct connection *of, enum what what)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
    of->what = what;
    io_uring_sqe_set_data(sqe, of);
    return sqe;
}

static void take(struct connection *of)
{
    struct io_uring_sqe *sqe = entry(of, RECEIVE);
    io_uring_prep_recv(sqe, of->fd, of->data, sizeof of->data, 0);
    io_uring_sqe_set_data(sqe, of);
}

static void give(struct connection *of)
{
    struct io_uring_sqe *sqe = entry(of, SEND);
    io_uring_prep_send(sqe, of->fd, of->data + of->sent, (size_t)(of->got - of->sent), MSG_NOSIGNAL);
    io_uring_sqe_set_data(sqe, of);
}

static void let_in(struct connection *listener)
{
    struct io_uring_sqe *sqe = entry(listener, ACCEPT);
    io_uring_prep_accept(sqe, listener->fd, NULL, NULL, 0);
    io_uring_sqe_set_data(sqe, listener);
}

static void done(struct connection *of, int result)
{
    if (of->what == ACCEPT) {
        struct connection *new = calloc(1, sizeof *new);
        if (result < 0)
            fail("accept", -result);
        new->fd = result;
        take(new);
        let_in(of);
    } else if (result <= 0) {
        close(of->fd);
        free(of);
    } else if (of->what == RECEIVE) {
        of->got = result;
        of->sent = 0;
        give(of);
    } else if ((of->sent += result) < of->got) {
        give(of);
    } else {
        take(of);
    }
}

int main(int count, char **words)
{
    static struct connection listener;
    struct sockaddr_in at = {.sin_family = AF_INET};
    int yes = 1, error;
    if (count != 3 || inet_pton(AF_INET, words[1], &at.sin_addr) != 1)
        return 2;
    at.sin_port = htons((unsigned short)atoi(words[2]));
    if ((error = io_uring_queue_init(256, &ring, 0)) < 0)
        fail("io_uring", -error);
    listener.fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener.fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener.fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(listener.fd, 64) != 0) {
        perror("listen");
        return 1;
    }
    let_in(&listener);
    for (;;) {
        struct io_uring_cqe *cqe;
        if ((error = io_uring_submit_and_wait(&ring, 1)) < 0)
            fail("wait", -error);
        while (io_uring_peek_cqe(&ring, &cqe) == 0) {
            struct connection *of = io_uring_cqe_get_data(cqe);
            int result = cqe->res;
            io_uring_cqe_seen(&ring, cqe);
            done(of, result);
        }
    }
}

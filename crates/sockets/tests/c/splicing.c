/* splice between a stream and a pipe: never more than the pipe has room for, so that nobody who reads the pipe later stands still;
 * who waits for what; and what is refused. */
#include "quirk.h"

enum { MUCH = 700000, PIPE = 65536 };
static char data[MUCH], got[MUCH];

static void fill_pipe(int tube)
{
    static char block[PIPE];
    CHECK(write(tube, block, sizeof block) == sizeof block);
}

/* One process fills the pipe and empties it by turns, as proxies do, while much more waits in the stream. */
static void by_turns(int ends[2])
{
    int tube[2];
    CHECK(pipe(tube) == 0);
    pid_t sender = fork();
    CHECK(sender >= 0);
    if (sender == 0) {
        send_all(ends[1], data, MUCH);
        _exit(0);
    }
    for (size_t done = 0; done < MUCH;) {
        ssize_t in = splice(ends[0], NULL, tube[1], NULL, 1 << 20, SPLICE_F_MOVE);
        CHECK(in > 0);
        if (done > 100000 && done < 400000) {
            /* Once more, into a pipe that is not empty: what fits, or nothing. */
            ssize_t more = splice(ends[0], NULL, tube[1], NULL, 1 << 20, SPLICE_F_NONBLOCK);
            CHECK(more > 0 || (more == -1 && errno == EAGAIN));
            in += more > 0 ? more : 0;
        }
        for (ssize_t out = 0; out < in;) {
            ssize_t part = read(tube[0], got + done, (size_t)(in - out));
            CHECK(part > 0);
            out += part;
            done += (size_t)part;
        }
    }
    CHECK(memcmp(got, data, MUCH) == 0);
    reap(sender);
    close(tube[0]);
    close(tube[1]);
}

/* A pipe that is full: waited for, or not. */
static void full(int ends[2])
{
    int tube[2];
    CHECK(pipe(tube) == 0);
    fill_pipe(tube[1]);
    send_all(ends[1], data, 20000);
    ready(ends[0], POLLIN);
    FAILS(splice(ends[0], NULL, tube[1], NULL, 100, SPLICE_F_NONBLOCK), EAGAIN);
    CHECK(fcntl(tube[1], F_SETFL, O_NONBLOCK) == 0);
    FAILS(splice(ends[0], NULL, tube[1], NULL, 100, 0), EAGAIN);
    CHECK(fcntl(tube[1], F_SETFL, 0) == 0);
    /* One page is free. */
    CHECK(read(tube[0], got, 4096) == 4096);
    CHECK(splice(ends[0], NULL, tube[1], NULL, 20000, 0) == 4096);
    pid_t reader = fork();
    CHECK(reader >= 0);
    if (reader == 0) {
        usleep(100000);
        CHECK(read(tube[0], got, PIPE) == PIPE);
        _exit(0);
    }
    CHECK(splice(ends[0], NULL, tube[1], NULL, 5, 0) == 5);
    reap(reader);
    CHECK(read(tube[0], got, 5) == 5 && memcmp(got, data + 4096, 5) == 0);
    receive_all(ends[0], got, 20000 - 4096 - 5);
    CHECK(memcmp(got, data + 4096 + 5, 20000 - 4096 - 5) == 0);
    /* Nobody reads it any more. */
    signal(SIGPIPE, SIG_IGN);
    send_all(ends[1], "kept", 4);
    ready(ends[0], POLLIN);
    CHECK(close(tube[0]) == 0);
    FAILS(splice(ends[0], NULL, tube[1], NULL, 100, 0), EPIPE);
    expect(ends[0], "kept");
    close(tube[1]);
}

/* An empty pipe, and an empty stream. */
static void empty(int ends[2])
{
    int tube[2];
    CHECK(pipe(tube) == 0);
    FAILS(splice(tube[0], NULL, ends[0], NULL, 10, SPLICE_F_NONBLOCK), EAGAIN);
    struct timeval limit = {.tv_usec = 50000}, none = {0};
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    FAILS(splice(ends[0], NULL, tube[1], NULL, 10, 0), EAGAIN);
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none) == 0);
    pid_t writer = fork();
    CHECK(writer >= 0);
    if (writer == 0) {
        usleep(50000);
        CHECK(write(tube[1], "late", 4) == 4);
        _exit(0);
    }
    CHECK(splice(tube[0], NULL, ends[0], NULL, 10, 0) == 4);
    expect(ends[1], "late");
    reap(writer);
    CHECK(close(tube[1]) == 0);
    CHECK(splice(tube[0], NULL, ends[0], NULL, 10, 0) == 0);
    close(tube[0]);
}

static void refused(int ends[2])
{
    int tube[2], file = open("/dev/null", O_RDWR);
    loff_t offset = 0;
    CHECK(pipe(tube) == 0 && file >= 0);
    send_all(ends[1], "kept", 4);
    ready(ends[0], POLLIN);
    FAILS(splice(ends[0], &offset, tube[1], NULL, 4, 0), EINVAL);
    FAILS(splice(ends[0], NULL, tube[1], &offset, 4, 0), ESPIPE);
    FAILS(splice(tube[0], NULL, ends[0], &offset, 4, 0), EINVAL);
    FAILS(splice(ends[0], NULL, ends[1], NULL, 4, 0), EINVAL);
    FAILS(splice(ends[0], NULL, file, NULL, 4, 0), EINVAL);
    FAILS(splice(ends[0], NULL, tube[1], NULL, 4, 0x80), EINVAL);
    FAILS(splice(ends[0], NULL, tube[0], NULL, 4, 0), EBADF);
    FAILS(splice(tube[1], NULL, ends[0], NULL, 4, 0), EBADF);
    FAILS(splice(ends[0], NULL, -1, NULL, 4, 0), EBADF);
    CHECK(splice(ends[0], NULL, tube[1], NULL, 0, 0x80) == 0);
    expect(ends[0], "kept");
    close(tube[0]);
    close(tube[1]);
    close(file);
}

int main(void)
{
    int ends[2];
    for (size_t i = 0; i < MUCH; i++)
        data[i] = (char)(i * 7 + i / 251);
    pair(ends);
    by_turns(ends);
    full(ends);
    empty(ends);
    refused(ends);
    return 0;
}

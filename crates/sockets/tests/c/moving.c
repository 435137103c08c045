/* sendfile and splice: all bytes, exact offsets, from the middle of a file, to its end, and non-blocking. */
#include "quirk.h"
#include <sys/sendfile.h>

enum { SIZE = 1000000 };
static char data[SIZE], got[SIZE];

static int file(void)
{
    int fd = unnamed_file();
    for (int i = 0; i < SIZE; i++)
        data[i] = (char)(i * 11 + i / 256);
    CHECK(write(fd, data, SIZE) == SIZE);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    return fd;
}

static pid_t reader(int ends[2], const char *want, size_t len)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(ends[0]);
        receive_all(ends[1], got, len);
        CHECK(memcmp(got, want, len) == 0);
        _exit(0);
    }
    return child;
}

static void by_sendfile(int ends[2], int input)
{
    off_t offset = 1234;
    pid_t child = reader(ends, data + 1234, SIZE - 1234);
    for (ssize_t sent; offset < SIZE;) {
        off_t before = offset;
        sent = sendfile(ends[0], input, &offset, 300000);
        CHECK(sent > 0 && offset == before + sent);
    }
    CHECK(sendfile(ends[0], input, &offset, 10) == 0 && offset == SIZE);
    CHECK(lseek(input, 0, SEEK_CUR) == 0);
    reap(child);

    /* Without an offset, the file's own position moves. */
    CHECK(lseek(input, 100, SEEK_SET) == 100);
    child = reader(ends, data + 100, 5000);
    CHECK(sendfile(ends[0], input, NULL, 5000) == 5000);
    CHECK(lseek(input, 0, SEEK_CUR) == 5100);
    reap(child);

    /* A non-blocking socket takes a part, and the offset says which. */
    CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
    size_t total = 0;
    for (;;) {
        offset = (off_t)(total % SIZE);
        off_t before = offset;
        ssize_t sent = sendfile(ends[0], input, &offset, (size_t)(SIZE - offset));
        CHECK(offset == before + (sent > 0 ? sent : 0));
        if (sent < 0) {
            CHECK(errno == EAGAIN);
            break;
        }
        total += (size_t)sent;
    }
    for (size_t done = 0; done < total;) {
        ssize_t part = recv(ends[1], got, total - done < SIZE ? total - done : SIZE, 0);
        CHECK(part > 0);
        for (ssize_t i = 0; i < part; i++)
            CHECK(got[i] == data[(done + (size_t)i) % SIZE]);
        done += (size_t)part;
    }
    CHECK(fcntl(ends[0], F_SETFL, 0) == 0);
    FAILS(sendfile(ends[0], 999, &offset, 10), EBADF);
}

static void by_splice(int ends[2], int input)
{
    int tube[2];
    loff_t offset = 5000;
    CHECK(pipe(tube) == 0);
    pid_t child = reader(ends, data + 5000, 200000);
    for (size_t left = 200000; left > 0;) {
        ssize_t in = splice(input, &offset, tube[1], NULL, left < 50000 ? left : 50000, 0);
        CHECK(in > 0);
        for (ssize_t out = 0; out < in;) {
            ssize_t moved = splice(tube[0], NULL, ends[0], NULL, (size_t)(in - out), SPLICE_F_MOVE);
            CHECK(moved > 0);
            out += moved;
        }
        left -= (size_t)in;
    }
    CHECK(offset == 205000);
    reap(child);

    send_all(ends[0], "through a pipe", 14);
    CHECK(ready(ends[1], POLLIN) & POLLIN);
    CHECK(splice(ends[1], NULL, tube[1], NULL, 7, 0) == 7);
    CHECK(splice(ends[1], NULL, tube[1], NULL, 100, 0) == 7);
    CHECK(read(tube[0], got, 100) == 14 && memcmp(got, "through a pipe", 14) == 0);
    CHECK(fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
    FAILS(splice(ends[1], NULL, tube[1], NULL, 100, SPLICE_F_NONBLOCK), EAGAIN);
    CHECK(shutdown(ends[0], SHUT_WR) == 0);
    CHECK(ready(ends[1], POLLIN) & POLLIN);
    CHECK(splice(ends[1], NULL, tube[1], NULL, 100, 0) == 0);
}

int main(void)
{
    int ends[2], input = file();
    pair(ends);
    by_sendfile(ends, input);
    by_splice(ends, input);
    return 0;
}

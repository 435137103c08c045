/* Descriptors are the kernel's: lowest free numbers; dup, dup2 over a live socket, dup3 and F_DUPFD share one stream. */
#include "quirk.h"

static void lowest_free(void)
{
    struct sockaddr_in at;
    int server = listener(&at);
    int a = dial(&at), b = dial(&at), c = dial(&at);
    CHECK(a == server + 1 && b == a + 1 && c == b + 1);
    CHECK(close(b) == 0);
    CHECK(accept(server, NULL, NULL) == b);
    CHECK(accept(server, NULL, NULL) == c + 1);
    CHECK(dup(a) == c + 2);
    for (int fd = server; fd <= c + 2; fd++)
        CHECK(close(fd) == 0);
    FAILS(close(a), EBADF);
    FAILS(recv(a, &at, 1, 0), EBADF);
    FAILS(fcntl(a, F_GETFL), EBADF);
}

static void duplicates(void)
{
    int ends[2];
    char byte;
    pair(ends);
    int copy = dup(ends[0]), high = fcntl(ends[0], F_DUPFD, 50), cloexec = fcntl(ends[0], F_DUPFD_CLOEXEC, 60);
    CHECK(high >= 50 && cloexec >= 60);
    CHECK(fcntl(cloexec, F_GETFD) == FD_CLOEXEC && fcntl(high, F_GETFD) == 0);
    int third = dup3(ends[0], 70, O_CLOEXEC);
    CHECK(third == 70 && fcntl(third, F_GETFD) == FD_CLOEXEC);
    CHECK(close(ends[0]) == 0);
    send_all(copy, "a", 1);
    send_all(high, "b", 1);
    CHECK(write(cloexec, "c", 1) == 1);
    CHECK(write(third, "d", 1) == 1);
    expect(ends[1], "abcd");
    send_all(ends[1], "xyz", 3);
    expect(high, "x");
    expect(copy, "y");
    expect(third, "z");
    CHECK(close(copy) == 0 && close(high) == 0 && close(cloexec) == 0);
    FAILS(recv(ends[1], &byte, 1, MSG_DONTWAIT), EAGAIN);
    CHECK(close(third) == 0);
    CHECK(recv(ends[1], &byte, 1, 0) == 0);
    CHECK(close(ends[1]) == 0);
}

/* Java closes a socket so: the number stays taken, the connection ends. */
static void over_a_live_socket(void)
{
    int ends[2], others[2];
    char byte;
    pair(ends);
    pair(others);
    CHECK(dup2(others[0], ends[0]) == ends[0]);
    CHECK(recv(ends[1], &byte, 1, 0) == 0);
    send_all(ends[0], "other", 5);
    expect(others[1], "other");
    CHECK(close(others[0]) == 0);
    send_all(ends[0], "still", 5);
    expect(others[1], "still");
    int file = open("/dev/null", O_RDWR);
    CHECK(dup2(file, ends[0]) == ends[0]);
    CHECK(recv(others[1], &byte, 1, 0) == 0);
    CHECK(write(ends[0], "into the void", 13) == 13);
    FAILS(dup2(1000, others[1]), EBADF);
    CHECK(dup2(others[1], others[1]) == others[1]);
    CHECK(close(file) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0 && close(others[1]) == 0);
}

int main(void)
{
    lowest_free();
    duplicates();
    over_a_live_socket();
    return 0;
}

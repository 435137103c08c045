/* Corners of calls that programs reach now and then: copies of descriptors, time-outs, flags together, shutdown, and
 * calls that are not meant for sockets. */
#include "epoll.h"
#include <dirent.h>
#include <linux/close_range.h>
#include <sys/sendfile.h>
#include <sys/time.h>

static void copies(void)
{
    int ends[2];
    char byte;
    pair(ends);
    int copy = fcntl(ends[0], F_DUPFD, 40), cloexec = fcntl(ends[0], F_DUPFD_CLOEXEC, 40);
    CHECK(copy >= 40 && cloexec > copy);
    CHECK(fcntl(copy, F_GETFD) == 0 && fcntl(cloexec, F_GETFD) == FD_CLOEXEC);
    CHECK(dup2(copy, copy) == copy);
    FAILS(dup3(copy, copy, 0), EINVAL);
    FAILS(dup2(copy, -1), EBADF);
    FAILS(dup2(4000, copy), EBADF);
    FAILS(fcntl(copy, F_DUPFD, -1), EINVAL);
    /* Flags of the open file are everybody's; those of the descriptor are not. */
    CHECK(fcntl(copy, F_SETFL, O_NONBLOCK) == 0);
    CHECK(fcntl(cloexec, F_GETFL) & O_NONBLOCK);
    FAILS(recv(ends[0], &byte, 1, 0), EAGAIN);
    int off = 0;
    CHECK(ioctl(cloexec, FIONBIO, &off) == 0);
    CHECK(!(fcntl(ends[0], F_GETFL) & O_NONBLOCK));
    CHECK(close(ends[0]) == 0);
    send_all(ends[1], "ab", 2);
    CHECK(recv(copy, &byte, 1, 0) == 1 && byte == 'a');
    /* Over something else, and something else over it. */
    int other[2];
    pair(other);
    CHECK(dup2(copy, other[0]) == other[0]);
    CHECK(recv(other[1], &byte, 1, 0) == 0);
    CHECK(recv(other[0], &byte, 1, 0) == 1 && byte == 'b');
    int null = open("/dev/null", O_RDWR);
    CHECK(dup3(null, copy, O_CLOEXEC) == copy);
    CHECK(read(copy, &byte, 1) == 0 && write(copy, "x", 1) == 1);
    CHECK(close(cloexec) == 0);
    send_all(ends[1], "c", 1);
    expect(other[0], "c");
    CHECK(close_range((unsigned)other[0], (unsigned)other[0], CLOSE_RANGE_CLOEXEC) == 0);
    CHECK(fcntl(other[0], F_GETFD) == FD_CLOEXEC);
    send_all(ends[1], "d", 1);
    expect(other[0], "d");
    FAILS(close_range(7, 6, 0), EINVAL);
    CHECK(close(other[0]) == 0);
    CHECK(recv(ends[1], &byte, 1, 0) == 0);
    close(ends[1]), close(other[1]), close(copy), close(null);
}

static void on_alarm(int number) { (void)number; }

static void timeouts(void)
{
    int ends[2];
    char text[8];
    struct timeval time = {.tv_usec = 100000}, got;
    socklen_t len = sizeof got;
    pair(ends);
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0);
    CHECK(getsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &got, &len) == 0);
    CHECK(got.tv_sec == 0 && got.tv_usec >= 100000 && got.tv_usec < 110000);
    int64_t start = now_ms();
    FAILS(recv(ends[0], text, 1, 0), EAGAIN);
    CHECK(now_ms() - start >= 95);
    send_all(ends[1], "part", 4);
    CHECK(recv(ends[0], text, 8, MSG_WAITALL) == 4);
    FAILS(recv(ends[0], text, 1, MSG_PEEK), EAGAIN);
    struct iovec parts[2] = {{.iov_base = text, .iov_len = 2}, {.iov_base = text + 2, .iov_len = 6}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    send_all(ends[1], "abc", 3);
    CHECK(recvmsg(ends[0], &message, MSG_WAITALL) == 3);
    /* A signal interrupts a call with a time-out, whatever SA_RESTART says. */
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    struct itimerval soon = {.it_value = {.tv_usec = 50000}};
    time = (struct timeval){.tv_sec = 30};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    CHECK(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0);
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    FAILS(recv(ends[0], text, 1, 0), EINTR);
    /* What came before the signal is told. */
    send_all(ends[1], "xy", 2);
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    CHECK(recv(ends[0], text, 5, MSG_WAITALL) == 2);
    CHECK(setsockopt(ends[1], SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){.tv_usec = 100000}, sizeof time) == 0);
    static char block[1 << 20];
    ssize_t sent;
    start = now_ms();
    while ((sent = send(ends[1], block, sizeof block, MSG_NOSIGNAL)) > 0)
        ;
    CHECK(sent == -1 && errno == EAGAIN && now_ms() - start >= 95);
    close(ends[0]), close(ends[1]);
    alarm(60);
}

static void flags(void)
{
    int ends[2], count;
    char text[8] = "";
    pair(ends);
    send_all(ends[1], "abcdef", 6);
    ready(ends[0], POLLIN);
    CHECK(recv(ends[0], text, 3, MSG_PEEK | MSG_WAITALL) == 3 && memcmp(text, "abc", 3) == 0);
    CHECK(recv(ends[0], text, 8, MSG_DONTWAIT | MSG_WAITALL | MSG_PEEK) == 6);
    CHECK(recv(ends[0], NULL, 2, MSG_TRUNC) == 2);
    CHECK(ioctl(ends[0], FIONREAD, &count) == 0 && count == 4);
    CHECK(recv(ends[0], text, 8, MSG_DONTWAIT | MSG_WAITALL) == 4 && memcmp(text, "cdef", 4) == 0);
    FAILS(recv(ends[0], text, 8, MSG_DONTWAIT | MSG_WAITALL), EAGAIN);
    FAILS(recv(ends[0], text, 1, MSG_ERRQUEUE), EAGAIN);
    /* No bytes are waited for by recv, not by read. */
    FAILS(recv(ends[0], text, 0, MSG_DONTWAIT), EAGAIN);
    CHECK(read(ends[0], text, 0) == 0);
    send_all(ends[1], "g", 1);
    CHECK(recv(ends[0], text, 0, 0) == 0);
    expect(ends[0], "g");
    CHECK(send(ends[0], "", 0, 0) == 0);
    close(ends[0]), close(ends[1]);
}

/* MSG_PEEK with MSG_WAITALL waits for all, too. */
static void *sends_rest(void *argument)
{
    usleep(100000);
    send_all(*(int *)argument, "rest", 4);
    return NULL;
}

static void peek_all(void)
{
    int ends[2];
    char text[8] = "";
    pthread_t thread;
    pair(ends);
    send_all(ends[1], "some", 4);
    ready(ends[0], POLLIN);
    CHECK(pthread_create(&thread, NULL, sends_rest, &ends[1]) == 0);
    CHECK(recv(ends[0], text, 8, MSG_PEEK | MSG_WAITALL) == 8 && memcmp(text, "somerest", 8) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    expect(ends[0], "somerest");
    close(ends[0]), close(ends[1]);
}

static void shutting(void)
{
    int ends[2];
    char byte;
    pair(ends);
    send_all(ends[1], "q", 1);
    ready(ends[0], POLLIN);
    CHECK(shutdown(ends[0], SHUT_RD) == 0 && shutdown(ends[0], SHUT_RD) == 0);
    expect(ends[0], "q");
    CHECK(recv(ends[0], &byte, 1, 0) == 0);
    /* Linux still takes what comes later. */
    send_all(ends[1], "r", 1);
    usleep(20000);
    CHECK(recv(ends[0], &byte, 1, 0) == 1 && byte == 'r');
    CHECK(recv(ends[0], &byte, 1, 0) == 0);
    send_all(ends[0], "s", 1);
    expect(ends[1], "s");
    CHECK(shutdown(ends[0], SHUT_WR) == 0 && shutdown(ends[0], SHUT_WR) == 0);
    FAILS(send(ends[0], "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK(recv(ends[1], &byte, 1, 0) == 0);
    FAILS(shutdown(ends[1], 7), EINVAL);
    CHECK(shutdown(ends[1], SHUT_RDWR) == 0);
    CHECK(ready(ends[1], POLLIN) & POLLHUP);
    close(ends[0]), close(ends[1]);
}

static void not_for_sockets(void)
{
    int ends[2];
    char text[8];
    pair(ends);
    send_all(ends[1], "abc", 3);
    ready(ends[0], POLLIN);
    FAILS(pread(ends[0], text, 1, 0), ESPIPE);
    FAILS(pwrite(ends[0], text, 1, 0), ESPIPE);
    struct iovec one = {.iov_base = text, .iov_len = 2};
    FAILS(preadv(ends[0], &one, 1, 0), ESPIPE);
    FAILS(pwritev(ends[0], &one, 1, 0), ESPIPE);
    CHECK(preadv2(ends[0], &one, 1, -1, 0) == 2 && memcmp(text, "ab", 2) == 0);
    CHECK(pwritev2(ends[0], &one, 1, -1, 0) == 2);
    expect(ends[1], "ab");
    FAILS(lseek(ends[0], 0, SEEK_SET), ESPIPE);
    FAILS(ftruncate(ends[0], 0), EINVAL);
    FAILS(fsync(ends[0]), EINVAL);
    FAILS(copy_file_range(ends[0], NULL, ends[1], NULL, 1, 0), EINVAL);
    FAILS(listen(ends[0], 1), EINVAL);
    FAILS(accept(ends[0], NULL, NULL), EINVAL);
    FAILS(accept4(ends[0], NULL, NULL, 0x1234), EINVAL);
    CHECK(isatty(ends[0]) == 0 && fdopendir(ends[0]) == NULL && errno == ENOTDIR);
    expect(ends[0], "c");
    close(ends[0]), close(ends[1]);
}

int main(void)
{
    copies();
    timeouts();
    flags();
    peek_all();
    shutting();
    not_for_sockets();
    return 0;
}

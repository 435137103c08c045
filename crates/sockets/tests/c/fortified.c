/* The checked forms that compilers choose (_FORTIFY_SOURCE), the names for large files, and syscall(). */
#include "quirk.h"
#include <sys/syscall.h>

ssize_t __read_chk(int fd, void *buffer, size_t len, size_t size);
ssize_t __recv_chk(int fd, void *buffer, size_t len, size_t size, int flags);
ssize_t __recvfrom_chk(int fd, void *buffer, size_t len, size_t size, int flags, struct sockaddr *from, socklen_t *fromlen);
int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t size);
extern int fcntl64(int fd, int command, ...);

int main(void)
{
    int ends[2];
    char text[16] = "";
    struct sockaddr_storage from;
    socklen_t len = sizeof from;
    pair(ends);
    send_all(ends[0], "abcdefghij", 10);
    struct pollfd poller = {.fd = ends[1], .events = POLLIN};
    CHECK(__poll_chk(&poller, 1, 5000, sizeof poller) == 1 && poller.revents == POLLIN);
    CHECK(__read_chk(ends[1], text, 3, sizeof text) == 3 && memcmp(text, "abc", 3) == 0);
    CHECK(__recv_chk(ends[1], text, 3, sizeof text, 0) == 3 && memcmp(text, "def", 3) == 0);
    CHECK(__recvfrom_chk(ends[1], text, 16, sizeof text, 0, (struct sockaddr *)&from, &len) == 4);
    CHECK(memcmp(text, "ghij", 4) == 0);
    CHECK(fcntl64(ends[1], F_SETFL, O_NONBLOCK) == 0);
    FAILS(read(ends[1], text, 1), EAGAIN);
    int copy = fcntl64(ends[1], F_DUPFD, 40);
    CHECK(copy >= 40);
    CHECK(syscall(SYS_write, ends[0], "raw", 3L) == 3);
    CHECK(ready(copy, POLLIN) & POLLIN);
    CHECK(syscall(SYS_read, copy, text, sizeof text) == 3 && memcmp(text, "raw", 3) == 0);
    CHECK(syscall(SYS_sendto, ends[0], "raw2", 4L, 0L, NULL, 0L) == 4);
    CHECK(ready(copy, POLLIN) & POLLIN);
    CHECK(syscall(SYS_recvfrom, copy, text, sizeof text, 0L, NULL, NULL) == 4 && memcmp(text, "raw2", 4) == 0);
    CHECK(syscall(SYS_close, copy) == 0);
    FAILS(read(copy, text, 1), EBADF);
    CHECK(syscall(SYS_close, ends[0]) == 0);
    CHECK(ready(ends[1], POLLIN) & POLLIN);
    CHECK(read(ends[1], text, 1) == 0);
    return 0;
}

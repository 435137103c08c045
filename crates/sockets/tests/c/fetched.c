/* A process takes a connected socket out of its child by pidfd_getfd, and goes on with it when the child has closed its
 * own. */
#include "quirk.h"
#include <sys/syscall.h>

static void child(int tell, int told)
{
    int ends[2];
    char byte;
    pair(ends);
    send_all(ends[0], "to the fetched one;", 19);
    CHECK(write(tell, &ends[1], sizeof ends[1]) == sizeof ends[1]);
    expect(ends[0], "here");
    CHECK(read(told, &byte, 1) == 1);
    CHECK(close(ends[1]) == 0);
    send_all(ends[0], "alone;", 6);
    expect(ends[0], "bye");
    CHECK(recv(ends[0], &byte, 1, 0) == 0);
    _exit(0);
}

int main(void)
{
    int tell[2], told[2], target;
    CHECK(pipe(tell) == 0 && pipe(told) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        child(tell[1], told[0]);
    CHECK(read(tell[0], &target, sizeof target) == sizeof target);
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    int fd = pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, target, 0);
    if (fd < 0) {
        CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
        return SKIPPED;
    }
    CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
    expect(fd, "to the fetched one;");
    send_all(fd, "here", 4);
    CHECK(write(told[1], "x", 1) == 1);
    expect(fd, "alone;");
    send_all(fd, "bye", 3);
    CHECK(close(fd) == 0);
    reap(pid);
    return 0;
}

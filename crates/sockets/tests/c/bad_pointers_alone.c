/* Arguments that are not there are EFAULT in a program that has no stream: the calls are the kernel's. It makes no stream. */
#include "epoll.h"
#include <linux/sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/un.h>

static char *nowhere;
/* The last bytes before a page that is not there. */
static char *edge;

static void addresses(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = here(0);
    void *half = edge - sizeof at / 2;
    memcpy(half, &at, sizeof at / 2);
    for (int round = 0; round < 2; round++) {
        void *bad = round ? half : nowhere;
        FAILS(connect(fd, bad, sizeof at), EFAULT);
        FAILS(syscall(SYS_connect, fd, bad, sizeof at), EFAULT);
        FAILS(bind(fd, bad, sizeof at), EFAULT);
        FAILS(connect(fd, bad, sizeof(struct sockaddr_in6)), EFAULT);
    }
    FAILS(connect(fd, (void *)nowhere, 129), EINVAL);
    FAILS(connect(fd, (void *)-16L, sizeof at), EFAULT);
    /* An address that ends where memory does is as good as any. */
    void *whole = edge - sizeof at;
    memcpy(whole, &at, sizeof at);
    CHECK(bind(fd, whole, sizeof at) == 0 && listen(fd, 1) == 0);
}

static void messages(void)
{
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    char byte = 'x';
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    FAILS(sendmsg(pair[0], (void *)nowhere, 0), EFAULT);
    FAILS(sendmsg(pair[0], (void *)(edge - sizeof message / 2), 0), EFAULT);
    message.msg_control = nowhere;
    message.msg_controllen = 64;
    FAILS(sendmsg(pair[0], &message, 0), EFAULT);
    FAILS(recvmsg(pair[1], (void *)nowhere, MSG_DONTWAIT), EFAULT);
    FAILS(sendmmsg(pair[0], (void *)nowhere, 1, 0), EFAULT);
    FAILS(recvmmsg(pair[1], (void *)nowhere, 1, MSG_DONTWAIT, NULL), EFAULT);
    FAILS(recvmmsg(pair[1], NULL, 0, 0, (void *)nowhere), EFAULT);
}

static void waits(void)
{
    struct timespec now = {0, 0};
    /* The C library itself reads the time of ppoll, select and pselect. */
    FAILS(poll((void *)nowhere, 1, 0), EFAULT);
    FAILS(ppoll((void *)nowhere, 1, &now, NULL), EFAULT);
    FAILS(select(1, (void *)nowhere, NULL, NULL, &(struct timeval){0, 0}), EFAULT);
    FAILS(select(1, NULL, NULL, (void *)nowhere, &(struct timeval){0, 0}), EFAULT);
    FAILS(pselect(1, (void *)nowhere, NULL, NULL, &now, NULL), EFAULT);
    int epoll = set_of(), pipes[2];
    CHECK(pipe(pipes) == 0);
    struct epoll_event event;
    FAILS(epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[0], (void *)nowhere), EFAULT);
    FAILS(epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[0], (void *)(edge - sizeof event / 2)), EFAULT);
    FAILS(epoll_ctl(epoll, EPOLL_CTL_MOD, pipes[0], NULL), EFAULT);
    add(epoll, pipes[1], EPOLLOUT);
    FAILS(epoll_wait(epoll, (void *)nowhere, 1, 0), EFAULT);
    FAILS(epoll_pwait2(epoll, &event, 1, (void *)nowhere, NULL), EFAULT);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_DEL, pipes[1], (void *)nowhere) == 0);
}

static void others(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    FAILS(getsockopt(fd, SOL_SOCKET, SO_ERROR, nowhere, &(socklen_t){4}), EFAULT);
    FAILS(getsockopt(fd, SOL_SOCKET, SO_ERROR, &(int){0}, (void *)nowhere), EFAULT);
    FAILS(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, nowhere, sizeof(struct timeval)), EFAULT);
    FAILS(ioctl(fd, FIONBIO, nowhere), EFAULT);
    FAILS(setrlimit(RLIMIT_NOFILE, (void *)nowhere), EFAULT);
    FAILS(syscall(SYS_clone3, nowhere, sizeof(struct clone_args)), EFAULT);
    char *none[] = {NULL};
    FAILS(execve("/bin/true", (char **)nowhere, none), EFAULT);
    FAILS(execve("/bin/true", none, (char **)nowhere), EFAULT);
    FAILS(execve(nowhere, none, none), EFAULT);
}

int main(void)
{
    long page = sysconf(_SC_PAGESIZE);
    char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED && munmap(pages + page, page) == 0);
    edge = nowhere = pages + page;
    addresses();
    messages();
    waits();
    others();
    return 0;
}

/* Calls with pointers to what is not there, or is there in part, or must not be stored to. */
#ifndef BAD_H
#define BAD_H
#include "core.h"

#define PAGE 4096

/* Memory of which only the first `len` bytes may be touched; they hold canaries. What follows is kept, so that nothing else is mapped there. */
static unsigned char *ends_after(size_t len)
{
    static unsigned char *pages;
    if (pages == NULL) {
        pages = mmap(NULL, 5 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(pages + 4 * PAGE, PAGE, PROT_NONE);
    }
    memset(pages, CANARY, 4 * PAGE);
    return pages + 4 * PAGE - len;
}

/* Memory that can be read only. */
static unsigned char *constant(void)
{
    static unsigned char *page;
    if (page == NULL)
        page = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return page;
}

/* slot which len there flags: `len` bytes of which `there` are there */
static void call_bad_data(const struct op *op)
{
    int fd = fd_of(arg(op, 0)), flags = (int)arg(op, 4);
    size_t len = within((size_t)arg(op, 2)), there = (size_t)arg(op, 3) % (4 * PAGE);
    unsigned char *at = ends_after(there);
    struct iovec iov[2] = {{at, there}, {at + there, len}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
    long result;
    switch (arg(op, 1)) {
    case 0:
        result = send(fd, at, len, flags);
        break;
    case 1:
        result = recv(fd, at, len, flags);
        break;
    case 2:
        result = write(fd, at, len);
        break;
    case 3:
        result = recvmsg(fd, &msg, flags);
        break;
    case 4:
        result = sendmsg(fd, &msg, flags);
        break;
    case 5:
        result = writev(fd, iov, 2);
        break;
    case 6:
        result = recv(fd, constant(), len, flags);
        break;
    default:
        result = send(fd, (void *)(uintptr_t)arg(op, 3), len, flags);
    }
    out_result(result);
    if (result > 0)
        out(" data=%016llx", (unsigned long long)hash(at, there < (size_t)result ? there : (size_t)result));
    if (result >= 0 && (size_t)result < there && !untouched(at, (size_t)result, there) && arg(op, 1) != 0)
        out(" beyond=1");
}

/* slot which there: an argument of which `there` bytes are there */
static void call_bad_argument(const struct op *op)
{
    int fd = fd_of(arg(op, 0));
    unsigned char *at = ends_after((size_t)arg(op, 2) % PAGE);
    struct sockaddr_storage address;
    socklen_t len = sizeof address;
    int number = 4;
    struct timeval now = {0, 0};
    struct timespec zero = {0, 0};
    switch (arg(op, 1)) {
    case 0:
        out_result(getsockname(fd, (void *)at, &len));
        break;
    case 1:
        out_result(getpeername(fd, (void *)&address, (void *)at));
        break;
    case 2:
        out_result(getsockopt(fd, SOL_SOCKET, SO_ERROR, at, &len));
        break;
    case 3:
        out_result(getsockopt(fd, SOL_SOCKET, SO_TYPE, &number, (void *)at));
        break;
    case 4:
        out_result(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, at, sizeof number));
        break;
    case 5:
        out_result(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, at, sizeof now));
        break;
    case 6:
        out_result(poll((void *)at, 1, 0));
        break;
    case 7:
        out_result(select(fd < 0 ? 1 : fd + 1, (void *)at, NULL, NULL, &now));
        break;
    case 8:
        out_result(ioctl(fd, FIONREAD, at));
        break;
    case 9:
        out_result(ioctl(fd, FIONBIO, at));
        break;
    case 10:
        out_result(connect(fd, (void *)at, sizeof(struct sockaddr_in)));
        break;
    case 11:
        out_result(bind(fd, (void *)at, sizeof(struct sockaddr_in)));
        break;
    case 12:
        out_result(sendmsg(fd, (void *)at, MSG_DONTWAIT | MSG_NOSIGNAL));
        break;
    case 13:
        out_result(recvmsg(fd, (void *)at, MSG_DONTWAIT));
        break;
    case 14:
        out_result(readv(fd, (void *)at, 2));
        break;
    case 15:
        out_result(writev(fd, (void *)at, 2));
        break;
    case 16:
        out_result(recvmmsg(fd, (void *)at, 2, MSG_DONTWAIT, NULL));
        break;
    case 17:
        out_result(epoll_wait(fd, (void *)at, 2, 0));
        break;
    case 18:
        out_result(ppoll(NULL, 0, (void *)at, NULL));
        break;
    case 19:
        out_result(sendfile(fd, fd, (void *)at, 10));
        break;
    default:
        out_result(pselect(0, NULL, NULL, NULL, &zero, NULL));
    }
}

/* set slot there: an event of which `there` bytes are there */
static void call_bad_event(const struct op *op)
{
    unsigned char *at = ends_after((size_t)arg(op, 2) % PAGE);
    out_result(epoll_ctl(fd_of(arg(op, 0)), EPOLL_CTL_ADD, fd_of(arg(op, 1)), (void *)at));
}

#endif

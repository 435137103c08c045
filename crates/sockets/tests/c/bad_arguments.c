/* What calls on a connection take and store beside their buffers is EFAULT where it is not there. */
#include "bad.h"
#include "epoll.h"
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>

static int near, far;

static void messages(void)
{
    char bytes[16];
    struct iovec part = {bytes, 10};
    struct iovec *half = (void *)(edge - sizeof part / 2), *one = (void *)(edge - sizeof part);
    struct msghdr message = {.msg_iov = half, .msg_iovlen = 1};
    *one = part;
    FAILS(readv(near, half, 1), EFAULT);
    FAILS(readv(near, one, 2), EFAULT);
    FAILS(writev(near, half, 1), EFAULT);
    FAILS(writev(near, one, 2), EFAULT);
    FAILS(sendmsg(near, &message, 0), EFAULT);
    FAILS(recvmsg(near, &message, 0), EFAULT);
    FAILS(sendmsg(near, (void *)(edge - sizeof message / 2), 0), EFAULT);
    FAILS(recvmsg(near, (void *)edge, 0), EFAULT);
    message = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1, .msg_name = edge, .msg_namelen = 16};
    FAILS(sendmsg(near, &message, 0), EFAULT);
    FAILS(sendto(near, bytes, 10, 0, (void *)edge, 16), EFAULT);
    message = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1, .msg_control = edge, .msg_controllen = 64};
    FAILS(sendmsg(near, &message, 0), EFAULT);
    /* A name and ancillary data that do not come need no place; the lengths do. */
    message.msg_name = edge, message.msg_namelen = 16;
    send_all(far, bytes, 10);
    ready(near, POLLIN);
    CHECK(recvmsg(near, &message, 0) == 10 && message.msg_namelen == 0 && message.msg_controllen == 0);
    socklen_t len = 16;
    send_all(far, bytes, 10);
    ready(near, POLLIN);
    CHECK(recvfrom(near, bytes, 10, 0, (void *)edge, &len) == 10 && len == 0);
    /* By then the bytes are gone. */
    send_all(far, bytes, 10);
    ready(near, POLLIN);
    FAILS(recvfrom(near, bytes, 10, 0, (void *)edge, (void *)edge), EFAULT);
    CHECK(unread(near) == 0);
}

static void many_messages(void)
{
    char bytes[16];
    struct iovec part = {bytes, 10};
    struct mmsghdr *one = (void *)(edge - sizeof *one);
    *one = (struct mmsghdr){.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}};
    FAILS(sendmmsg(near, (void *)edge, 1, 0), EFAULT);
    FAILS(recvmmsg(near, (void *)edge, 1, MSG_DONTWAIT, NULL), EFAULT);
    CHECK(sendmmsg(near, one, 2, 0) == 1);
    CHECK(sendmmsg(far, one, 1, 0) == 1);
    receive_all(far, bytes, 10);
    ready(near, POLLIN);
    CHECK(recvmmsg(near, one, 2, MSG_DONTWAIT, NULL) == 1 && one->msg_len == 10);
    /* The kernel may keep the error for the next one who asks. */
    int error;
    CHECK(getsockopt(near, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof error}) == 0);
}

static void waits(void)
{
    struct pollfd *asked = (void *)(edge - sizeof *asked), *fixed = (void *)constant;
    *asked = (struct pollfd){.fd = near, .events = POLLOUT};
    FAILS(poll((void *)edge, 1, 0), EFAULT);
    FAILS(poll(asked, 2, 0), EFAULT);
    CHECK(poll(asked, 1, 0) == 1 && asked->revents == POLLOUT);
    /* Descriptor 0, and no place to say of it what there is. */
    FAILS(poll(fixed, 1, 0), EFAULT);
    fd_set *set = (void *)(edge - sizeof *set);
    struct timeval now = {0, 0};
    FD_ZERO(set);
    FD_SET(near, set);
    CHECK(select(near + 1, NULL, set, NULL, &now) == 1 && FD_ISSET(near, set));
    FAILS(select(near + 1, set, (void *)edge, NULL, &now), EFAULT);
    FAILS(select(near + 1, (void *)edge, set, NULL, &now), EFAULT);
    FAILS(pselect(near + 1, (void *)edge, NULL, NULL, &(struct timespec){0, 0}, NULL), EFAULT);
    FAILS(select(near + 1, NULL, set, (void *)constant, &now), EFAULT);
}

static void sets(void)
{
    struct epoll_event *half = (void *)(edge - sizeof *half / 2), event;
    int set = set_of();
    FAILS(epoll_ctl(set, EPOLL_CTL_ADD, near, (void *)edge), EFAULT);
    FAILS(epoll_ctl(set, EPOLL_CTL_ADD, near, half), EFAULT);
    FAILS(epoll_ctl(set, EPOLL_CTL_DEL, near, NULL), ENOENT);
    add(set, near, EPOLLIN | EPOLLOUT);
    FAILS(epoll_ctl(set, EPOLL_CTL_MOD, near, (void *)edge), EFAULT);
    FAILS(epoll_wait(set, (void *)edge, 1, 0), EFAULT);
    FAILS(epoll_wait(set, half, 1, -1), EFAULT);
    FAILS(epoll_wait(set, (void *)constant, 1, 0), EFAULT);
    CHECK(epoll_wait(set, (void *)(edge - sizeof event), 4, 0) == 1);
    CHECK(change(set, EPOLL_CTL_MOD, near, EPOLLIN, 1) == 0);
    CHECK(epoll_wait(set, (void *)edge, 1, 10) == 0);
    FAILS(epoll_pwait2(set, &event, 1, (void *)edge, NULL), EFAULT);
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, near, (void *)edge) == 0);
    CHECK(close(set) == 0);
}

static void controls(void)
{
    FAILS(ioctl(near, FIONREAD, edge), EFAULT);
    FAILS(ioctl(near, FIONREAD, constant), EFAULT);
    FAILS(ioctl(near, TIOCOUTQ, edge), EFAULT);
    FAILS(ioctl(near, FIONBIO, edge), EFAULT);
    FAILS(getsockopt(near, SOL_SOCKET, SO_ERROR, edge, &(socklen_t){4}), EFAULT);
    FAILS(getsockopt(near, SOL_SOCKET, SO_ERROR, &(int){0}, (void *)edge), EFAULT);
    FAILS(setsockopt(near, SOL_SOCKET, SO_RCVTIMEO, edge, sizeof(struct timeval)), EFAULT);
    FAILS(setsockopt(near, SOL_SOCKET, SO_ZEROCOPY, edge, sizeof(int)), EFAULT);
    FAILS(setsockopt(near, IPPROTO_TCP, TCP_ULP, edge, 3), EFAULT);
    FAILS(setsockopt(near, IPPROTO_TCP, TCP_NODELAY, edge - 2, sizeof(int)), EFAULT);
    FAILS(getsockopt(near, IPPROTO_TCP, TCP_INFO, edge, &(socklen_t){200}), EFAULT);
    FAILS(connect(near, (void *)edge, sizeof(struct sockaddr_in)), EFAULT);
    FAILS(getpeername(near, (void *)edge, &(socklen_t){16}), EFAULT);
    int file = unnamed_file();
    CHECK(write(file, "0123456789", 10) == 10);
    FAILS(sendfile(near, file, (void *)edge, 10), EFAULT);
    FAILS(sendfile(near, file, (void *)-4096L, 10), EFAULT);
    CHECK(close(file) == 0);
}

/* Descriptors that leave with a message: the kernel looks first, and whatever it finds. */
static void passing(void)
{
    int pair[2];
    char byte = 'x';
    struct iovec part = {&byte, 1};
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = edge, .msg_controllen = 64};
    FAILS(sendmsg(pair[0], &message, 0), EFAULT);
    FAILS(sendmsg(pair[0], (void *)edge, 0), EFAULT);
    message.msg_control = edge - CMSG_SPACE(sizeof(int)), message.msg_controllen = CMSG_SPACE(sizeof(int));
    struct cmsghdr *head = message.msg_control;
    *head = (struct cmsghdr){.cmsg_len = 1L << 60, .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    FAILS(sendmsg(pair[0], &message, 0), EINVAL);
}

static void programs(void)
{
    char *none[] = {NULL}, *wrong[] = {edge, NULL};
    FAILS(execve("/bin/true", none, (char **)edge), EFAULT);
    FAILS(execve("/bin/true", none, wrong), EFAULT);
    FAILS(execve("/bin/true", (char **)edge, none), EFAULT);
}

int main(void)
{
    int ends[2];
    pair(ends);
    near = ends[0], far = ends[1];
    make_bad();
    messages();
    many_messages();
    waits();
    sets();
    controls();
    passing();
    programs();
    send_all(near, "still", 5);
    expect(far, "still");
    return 0;
}

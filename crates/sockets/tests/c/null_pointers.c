/* A buffer of some length that is nowhere is EFAULT, and the connection goes on; one of no length is nothing. */
#include "epoll.h"

int main(void)
{
    int ends[2];
    char byte;
    /* So that no compiler knows better. */
    void *volatile none = NULL;
    volatile int minus = -1;
    struct iovec nowhere = {.iov_base = NULL, .iov_len = 5}, nothing = {.iov_base = NULL, .iov_len = 0};
    struct iovec mixed[2] = {{.iov_base = NULL, .iov_len = 0}, {.iov_base = &byte, .iov_len = 1}};
    struct msghdr message = {.msg_iov = &nowhere, .msg_iovlen = 1}, no_array = {.msg_iov = NULL, .msg_iovlen = 2};
    pair(ends);
    send_all(ends[1], "abc", 3);
    ready(ends[0], POLLIN);
    FAILS(read(ends[0], none, 5), EFAULT);
    FAILS(recv(ends[0], none, 5, 0), EFAULT);
    FAILS(recv(ends[0], none, 5, MSG_PEEK), EFAULT);
    FAILS(recvfrom(ends[0], none, 5, 0, NULL, NULL), EFAULT);
    FAILS(readv(ends[0], &nowhere, 1), EFAULT);
    FAILS(readv(ends[0], none, 1), EFAULT);
    FAILS(readv(ends[0], &nowhere, minus), EINVAL);
    FAILS(recvmsg(ends[0], &message, 0), EFAULT);
    FAILS(recvmsg(ends[0], &no_array, 0), EFAULT);
    FAILS(recvmsg(ends[0], NULL, 0), EFAULT);
    FAILS(recvmmsg(ends[0], none, 1, 0, NULL), EFAULT);
    FAILS(write(ends[0], none, 5), EFAULT);
    FAILS(send(ends[0], none, 5, MSG_NOSIGNAL), EFAULT);
    FAILS(sendto(ends[0], none, 5, MSG_NOSIGNAL, NULL, 0), EFAULT);
    FAILS(writev(ends[0], &nowhere, 1), EFAULT);
    FAILS(writev(ends[0], none, 1), EFAULT);
    FAILS(writev(ends[0], &nowhere, minus), EINVAL);
    FAILS(sendmsg(ends[0], &message, 0), EFAULT);
    FAILS(sendmsg(ends[0], &no_array, 0), EFAULT);
    FAILS(sendmsg(ends[0], NULL, 0), EFAULT);
    FAILS(sendmmsg(ends[0], none, 1, 0), EFAULT);
    FAILS(ioctl(ends[0], FIONREAD, NULL), EFAULT);
    FAILS(poll(none, 1, 0), EFAULT);
    int set = set_of();
    FAILS(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], NULL), EFAULT);
    CHECK(change(set, EPOLL_CTL_ADD, ends[0], EPOLLIN, 1) == 0);
    FAILS(epoll_wait(set, none, 1, 0), EFAULT);
    CHECK(read(ends[0], NULL, 0) == 0);
    CHECK(readv(ends[0], &nothing, 1) == 0);
    CHECK(write(ends[0], NULL, 0) == 0);
    CHECK(writev(ends[0], &nothing, 1) == 0);
    CHECK(readv(ends[0], mixed, 2) == 1 && byte == 'a');
    expect(ends[0], "bc");
    send_all(ends[0], "still", 5);
    expect(ends[1], "still");
    return 0;
}

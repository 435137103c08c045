/* epoll_ctl and epoll_wait fail as the kernel says; libuv adds, gets EEXIST, modifies. It sends no byte. */
#include "epoll.h"

int main(void)
{
    int ends[2], set = set_of(), pipes[2];
    struct epoll_event event = {.events = EPOLLIN};
    pair(ends);
    CHECK(pipe(pipes) == 0);
    int closed = fcntl(pipes[0], F_DUPFD, 500);
    close(closed);
    int file = unnamed_file();

    FAILS(epoll_ctl(set, EPOLL_CTL_MOD, ends[0], &event), ENOENT);
    FAILS(epoll_ctl(set, EPOLL_CTL_DEL, ends[0], NULL), ENOENT);
    FAILS(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], NULL), EFAULT);
    FAILS(epoll_ctl(set, 77, ends[0], &event), EINVAL);
    FAILS(epoll_ctl(closed, EPOLL_CTL_ADD, ends[0], &event), EBADF);
    FAILS(epoll_ctl(set, EPOLL_CTL_ADD, closed, &event), EBADF);
    FAILS(epoll_ctl(pipes[0], EPOLL_CTL_ADD, ends[0], &event), EINVAL);
    FAILS(epoll_ctl(ends[1], EPOLL_CTL_ADD, ends[0], &event), EINVAL);
    FAILS(epoll_ctl(set, EPOLL_CTL_ADD, file, &event), EPERM);
    FAILS(epoll_ctl(set, EPOLL_CTL_ADD, set, &event), EINVAL);

    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event) == 0);
    FAILS(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event), EEXIST);
    CHECK(epoll_ctl(set, EPOLL_CTL_MOD, ends[0], &event) == 0);
    FAILS(epoll_ctl(set, EPOLL_CTL_MOD, ends[0], NULL), EFAULT);
    FAILS(epoll_ctl(set, 77, ends[0], &event), EINVAL);
    FAILS(epoll_ctl(set, EPOLL_CTL_MOD, ends[1], &event), ENOENT);
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, ends[0], NULL) == 0);
    FAILS(epoll_ctl(set, EPOLL_CTL_DEL, ends[0], NULL), ENOENT);
    FAILS(epoll_ctl(set, EPOLL_CTL_MOD, ends[0], &event), ENOENT);

    event.events = EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT;
    FAILS(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event), EINVAL);
    event.events = EPOLLIN | EPOLLOUT | EPOLLEXCLUSIVE | EPOLLET | EPOLLWAKEUP;
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event) == 0);
    FAILS(epoll_ctl(set, EPOLL_CTL_MOD, ends[0], &event), EINVAL);
    event.events = EPOLLIN;
    FAILS(epoll_ctl(set, EPOLL_CTL_MOD, ends[0], &event), EINVAL);
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, ends[0], &event) == 0);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event) == 0);

    FAILS(epoll_wait(set, &event, 0, 0), EINVAL);
    volatile int negative = -1;
    FAILS(epoll_wait(set, &event, negative, 0), EINVAL);
    FAILS(epoll_wait(closed, &event, 1, 0), EBADF);
    FAILS(epoll_wait(ends[0], &event, 1, 0), EINVAL);
    FAILS(epoll_create(0), EINVAL);
    FAILS(epoll_create1(1), EINVAL);

    /* A closed stream is in no set; its number may come back as another one. */
    int number = ends[0];
    close(ends[0]);
    FAILS(epoll_ctl(set, EPOLL_CTL_DEL, number, NULL), EBADF);
    close(ends[1]);
    pair(ends);
    CHECK(ends[0] == number || ends[1] == number || 1);
    event.events = EPOLLIN;
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event) == 0);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, ends[1], &event) == 0);
    CHECK(epoll_wait(set, &event, 1, 0) == 0);
    return 0;
}

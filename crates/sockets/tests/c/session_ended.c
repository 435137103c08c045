/* A program's connection with its daemon is ended under it, again and again: its streams go on, byte for byte, and who
 * sleeps in receive, poll or epoll is woken for data as ever. A child of fork has no such connection of its parent's. */
#include "quirk.h"
#include <dirent.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

#define ROUNDS 60
#define PIECE 20000

/* How many connections with the daemon there are; ends them if asked. */
static int sessions(int end)
{
    int found = 0;
    DIR *all = opendir("/proc/self/fd");
    CHECK(all != NULL);
    for (struct dirent *entry; (entry = readdir(all)) != NULL;) {
        int fd = atoi(entry->d_name), domain = 0, type = 0;
        socklen_t len = sizeof domain;
        if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) != 0 || domain != AF_UNIX)
            continue;
        len = sizeof type;
        if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) != 0 || type != SOCK_SEQPACKET)
            continue;
        found++;
        if (end)
            syscall(SYS_shutdown, fd, SHUT_RDWR);
    }
    CHECK(closedir(all) == 0);
    return found;
}

static char byte_at(long at) { return (char)((unsigned long)at * 2654435761u >> 13); }

static void wait_for_data(int fd, int epfd, int round)
{
    struct epoll_event event;
    if (round % 3 == 1)
        CHECK(ready(fd, POLLIN) & POLLIN);
    if (round % 3 == 2)
        CHECK(epoll_wait(epfd, &event, 1, 10000) == 1);
}

static void *receive(void *argument)
{
    static char got[PIECE];
    int fd = *(int *)argument, epfd = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epfd >= 0 && epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &event) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        wait_for_data(fd, epfd, round);
        receive_all(fd, got, sizeof got);
        for (int i = 0; i < PIECE; i++)
            CHECK(got[i] == byte_at((long)round * PIECE + i));
        send_all(fd, "y", 1);
    }
    CHECK(close(epfd) == 0);
    return NULL;
}

static void streams_go_on(int ends[2])
{
    static char piece[PIECE];
    pthread_t receiver;
    CHECK(pthread_create(&receiver, NULL, receive, &ends[1]) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < PIECE; i++)
            piece[i] = byte_at((long)round * PIECE + i);
        usleep(2000); /* The receiver sleeps by now. */
        sessions(1);
        if (round % 2)
            usleep(2000);
        send_all(ends[0], piece, sizeof piece);
        expect(ends[0], "y");
    }
    CHECK(pthread_join(receiver, NULL) == 0);
}

int main(void)
{
    int ends[2];
    pair(ends);
    send_all(ends[0], "x", 1);
    expect(ends[1], "x");
    streams_go_on(ends);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(sessions(0) == 0);
        expect(ends[1], "to the child");
        sessions(1);
        send_all(ends[1], "back", 4);
        expect(ends[1], "again");
        _exit(0);
    }
    send_all(ends[0], "to the child", 12);
    expect(ends[0], "back");
    usleep(2000);
    sessions(1);
    send_all(ends[0], "again", 5);
    reap(child);
    streams_go_on(ends);
    CHECK(shutdown(ends[0], SHUT_WR) == 0);
    char end;
    CHECK(recv(ends[1], &end, 1, 0) == 0);
    return 0;
}

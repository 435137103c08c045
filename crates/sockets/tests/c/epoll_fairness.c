/* Nobody starves: more that is ready than there is room for, streams beside kernel descriptors that never stop. */
#include "epoll.h"

#define COUNT 40

static void all_come_round(int room)
{
    int ends[COUNT][2], pipes[4][2], set = set_of(), seen[COUNT + 4] = {0}, missing = COUNT + 4;
    for (int i = 0; i < COUNT; i++) {
        pair(ends[i]);
        CHECK(change(set, EPOLL_CTL_ADD, ends[i][0], EPOLLIN, (uint64_t)i) == 0);
        send_all(ends[i][1], "x", 1);
    }
    for (int i = 0; i < 4; i++) {
        CHECK(pipe(pipes[i]) == 0 && write(pipes[i][1], "x", 1) == 1);
        CHECK(change(set, EPOLL_CTL_ADD, pipes[i][0], EPOLLIN, (uint64_t)(COUNT + i)) == 0);
    }
    struct epoll_event events[8];
    /* By time, not by rounds: a busy set may look at kernel descriptors every few microseconds only. */
    int64_t start = now_ms();
    while (missing > 0) {
        int count = epoll_wait(set, events, room, 1000);
        CHECK(count > 0 && count <= room);
        for (int i = 0; i < count; i++) {
            CHECK(events[i].data.u64 < COUNT + 4 && events[i].events == EPOLLIN);
            missing -= !seen[events[i].data.u64]++;
        }
        CHECK(now_ms() - start < 5000);
    }
    for (int i = 0; i < COUNT; i++) {
        close(ends[i][0]);
        close(ends[i][1]);
    }
    for (int i = 0; i < 4; i++) {
        close(pipes[i][0]);
        close(pipes[i][1]);
    }
    close(set);
}

/* Many connections answered by one thread, each message once. */
static void *client(void *argument)
{
    int *ends = argument;
    char got[64];
    for (int round = 0; round < 500; round++) {
        for (int i = 0; i < COUNT; i++)
            send_all(ends[2 * i + 1], "message", 7);
        for (int i = 0; i < COUNT; i++)
            receive_all(ends[2 * i + 1], got, 7);
    }
    for (int i = 0; i < COUNT; i++)
        CHECK(shutdown(ends[2 * i + 1], SHUT_WR) == 0);
    return NULL;
}

static void server(uint32_t mode)
{
    int ends[COUNT][2], set = set_of(), open = COUNT;
    size_t bytes = 0;
    pthread_t thread;
    for (int i = 0; i < COUNT; i++) {
        pair(ends[i]);
        CHECK(fcntl(ends[i][0], F_SETFL, O_NONBLOCK) == 0);
        add(set, ends[i][0], EPOLLIN | mode);
    }
    CHECK(pthread_create(&thread, NULL, client, ends) == 0);
    while (open > 0) {
        struct epoll_event events[16];
        int count = epoll_wait(set, events, 16, 10000);
        CHECK(count > 0);
        for (int i = 0; i < count; i++) {
            char block[64];
            int fd = (int)events[i].data.u64;
            ssize_t got;
            while ((got = recv(fd, block, sizeof block, 0)) > 0) {
                send_all(fd, block, (size_t)got);
                bytes += (size_t)got;
            }
            CHECK(got == 0 || errno == EAGAIN);
            if (got == 0) {
                CHECK(close(fd) == 0);
                open--;
            } else if (mode & EPOLLONESHOT) {
                CHECK(change(set, EPOLL_CTL_MOD, fd, EPOLLIN | mode, (uint64_t)fd) == 0);
            }
        }
    }
    CHECK(pthread_join(thread, NULL) == 0 && bytes == 500 * 7 * COUNT);
    for (int i = 0; i < COUNT; i++)
        close(ends[i][1]);
    close(set);
}

int main(void)
{
    all_come_round(1);
    all_come_round(2);
    all_come_round(8);
    server(0);
    server(EPOLLET);
    server(EPOLLONESHOT);
    return 0;
}

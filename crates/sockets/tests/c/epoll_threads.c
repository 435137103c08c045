/* Several threads wait in one set, each stream armed for one shot: each message is answered once, by whichever. */
#include "epoll.h"

#define STREAMS 32
#define ROUNDS 500

static int set;
static int open_streams = STREAMS;
static size_t answered;

static void serve(int fd)
{
    char block[64];
    ssize_t got;
    while ((got = recv(fd, block, sizeof block, MSG_DONTWAIT)) > 0) {
        send_all(fd, block, (size_t)got);
        __atomic_fetch_add(&answered, (size_t)got, __ATOMIC_SEQ_CST);
    }
    if (got == 0) {
        CHECK(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL) == 0);
        __atomic_fetch_sub(&open_streams, 1, __ATOMIC_SEQ_CST);
        return;
    }
    CHECK(errno == EAGAIN);
    CHECK(change(set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLET | EPOLLONESHOT, (uint64_t)fd) == 0);
}

static void *worker(void *argument)
{
    (void)argument;
    while (__atomic_load_n(&open_streams, __ATOMIC_SEQ_CST) > 0) {
        struct epoll_event events[4];
        int count = epoll_wait(set, events, 4, 100);
        CHECK(count >= 0);
        for (int i = 0; i < count; i++)
            serve((int)events[i].data.u64);
    }
    return NULL;
}

static void *client(void *argument)
{
    int fd = *(int *)argument;
    char got[8];
    for (int round = 0; round < ROUNDS; round++) {
        send_all(fd, "message", 7);
        receive_all(fd, got, 7);
    }
    CHECK(shutdown(fd, SHUT_WR) == 0);
    return NULL;
}

int main(void)
{
    int ends[STREAMS][2];
    pthread_t workers[4], clients[STREAMS];
    set = set_of();
    for (int i = 0; i < STREAMS; i++) {
        pair(ends[i]);
        add(set, ends[i][0], EPOLLIN | EPOLLET | EPOLLONESHOT);
    }
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&workers[i], NULL, worker, NULL) == 0);
    for (int i = 0; i < STREAMS; i++)
        CHECK(pthread_create(&clients[i], NULL, client, &ends[i][1]) == 0);
    for (int i = 0; i < STREAMS; i++)
        CHECK(pthread_join(clients[i], NULL) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(workers[i], NULL) == 0);
    CHECK(answered == (size_t)7 * ROUNDS * STREAMS);
    return 0;
}

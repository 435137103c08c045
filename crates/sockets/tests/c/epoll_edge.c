/* Edge-triggered epoll: an edge for each arrival, MOD re-arms, room after a send that found none. */
#include "epoll.h"

static void arrivals(void)
{
    int ends[2], set = set_of();
    pair(ends);
    add(set, ends[0], EPOLLIN | EPOLLET);
    CHECK(event_of(set, ends[0], 0) == 0);
    for (int i = 0; i < 3; i++) {
        send_all(ends[1], "x", 1);
        CHECK(event_of(set, ends[0], 1000) == EPOLLIN);
        CHECK(event_of(set, ends[0], 20) == 0);
    }
    /* Reading a part is no edge; what arrives after it is. */
    expect(ends[0], "x");
    CHECK(event_of(set, ends[0], 20) == 0);
    send_all(ends[1], "y", 1);
    CHECK(event_of(set, ends[0], 1000) == EPOLLIN);
    CHECK(change(set, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLET, (uint64_t)ends[0]) == 0);
    CHECK(event_of(set, ends[0], 1000) == EPOLLIN);
    CHECK(event_of(set, ends[0], 20) == 0);
    expect(ends[0], "xxy");
    CHECK(change(set, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLET, (uint64_t)ends[0]) == 0);
    CHECK(event_of(set, ends[0], 20) == 0);
    CHECK(change(set, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLOUT | EPOLLET, (uint64_t)ends[0]) == 0);
    CHECK(event_of(set, ends[0], 1000) == EPOLLOUT);
    CHECK(event_of(set, ends[0], 20) == 0);
    send_all(ends[1], "z", 1);
    CHECK(event_of(set, ends[0], 1000) == (EPOLLIN | EPOLLOUT));
    CHECK(event_of(set, ends[0], 20) == 0);
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, ends[0], NULL) == 0);
    add(set, ends[0], EPOLLIN | EPOLLET);
    CHECK(event_of(set, ends[0], 1000) == EPOLLIN);
    close(ends[0]);
    close(ends[1]);
    close(set);
}

static void room(void)
{
    int ends[2], set = set_of();
    pair(ends);
    fill(ends[0]);
    add(set, ends[0], EPOLLOUT | EPOLLET);
    CHECK(event_of(set, ends[0], 20) == 0);
    for (int i = 0; i < 3; i++) {
        size_t got = drain(ends[1]);
        CHECK(got > 0);
        CHECK(event_of(set, ends[0], 1000) == EPOLLOUT);
        while (event_of(set, ends[0], 20) != 0)
            ;
        fill(ends[0]);
    }
    close(ends[0]);
    close(ends[1]);
    close(set);
}

/* A sender that waits for an edge after each short or refused send, against one that reads slowly. */
static void *reader(void *argument)
{
    static char block[30000];
    size_t all = 0;
    ssize_t got;
    while ((got = recv(*(int *)argument, block, sizeof block, 0)) > 0)
        all += (size_t)got;
    CHECK(got == 0);
    return (void *)all;
}

static void sender_by_edges(void)
{
    static char block[100000];
    int ends[2], set = set_of();
    size_t left = 200u << 20;
    pthread_t thread;
    void *all;
    pair(ends);
    CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
    add(set, ends[0], EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    CHECK(pthread_create(&thread, NULL, reader, &ends[1]) == 0);
    while (left > 0) {
        CHECK(event_of(set, ends[0], 10000) & EPOLLOUT);
        for (;;) {
            size_t wanted = left < sizeof block ? left : sizeof block;
            ssize_t sent = wanted ? send(ends[0], block, wanted, 0) : -1;
            if (sent > 0)
                left -= (size_t)sent;
            if (sent < (ssize_t)sizeof block)
                break;
        }
    }
    CHECK(shutdown(ends[0], SHUT_WR) == 0);
    CHECK(pthread_join(thread, &all) == 0 && (size_t)all == 200u << 20);
    close(ends[0]);
    close(ends[1]);
    close(set);
}

/* A reader that reads until EAGAIN after each edge loses nothing. */
static void *writer(void *argument)
{
    static char block[7000];
    for (int i = 0; i < 30000; i++) {
        memset(block, i, sizeof block);
        send_all(*(int *)argument, block, (size_t)(1 + i * 7919 % 6999));
    }
    CHECK(shutdown(*(int *)argument, SHUT_WR) == 0);
    return NULL;
}

static void reader_by_edges(void)
{
    static char block[10000];
    int ends[2], set = set_of();
    size_t expected = 0, all = 0;
    pthread_t thread;
    for (int i = 0; i < 30000; i++)
        expected += (size_t)(1 + i * 7919 % 6999);
    pair(ends);
    CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
    add(set, ends[0], EPOLLIN | EPOLLET);
    CHECK(pthread_create(&thread, NULL, writer, &ends[1]) == 0);
    for (ssize_t got = 1; got != 0;) {
        CHECK(event_of(set, ends[0], 10000) & EPOLLIN);
        while ((got = recv(ends[0], block, sizeof block, 0)) > 0)
            all += (size_t)got;
        CHECK(got == 0 || errno == EAGAIN);
    }
    CHECK(pthread_join(thread, NULL) == 0 && all == expected);
    close(ends[0]);
    close(ends[1]);
    close(set);
}

static void ends_of_streams(void)
{
    int ends[2], set = set_of();
    pair(ends);
    add(set, ends[0], EPOLLIN | EPOLLRDHUP | EPOLLET);
    CHECK(shutdown(ends[1], SHUT_WR) == 0);
    CHECK(event_of(set, ends[0], 1000) & EPOLLIN);
    while (event_of(set, ends[0], 20) != 0)
        ;
    CHECK(change(set, EPOLL_CTL_MOD, ends[0], EPOLLRDHUP | EPOLLET, (uint64_t)ends[0]) == 0);
    CHECK(event_of(set, ends[0], 1000) == EPOLLRDHUP);
    CHECK(event_of(set, ends[0], 20) == 0);
    close(ends[0]);
    close(ends[1]);

    pair(ends);
    add(set, ends[0], EPOLLIN | EPOLLET);
    struct linger hard = {.l_onoff = 1};
    CHECK(setsockopt(ends[1], SOL_SOCKET, SO_LINGER, &hard, sizeof hard) == 0);
    close(ends[1]);
    CHECK(event_of(set, ends[0], 1000) & EPOLLHUP);
    while (event_of(set, ends[0], 20) != 0)
        ;
    close(ends[0]);
    close(set);
}

int main(void)
{
    arrivals();
    room();
    sender_by_edges();
    reader_by_edges();
    ends_of_streams();
    return 0;
}

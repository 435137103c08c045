/* SO_RCVLOWAT: a receive that may wait returns no less, and poll, select and epoll tell of no less, unless the end or a limit
 * of time comes before; set on a connection, before it, or on its listener. */
#include "epoll.h"
#include <sys/select.h>

static void low_water(int fd, int bytes)
{
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes) == 0);
}

static int is_readable(int fd, int ms)
{
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    return poll(&poller, 1, ms);
}

struct later {
    int fd;
    const char *text;
};

static void *sends_later(void *argument)
{
    struct later *later = argument;
    usleep(60000);
    send_all(later->fd, later->text, strlen(later->text));
    return NULL;
}

static pthread_t after(struct later *later)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, sends_later, later) == 0);
    return thread;
}

static void receives(int near, int far)
{
    char text[32] = "";
    struct later later = {far, "5678"};
    low_water(near, 6);
    send_all(far, "1234", 4);
    usleep(5000);
    CHECK(recv(near, text, 2, 0) == 2 && recv(near, text + 2, 8, MSG_DONTWAIT) == 2);
    send_all(far, "1234", 4);
    pthread_t thread = after(&later);
    CHECK(recv(near, text, sizeof text, MSG_PEEK) == 8);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(recv(near, text, sizeof text, 0) == 8 && memcmp(text, "12345678", 8) == 0);
    send_all(far, "1234", 4);
    /* Linux wakes a receiver that has taken some bytes for as many as the mark says, not for what it lacks. */
    thread = after(&(struct later){far, "56789a"});
    struct iovec parts[2] = {{text, 3}, {text + 3, 20}};
    CHECK(readv(near, parts, 2) == 10 && memcmp(text, "123456789a", 10) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    struct timeval limit = {.tv_usec = 100000}, none = {0};
    CHECK(setsockopt(near, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    send_all(far, "1234", 4);
    CHECK(recv(near, text, sizeof text, 0) == 4);
    CHECK(setsockopt(near, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none) == 0);
    low_water(near, 1);
}

static void waits(int near, int far)
{
    struct epoll_event event = {.events = EPOLLIN}, edge = {.events = EPOLLIN | EPOLLET};
    int level_set = epoll_create1(0), edge_set = epoll_create1(0), low = 10;
    char text[32];
    fd_set set;
    struct timeval no_time = {0};
    struct later later = {far, "56789"};
    low_water(near, low);
    CHECK(epoll_ctl(level_set, EPOLL_CTL_ADD, near, &event) == 0 && epoll_ctl(edge_set, EPOLL_CTL_ADD, near, &edge) == 0);
    send_all(far, "01234", 5);
    CHECK(is_readable(near, 30) == 0);
    CHECK(epoll_wait(level_set, &event, 1, 30) == 0 && epoll_wait(edge_set, &event, 1, 30) == 0);
    FD_ZERO(&set);
    FD_SET(near, &set);
    CHECK(select(near + 1, &set, NULL, NULL, &no_time) == 0);
    pthread_t thread = after(&later);
    CHECK(is_readable(near, 5000) == 1);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(epoll_wait(level_set, &event, 1, 0) == 1 && epoll_wait(edge_set, &event, 1, 0) == 1);
    CHECK(epoll_wait(level_set, &event, 1, 0) == 1 && epoll_wait(edge_set, &event, 1, 0) == 0);
    CHECK(recv(near, text, 4, 0) == 4);
    CHECK(is_readable(near, 0) == 0 && epoll_wait(level_set, &event, 1, 0) == 0);
    thread = after(&(struct later){far, "abcdefgh"});
    CHECK(epoll_wait(level_set, &event, 1, 5000) == 1);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(epoll_wait(edge_set, &event, 1, 0) == 1);
    CHECK(recv(near, text, sizeof text, 0) == 14);
    send_all(far, "rest", 4);
    CHECK(is_readable(near, 30) == 0);
    low_water(near, 4);
    CHECK(is_readable(near, 0) == 1);
    expect(near, "rest");
    close(level_set), close(edge_set);
}

/* The end is told, however little is there. */
static void ends(int near, int far)
{
    char text[32];
    low_water(near, 1000);
    send_all(far, "little", 6);
    CHECK(is_readable(near, 30) == 0);
    CHECK(shutdown(far, SHUT_WR) == 0);
    CHECK(is_readable(near, 5000) == 1);
    CHECK(recv(near, text, sizeof text, 0) == 6 && recv(near, text, sizeof text, 0) == 0);
}

/* As much as that may take more than a buffer has at first, of messages of one byte each. */
static void much(int near, int far)
{
    enum { MUCH = 40000 };
    static char bytes[2 * MUCH];
    low_water(near, MUCH);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int on = 1;
        setsockopt(far, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        for (int i = 0; i < MUCH; i++)
            send_all(far, "x", 1);
        _exit(0);
    }
    for (int done = 0; done < MUCH;) {
        CHECK(is_readable(near, 20000) == 1);
        ssize_t got = recv(near, bytes, sizeof bytes, MSG_DONTWAIT);
        CHECK(got > 0);
        done += (int)got;
        low_water(near, done < MUCH ? MUCH - done : 1);
    }
    reap(child);
}

int main(void)
{
    struct sockaddr_in at;
    int pairs[2];
    pair(pairs);
    for (int i = 0; i < 2; i++) {
        receives(pairs[i], pairs[!i]);
        waits(pairs[i], pairs[!i]);
    }
    much(pairs[0], pairs[1]);
    ends(pairs[0], pairs[1]);
    int server = listener(&at), client = socket(AF_INET, SOCK_STREAM, 0);
    low_water(server, 5), low_water(client, 7);
    CHECK(connect(client, (struct sockaddr *)&at, sizeof at) == 0);
    int peer = accept(server, NULL, NULL);
    send_all(client, "1234", 4), send_all(peer, "123456", 6);
    CHECK(is_readable(peer, 20) == 0 && is_readable(client, 20) == 0);
    send_all(client, "5", 1), send_all(peer, "7", 1);
    CHECK(is_readable(peer, 5000) == 1 && is_readable(client, 5000) == 1);
    return 0;
}

/* Ends its daemon. When the daemon of this host is killed, whoever sleeps on a stream learns of it at once, whatever call
 * it sleeps in: in threads, and in a child by fork. On TCP the far ends reset the connections instead. New connections
 * work. */
#include "epoll.h"
#include <sys/select.h>

enum way {
    RECV,
    SEND,
    POLL,
    POLL_ROOM,
    POLL_MANY,
    PPOLL,
    SELECT,
    PSELECT,
    EPOLL,
    EPOLL_EDGE,
    EPOLL_PWAIT,
    EPOLL_SHARED,
    EPOLL_IN_POLL,
    WAYS
};

struct sleeper {
    enum way way;
    int ends[2];
    pthread_t thread;
};

/* Two threads sleep in this one set. */
static int shared_set;

static void sleep_in_epoll(int fd, uint32_t events, int as_pwait)
{
    struct epoll_event event;
    int set = set_of();
    sigset_t mask;
    sigemptyset(&mask);
    CHECK(change(set, EPOLL_CTL_ADD, fd, events, 7) == 0);
    CHECK((as_pwait ? epoll_pwait(set, &event, 1, -1, &mask) : epoll_wait(set, &event, 1, -1)) == 1);
    CHECK(event.data.u64 == 7 && event.events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP));
    CHECK(close(set) == 0);
}

static void sleep_until_news(enum way way, int fd)
{
    struct pollfd one = {.fd = fd, .events = way == POLL_ROOM ? POLLOUT : POLLIN};
    struct epoll_event event;
    char byte[65536];
    fd_set set;
    sigset_t mask;
    sigemptyset(&mask);
    FD_ZERO(&set);
    FD_SET(fd, &set);
    switch (way) {
    case RECV:
        CHECK(recv(fd, byte, 1, 0) <= 0);
        return;
    case SEND:
        while (send(fd, byte, sizeof byte, MSG_NOSIGNAL) > 0)
            ;
        return;
    case POLL_ROOM:
        fill(fd);
        /* fall through */
    case POLL:
        CHECK(poll(&one, 1, -1) == 1);
        break;
    case POLL_MANY: {
        struct pollfd many[100];
        for (int i = 0; i < 100; i++)
            many[i] = (struct pollfd){.fd = -1};
        many[57] = one;
        CHECK(poll(many, 100, 60000) == 1 && many[57].revents != 0);
        break;
    }
    case PPOLL:
        CHECK(ppoll(&one, 1, NULL, &mask) == 1);
        break;
    case SELECT:
        CHECK(select(fd + 1, &set, NULL, NULL, NULL) == 1 && FD_ISSET(fd, &set));
        break;
    case PSELECT:
        CHECK(pselect(fd + 1, &set, NULL, NULL, NULL, &mask) == 1 && FD_ISSET(fd, &set));
        break;
    case EPOLL:
        sleep_in_epoll(fd, EPOLLIN, 0);
        break;
    case EPOLL_EDGE:
        sleep_in_epoll(fd, EPOLLIN | EPOLLET | EPOLLRDHUP, 0);
        break;
    case EPOLL_PWAIT:
        sleep_in_epoll(fd, EPOLLIN, 1);
        break;
    case EPOLL_SHARED:
        CHECK(epoll_wait(shared_set, &event, 1, -1) == 1);
        break;
    case EPOLL_IN_POLL:
        one.fd = set_of();
        CHECK(change(one.fd, EPOLL_CTL_ADD, fd, EPOLLIN, 7) == 0);
        CHECK(poll(&one, 1, -1) == 1);
        CHECK(close(one.fd) == 0);
        break;
    case WAYS:
        break;
    }
    /* As the far end or TCP would tell. */
    ssize_t outcome = way == POLL_ROOM ? send(fd, byte, 1, MSG_NOSIGNAL) : recv(fd, byte, 1, 0);
    CHECK(outcome == 0 || (outcome == -1 && (errno == ECONNRESET || errno == EPIPE)));
}

static void *sleeps(void *argument)
{
    struct sleeper *sleeper = argument;
    sleep_until_news(sleeper->way, sleeper->ends[0]);
    return NULL;
}

static void begin(struct sleeper *sleepers)
{
    for (int way = 0; way < WAYS; way++) {
        sleepers[way].way = (enum way)way;
        pair(sleepers[way].ends);
        send_all(sleepers[way].ends[1], "x", 1);
        expect(sleepers[way].ends[0], "x");
    }
    shared_set = set_of();
    CHECK(change(shared_set, EPOLL_CTL_ADD, sleepers[EPOLL_SHARED].ends[0], EPOLLIN, 1) == 0);
    for (int way = 0; way < WAYS; way++)
        CHECK(pthread_create(&sleepers[way].thread, NULL, sleeps, &sleepers[way]) == 0);
}

static void end(struct sleeper *sleepers, const struct timespec *until)
{
    for (int way = 0; way < WAYS; way++) {
        if (pthread_timedjoin_np(sleepers[way].thread, NULL, until) != 0) {
            fprintf(stderr, "%d: way %d still sleeps\n", getpid(), way);
            _exit(1);
        }
    }
}

static void reset(struct sleeper *sleepers)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    for (int way = 0; way < WAYS; way++) {
        CHECK(setsockopt(sleepers[way].ends[1], SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
        CHECK(close(sleepers[way].ends[1]) == 0);
    }
}

/* A child that has streams by fork, and was asleep already. */
static pid_t child_that_sleeps(int ends[2], enum way way)
{
    pair(ends);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(close(ends[1]) == 0);
        alarm(20);
        sleep_until_news(way, ends[0]);
        _exit(0);
    }
    return child;
}

int main(void)
{
    const char *daemon = getenv("QUIRK_DAEMON");
    static const enum way in_child[] = {RECV, POLL, SELECT, EPOLL};
    struct sleeper sleepers[WAYS];
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    struct timespec until;
    int children[4][2], ends[2];
    pid_t pids[4];
    for (int i = 0; i < 4; i++)
        pids[i] = child_that_sleeps(children[i], in_child[i]);
    begin(sleepers);
    usleep(400000);
    if (daemon) {
        CHECK(kill(atoi(daemon), SIGKILL) == 0);
    } else {
        reset(sleepers);
        for (int i = 0; i < 4; i++) {
            CHECK(setsockopt(children[i][1], SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
            CHECK(close(children[i][1]) == 0);
        }
    }
    CHECK(clock_gettime(CLOCK_REALTIME, &until) == 0);
    until.tv_sec += 8;
    end(sleepers, &until);
    for (int i = 0; i < 4; i++)
        reap(pids[i]);
    pair(ends);
    send_all(ends[0], "by TCP", 6);
    expect(ends[1], "by TCP");
    return 0;
}

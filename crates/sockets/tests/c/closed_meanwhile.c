/* A descriptor is closed, or another one is put over it, while a call of another thread waits on it: the call goes on until
 * it has what it waits for, and only then the far side sees the end. */
#include "epoll.h"
#include <sys/select.h>

enum call { RECV, RECV_ALL, RECV_LATE, SEND, POLL, SELECT, CALLS };
enum way { CLOSED, REPLACED, COPIED, FORKED, WAYS };

struct blocked {
    int fd;
    enum call call;
    volatile pid_t tid;
    long outcome;
    int error;
    short revents;
};

enum { MUCH = 32 << 20 };
static char much[MUCH];

static void *block(void *argument)
{
    struct blocked *own = argument;
    struct pollfd poller = {.fd = own->fd, .events = POLLIN};
    char bytes[4];
    fd_set set;
    FD_ZERO(&set);
    FD_SET(own->fd, &set);
    own->tid = gettid();
    switch (own->call) {
    case RECV:
    case RECV_LATE:
        own->outcome = recv(own->fd, bytes, sizeof bytes, 0);
        break;
    case RECV_ALL:
        own->outcome = recv(own->fd, bytes, sizeof bytes, MSG_WAITALL);
        break;
    case SEND:
        own->outcome = send(own->fd, much, MUCH, MSG_NOSIGNAL);
        break;
    case POLL:
        own->outcome = poll(&poller, 1, -1);
        break;
    default:
        own->outcome = select(own->fd + 1, &set, NULL, NULL, NULL);
    }
    own->error = errno;
    own->revents = poller.revents;
    return NULL;
}

static int sees_the_end(int far)
{
    struct pollfd poller = {.fd = far, .events = POLLRDHUP};
    return poll(&poller, 1, 50);
}

static void closed(enum call call, enum way way)
{
    int ends[2], copy = -1;
    struct timeval limit = {.tv_usec = 400000};
    pthread_t thread;
    pair(ends);
    struct blocked blocked = {.fd = ends[0], .call = call};
    if (call == RECV_LATE)
        CHECK(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    if (way == COPIED)
        copy = dup(ends[0]);
    CHECK(pthread_create(&thread, NULL, block, &blocked) == 0);
    await_sleep(&blocked.tid);
    pid_t child = way == FORKED ? fork() : 0;
    if (way == FORKED && child == 0) {
        /* Nothing is blocked here: the child that lives on keeps nothing open. */
        CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
        alarm(30);
        pause();
        _exit(0);
    }
    if (way == REPLACED) {
        int null = open("/dev/null", O_RDWR);
        CHECK(dup2(null, ends[0]) == ends[0] && close(null) == 0);
    } else {
        CHECK(close(ends[0]) == 0);
    }
    CHECK(sees_the_end(ends[1]) == 0);
    if (call == SEND) {
        receive_all(ends[1], much, MUCH);
    } else if (call != RECV_LATE) {
        send_all(ends[1], "abcd", 2);
        if (call == RECV_ALL)
            send_all(ends[1], "cd", 2);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    if (call == RECV_LATE) {
        CHECK(blocked.outcome == -1 && blocked.error == EAGAIN);
    } else if (call == SEND) {
        CHECK(blocked.outcome == MUCH);
    } else {
        CHECK(blocked.outcome == (call == RECV ? 2 : call == RECV_ALL ? 4 : 1));
        CHECK(call != POLL || way == REPLACED || blocked.revents == POLLNVAL);
    }
    if (copy >= 0) {
        CHECK(sees_the_end(ends[1]) == 0);
        close(copy);
    }
    CHECK(sees_the_end(ends[1]) == 1);
    if (way == FORKED) {
        CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    }
    if (way == REPLACED)
        close(ends[0]);
    close(ends[1]);
}

/* The far side's end comes to the call as well. */
static void end_comes(void)
{
    int ends[2];
    pthread_t thread;
    pair(ends);
    struct blocked blocked = {.fd = ends[0], .call = RECV};
    CHECK(pthread_create(&thread, NULL, block, &blocked) == 0);
    await_sleep(&blocked.tid);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
    CHECK(pthread_join(thread, NULL) == 0 && blocked.outcome == 0);
}

static void *waits_in_set(void *argument)
{
    struct blocked *own = argument;
    struct epoll_event event;
    own->tid = gettid();
    own->outcome = epoll_wait(own->fd, &event, 1, 10000);
    own->error = errno;
    return NULL;
}

/* A set is closed, or something is put over it, while a thread sleeps in it. */
static void set_closed(int replaced)
{
    int ends[2], set = set_of();
    pthread_t thread;
    pair(ends);
    CHECK(change(set, EPOLL_CTL_ADD, ends[0], EPOLLIN, 1) == 0);
    struct blocked blocked = {.fd = set};
    CHECK(pthread_create(&thread, NULL, waits_in_set, &blocked) == 0);
    await_sleep(&blocked.tid);
    if (replaced) {
        int null = open("/dev/null", O_RDWR);
        CHECK(dup2(null, set) == set && close(null) == 0);
    } else {
        CHECK(close(set) == 0);
    }
    /* Another set does not come into its place. */
    int other = set_of();
    CHECK(change(other, EPOLL_CTL_ADD, ends[1], EPOLLIN, 2) == 0);
    usleep(20000);
    int64_t start = now_ms();
    send_all(ends[1], "x", 1);
    CHECK(pthread_join(thread, NULL) == 0 && blocked.outcome == 1 && now_ms() - start < 5000);
    close(ends[0]), close(ends[1]), close(other);
    if (replaced)
        close(set);
}

struct other {
    int fd;
    volatile pid_t tid;
    long outcome;
    const struct sockaddr_in *at;
};

static void *accepts(void *argument)
{
    struct other *own = argument;
    own->tid = gettid();
    own->outcome = accept(own->fd, NULL, NULL);
    return NULL;
}

/* A listener takes one connection more. */
static void listener_closed(void)
{
    struct sockaddr_in at;
    pthread_t thread;
    struct other own = {.fd = listener(&at)};
    CHECK(pthread_create(&thread, NULL, accepts, &own) == 0);
    await_sleep(&own.tid);
    CHECK(close(own.fd) == 0);
    int client = dial(&at);
    CHECK(pthread_join(thread, NULL) == 0 && own.outcome >= 0);
    send_all(client, "hello", 5);
    expect((int)own.outcome, "hello");
    close(client), close((int)own.outcome);
}

static void *connects(void *argument)
{
    struct other *own = argument;
    own->tid = gettid();
    own->outcome = connect(own->fd, (const struct sockaddr *)own->at, sizeof *own->at);
    return NULL;
}

/* A connect waits for a place in the listener's queue; its number is another socket's when it gets one. */
static void connecting_closed(void)
{
    struct sockaddr_in at, elsewhere;
    pthread_t thread;
    char byte;
    int server = listener(&at), waiting[2], peers[3];
    CHECK(listen(server, 0) == 0);
    waiting[0] = dial(&at);
    struct other own = {.fd = socket(AF_INET, SOCK_STREAM, 0), .at = &at};
    CHECK(pthread_create(&thread, NULL, connects, &own) == 0);
    await_sleep(&own.tid);
    int second = listener(&elsewhere);
    CHECK(close(own.fd) == 0);
    CHECK(socket(AF_INET, SOCK_STREAM, 0) == own.fd);
    for (int i = 0; i < 2; i++)
        CHECK((peers[i] = accept(server, NULL, NULL)) >= 0);
    CHECK(pthread_join(thread, NULL) == 0 && own.outcome == 0);
    CHECK(recv(peers[1], &byte, 1, 0) == 0);
    CHECK(connect(own.fd, (struct sockaddr *)&elsewhere, sizeof elsewhere) == 0);
    CHECK((peers[2] = accept(second, NULL, NULL)) >= 0);
    send_all(own.fd, "new", 3);
    expect(peers[2], "new");
    for (int i = 0; i < 3; i++)
        close(peers[i]);
    close(own.fd), close(server), close(second), close(waiting[0]);
}

int main(void)
{
    for (enum call call = RECV; call < CALLS; call++)
        for (enum way way = CLOSED; way < WAYS; way++)
            closed(call, way);
    end_comes();
    set_closed(0);
    set_closed(1);
    listener_closed();
    connecting_closed();
    return 0;
}

/* A daemon that does not run for a while (QUIRK_DAEMON is stopped here) holds nobody up for long and loses nothing: streams
 * go on, connections are made by TCP, at once if they must not wait; and a connection that was announced before but
 * cannot be had as a stream fails at both ends, in bounded time. Not on posted stores. */
#include "quirk.h"

static pid_t daemon_pid;

static void stop(void)
{
    if (daemon_pid != 0)
        CHECK(kill(daemon_pid, SIGSTOP) == 0);
}

static void go_on(void)
{
    if (daemon_pid != 0)
        CHECK(kill(daemon_pid, SIGCONT) == 0);
}

static void patient(int fd)
{
    struct timeval time = {.tv_sec = 10};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0);
}

static void *echoes(void *argument)
{
    int fd = *(int *)argument;
    char byte;
    while (recv(fd, &byte, 1, 0) == 1)
        send_all(fd, &byte, 1);
    return NULL;
}

static void ping(int fd, int times)
{
    for (int i = 0; i < times; i++) {
        send_all(fd, "x", 1);
        expect(fd, "x");
        /* Both ends fall asleep. */
        if (i % 2 == 0)
            usleep(2000);
    }
}

static void at_once(const struct sockaddr_in *at, int listening)
{
    for (int i = 0; i < 3; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), error = -1;
        socklen_t len = sizeof error;
        int64_t start = now_ms();
        int outcome = connect(fd, (const struct sockaddr *)at, sizeof *at);
        CHECK(outcome == 0 || errno == EINPROGRESS);
        CHECK(now_ms() - start < 700);
        ready(fd, POLLOUT);
        CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0);
        send_all(fd, "hello", 5);
        int to = accept(listening, NULL, NULL);
        patient(to);
        expect(to, "hello");
        CHECK(close(fd) == 0 && close(to) == 0);
    }
}

int main(void)
{
    struct sockaddr_in at;
    int listening = listener(&at), ends[2];
    const char *given = getenv("QUIRK_DAEMON");
    pthread_t echo;
    char text[8];
    daemon_pid = given ? atoi(given) : 0;
    pair(ends);
    patient(ends[0]);
    CHECK(pthread_create(&echo, NULL, echoes, &ends[1]) == 0);
    ping(ends[0], 50);

    int early = dial(&at);
    patient(early);
    send_all(early, "early", 5);
    stop();
    ping(ends[0], 50);
    int64_t start = now_ms();
    int late = accept(listening, NULL, NULL);
    CHECK(late >= 0);
    CHECK(now_ms() - start < 8000);
    patient(late);
    ssize_t got = recv(late, text, sizeof text, 0);
    if (got == 5) {
        CHECK(memcmp(text, "early", 5) == 0);
        send_all(late, "answer", 6);
        expect(early, "answer");
    } else {
        CHECK(got == -1 && errno == ECONNRESET);
        FAILS(recv(early, text, sizeof text, 0), ECONNRESET);
    }
    CHECK(close(late) == 0 && close(early) == 0);

    at_once(&at, listening);
    int waiting = dial(&at), accepted;
    send_all(waiting, "hello", 5);
    CHECK((accepted = accept(listening, NULL, NULL)) >= 0);
    patient(accepted);
    expect(accepted, "hello");
    CHECK(close(waiting) == 0 && close(accepted) == 0);
    ping(ends[0], 50);
    go_on();

    /* The streams are the daemon's as before, and there are new ones. */
    ping(ends[0], 50);
    waiting = dial(&at);
    accepted = accept(listening, NULL, NULL);
    patient(accepted);
    send_all(waiting, "hello", 5);
    expect(accepted, "hello");
    CHECK(shutdown(ends[0], SHUT_WR) == 0);
    CHECK(pthread_join(echo, NULL) == 0);
    return 0;
}

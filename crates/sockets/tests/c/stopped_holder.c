// Two processes share a connection, and the one that reads is stopped or killed in the middle of it: the other one's calls
// end by their own time, and once the first is dead, it gets the rest.
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BIG = 64 << 20, ROUNDS = 30 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void pair(int *a, int *b) {
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof at;
    const char *address = getenv("QUIRK_ADDRESS");
    inet_pton(AF_INET, address ? address : "127.0.0.1", &at.sin_addr);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert(bind(listener, (void *)&at, len) == 0 && listen(listener, 5) == 0);
    assert(getsockname(listener, (void *)&at, &len) == 0);
    *a = socket(AF_INET, SOCK_STREAM, 0);
    assert(connect(*a, (void *)&at, len) == 0);
    *b = accept(listener, NULL, NULL);
    assert(*b >= 0);
    close(listener);
}

static void on_alarm(int number) { (void)number; }

// The writer never stops; the reader, a child, reads without end, so that it is somewhere in a receive when it is stopped.
static pid_t writer(int fd) {
    pid_t pid = fork();
    if (pid == 0) {
        char *bytes = calloc(1, 1 << 20);
        for (;;) {
            if (send(fd, bytes, 1 << 20, MSG_NOSIGNAL) < 0) _exit(0);
        }
    }
    return pid;
}

static pid_t reader(int fd) {
    pid_t pid = fork();
    if (pid == 0) {
        char *bytes = malloc(4 << 20);
        for (;;) {
            if (recv(fd, bytes, 4 << 20, 0) <= 0) _exit(0);
        }
    }
    return pid;
}

int main(void) {
    alarm(45);
    int a, b;
    pair(&a, &b);
    char *bytes = malloc(1 << 20);
    pid_t source = writer(a);
    for (int round = 0; round < ROUNDS; round++) {
        pid_t child = reader(b);
        usleep(3000 + round * 700);
        kill(child, SIGSTOP);
        int status;
        assert(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
        // A call that must not wait.
        double begun = now();
        ssize_t got = recv(b, bytes, 1 << 20, MSG_DONTWAIT);
        assert(got > 0 || errno == EAGAIN);
        assert(now() - begun < 5);
        // One that waits for so long.
        struct timeval limit = {.tv_usec = 50000};
        assert(setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
        begun = now();
        got = recv(b, bytes, 1 << 20, 0);
        assert(got > 0 || errno == EAGAIN);
        assert(now() - begun < 5);
        limit.tv_usec = 0;
        assert(setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
        begun = now();
        struct pollfd ready = {.fd = b, .events = POLLIN};
        assert(poll(&ready, 1, 50) >= 0 && now() - begun < 5);
        // One that a signal ends.
        struct sigaction action = {.sa_handler = on_alarm};
        assert(sigaction(SIGUSR1, &action, NULL) == 0);
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
        timer_t timer;
        assert(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
        struct itimerspec soon = {.it_value = {.tv_nsec = 60000000}, .it_interval = {.tv_nsec = 60000000}};
        assert(timer_settime(timer, 0, &soon, NULL) == 0);
        begun = now();
        got = recv(b, bytes, 1 << 20, 0);
        assert(got > 0 || errno == EINTR);
        assert(now() - begun < 5);
        timer_delete(timer);
        // Killed, and not waited for: the rest is ours.
        kill(child, SIGKILL);
        begun = now();
        got = recv(b, bytes, 1 << 20, 0);
        assert(got > 0 || errno == EINTR);
        got = recv(b, bytes, 1 << 20, 0);
        assert(got > 0);
        assert(now() - begun < 5);
        assert(waitpid(child, &status, 0) == child);
    }
    kill(source, SIGKILL);
    waitpid(source, NULL, 0);
    puts("ok");
    return 0;
}

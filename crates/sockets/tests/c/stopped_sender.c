// Two processes share a connection, and the one that sends is stopped in the middle of it. The other one ends the direction:
// the far side hears of that when the first goes on or is killed, at the latest, and what it answers arrives.
#include "quirk.h"

enum { ROUNDS = 24, BLOCK = 1 << 20 };

// Sends until the direction ends.
static pid_t sender(int fd)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        char *bytes = calloc(1, BLOCK);
        while (send(fd, bytes, BLOCK, MSG_NOSIGNAL) >= 0) {
        }
        _exit(errno == EPIPE ? 0 : 2);
    }
    return pid;
}

// Reads to the end, and answers.
static pid_t answerer(int fd)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        char *bytes = malloc(BLOCK);
        ssize_t got;
        while ((got = recv(fd, bytes, BLOCK, 0)) > 0) {
        }
        CHECK(got == 0);
        CHECK(send(fd, "answer", 6, MSG_NOSIGNAL) == 6);
        _exit(0);
    }
    return pid;
}

static void finished(pid_t pid)
{
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    struct sockaddr_in at;
    int listening = listener(&at);
    for (int round = 0; round < ROUNDS; round++) {
        int near = dial(&at), far = accept(listening, NULL, NULL);
        CHECK(far >= 0);
        pid_t far_process = answerer(far);
        CHECK(close(far) == 0);
        pid_t child = sender(near);
        usleep(2000 + (useconds_t)round * 700);
        CHECK(kill(child, SIGSTOP) == 0);
        int status;
        CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
        CHECK(shutdown(near, SHUT_WR) == 0);
        FAILS(send(near, "more", 4, MSG_NOSIGNAL), EPIPE);
        CHECK(kill(child, round % 2 ? SIGKILL : SIGCONT) == 0);
        // Nobody makes a call on the connection until the answer is there.
        finished(far_process);
        char answer[6];
        CHECK(recv(near, answer, sizeof answer, MSG_WAITALL) == 6 && memcmp(answer, "answer", 6) == 0);
        if (round % 2) {
            CHECK(waitpid(child, &status, 0) == child);
        } else {
            finished(child);
        }
        CHECK(close(near) == 0);
    }
    return 0;
}

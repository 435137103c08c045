/* A fork by whatever name: both processes hold the stream, and it ends with the last of them. */
#include "quirk.h"
#include <sched.h>
#include <sys/syscall.h>

static char stack[1 << 20] __attribute__((aligned(16)));

/* The child answers after the parent has closed its descriptors. */
static void child_answers(int ends[2], int go)
{
    char word;
    CHECK(close(ends[0]) == 0);
    CHECK(read(go, &word, 1) == 1);
    expect(ends[1], "question");
    send_all(ends[1], "answer", 6);
    _exit(0);
}

struct begin {
    int *ends, go;
};

static int begun(void *argument)
{
    struct begin *begin = argument;
    child_answers(begin->ends, begin->go);
    return 1;
}

static pid_t raw_clone(void) { return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL); }

#ifdef SYS_fork
static pid_t raw_fork(void) { return (pid_t)syscall(SYS_fork); }
#else
#define raw_fork raw_clone
#endif

static void parent_asks(pid_t child, int ends[2], int go)
{
    CHECK(child > 0);
    CHECK(close(ends[1]) == 0);
    send_all(ends[0], "question", 8);
    CHECK(write(go, "g", 1) == 1);
    expect(ends[0], "answer");
    reap(child);
    char rest;
    CHECK(recv(ends[0], &rest, 1, 0) == 0);
    CHECK(close(ends[0]) == 0);
}

int main(void)
{
    pid_t (*ways[])(void) = {fork, _Fork, raw_fork, raw_clone};
    for (size_t way = 0; way <= sizeof ways / sizeof *ways; way++) {
        int ends[2], go[2];
        pair(ends);
        CHECK(pipe(go) == 0);
        pid_t child;
        if (way < sizeof ways / sizeof *ways) {
            child = ways[way]();
            if (child == 0)
                child_answers(ends, go[0]);
        } else {
            struct begin begin = {ends, go[0]};
            child = clone(begun, stack + sizeof stack, SIGCHLD, &begin);
        }
        parent_asks(child, ends, go[1]);
        CHECK(close(go[0]) == 0 && close(go[1]) == 0);
    }
    return 0;
}

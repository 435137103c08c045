/* A program of another C library (musl), whose loader cannot load what was built for glibc, starts all the same as a child of one
 * that has streams: with the environment as it is, with one of its own, with none, and by posix_spawn. Needs musl-gcc. */
#include "quirk.h"
#include <spawn.h>

extern char **environ;

/* Into the folder of this program, which is the test's own and goes with it. */
static void build(const char *self, char *program)
{
    char source[300], command[800];
    FILE *file;
    CHECK(snprintf(source, sizeof source, "%s-hello.c", self) < (int)sizeof source);
    CHECK(snprintf(program, sizeof source, "%s-hello", self) < (int)sizeof source);
    file = fopen(source, "w");
    CHECK(file != NULL);
    fputs("int main(void) { return 42; }\n", file);
    CHECK(fclose(file) == 0);
    snprintf(command, sizeof command, "musl-gcc -o %s %s", program, source);
    if (system("command -v musl-gcc >/dev/null") != 0)
        exit(SKIPPED);
    CHECK(system(command) == 0);
}

static void ends_with_42(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 42) {
        fprintf(stderr, "ended with status %#x\n", status);
        _exit(1);
    }
}

static void runs(char *program, char **environment)
{
    char *arguments[] = {program, NULL};
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        execve(program, arguments, environment);
        _exit(1);
    }
    ends_with_42(child);
    CHECK(posix_spawn(&child, program, NULL, NULL, arguments, environment) == 0);
    ends_with_42(child);
}

int main(int count, char **arguments)
{
    char program[300], *own[] = {"PATH=/bin", NULL}, *none[] = {NULL};
    int ends[2];
    CHECK(count > 0);
    build(arguments[0], program);
    pair(ends);
    send_all(ends[0], "before", 6);
    runs(program, environ);
    runs(program, own);
    runs(program, none);
    expect(ends[1], "before");
    return 0;
}

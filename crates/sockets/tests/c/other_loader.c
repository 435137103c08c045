/* A program of another C library (musl), whose loader cannot load what was built for glibc, starts all the same as a child of one
 * that has streams: with the environment as it is, with one of its own, with none, and by posix_spawn. Needs musl-gcc. */
#include "quirk.h"
#include <spawn.h>

extern char **environ;

static void build(const char *folder, char *program)
{
    char source[300], command[800];
    FILE *file;
    snprintf(source, sizeof source, "%s/hello.c", folder);
    snprintf(program, 300, "%s/hello", folder);
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

int main(void)
{
    char folder[] = "/tmp/crosslane-quirk.XXXXXX", program[300], command[400];
    char *own[] = {"PATH=/bin", NULL}, *none[] = {NULL};
    int ends[2];
    CHECK(mkdtemp(folder) != NULL);
    build(folder, program);
    pair(ends);
    send_all(ends[0], "before", 6);
    runs(program, environ);
    runs(program, own);
    runs(program, none);
    expect(ends[1], "before");
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
    return 0;
}

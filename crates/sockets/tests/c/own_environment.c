/* A program that is executed with an environment of its own, or none, goes on with the connection that it inherits, and sees the
 * environment that it was given. */
#include "quirk.h"
#include <spawn.h>

extern char **environ;
enum { HERE = 7 };

/* What it sees is what stands in its arguments. */
static int executed(int count, char **arguments)
{
    int seen = 0;
    for (char **entry = environ; *entry; entry++)
        seen++;
    if (seen != count)
        for (char **entry = environ; *entry; entry++)
            fprintf(stderr, "sees %s\n", *entry);
    CHECK(seen == count);
    for (int i = 0; i < count; i++)
        CHECK(strcmp(environ[i], arguments[i]) == 0);
    expect(HERE, "before exec;");
    send_all(HERE, "hello", 5);
    expect(HERE, "more");
    return 0;
}

enum way { EXECVE, SPAWN, ENV_I, TWICE };

static void run(const char *self, enum way way, char **environment)
{
    int ends[2], count = 0;
    char *arguments[8] = {(char *)self, "executed"};
    while (environment[count]) {
        arguments[2 + count] = environment[count];
        count++;
    }
    pair(ends);
    send_all(ends[0], "gone;before exec;", 17);
    expect(ends[1], "gone;");
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(dup2(ends[1], HERE) == HERE);
        close(ends[0]);
        close(ends[1]);
        if (way == ENV_I)
            execl("/usr/bin/env", "env", "-i", self, "executed", (char *)NULL);
        if (way == TWICE) {
            char *again[] = {(char *)self, "again", NULL};
            execve(self, again, environment);
        }
        if (way == SPAWN) {
            pid_t pid;
            CHECK(posix_spawn(&pid, self, NULL, NULL, arguments, environment) == 0);
            reap(pid);
            _exit(0);
        }
        execve(self, arguments, environment);
        _exit(127);
    }
    CHECK(close(ends[1]) == 0);
    expect(ends[0], "hello");
    send_all(ends[0], "more", 4);
    reap(child);
    char byte;
    CHECK(recv(ends[0], &byte, 1, 0) == 0);
    CHECK(close(ends[0]) == 0);
}

int main(int count, char **arguments)
{
    if (count > 1 && strcmp(arguments[1], "executed") == 0)
        return executed(count - 2, arguments + 2);
    if (count > 1 && strcmp(arguments[1], "again") == 0) {
        char *once_more[] = {arguments[0], "executed", NULL};
        CHECK(environ[0] == NULL);
        execv(arguments[0], once_more);
        _exit(127);
    }
    char *none[] = {NULL}, *some[] = {"PATH=/bin", "A=b", NULL};
    char *preload[] = {"A=b", "LD_PRELOAD=", "C=d", NULL};
    char self[256];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    CHECK(len > 0);
    self[len] = '\0';
    run(self, EXECVE, none);
    run(self, EXECVE, some);
    run(self, EXECVE, preload);
    run(self, SPAWN, none);
    run(self, SPAWN, preload);
    run(self, ENV_I, none);
    run(self, TWICE, none);
    return 0;
}

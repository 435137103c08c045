/* A connected socket with unread bytes is inherited over exec, as standard input and as descriptor 7. */
#include "quirk.h"

static void inherited(int fd)
{
    char text[64];
    expect(fd, "unread before exec;");
    CHECK(snprintf(text, sizeof text, "hello from %d;", fd) > 0);
    send_all(fd, text, strlen(text));
    expect(fd, "more");
    exit(0);
}

static void run(const char *self, int as, int keep_in_parent)
{
    int ends[2];
    char text[64], byte;
    pair(ends);
    send_all(ends[0], "gone;unread before exec;", 24);
    expect(ends[1], "gone;");
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(snprintf(text, sizeof text, "%d", as) > 0);
        CHECK(dup2(ends[1], as) == as);
        if (as != ends[0])
            close(ends[0]);
        if (as != ends[1])
            close(ends[1]);
        execl(self, self, text, (char *)NULL);
        _exit(127);
    }
    if (!keep_in_parent)
        CHECK(close(ends[1]) == 0);
    CHECK(snprintf(text, sizeof text, "hello from %d;", as) > 0);
    expect(ends[0], text);
    send_all(ends[0], "more", 4);
    reap(child);
    if (keep_in_parent) {
        send_all(ends[0], "back", 4);
        expect(ends[1], "back");
        CHECK(close(ends[1]) == 0);
    }
    CHECK(recv(ends[0], &byte, 1, 0) == 0);
    CHECK(close(ends[0]) == 0);
}

/* Close-on-exec ends it for the new program. */
static void closed_by_exec(void)
{
    int ends[2];
    char byte;
    pair(ends);
    pid_t child = fork();
    if (child == 0) {
        close(ends[1]);
        CHECK(fcntl(ends[0], F_SETFD, FD_CLOEXEC) == 0);
        execl("/bin/true", "true", (char *)NULL);
        _exit(127);
    }
    CHECK(close(ends[0]) == 0);
    reap(child);
    CHECK(recv(ends[1], &byte, 1, 0) == 0);
}

/* The same process goes on as another program, without fork. */
static void replaced(const char *self)
{
    struct sockaddr_in at;
    int server = listener(&at);
    pid_t child = fork();
    if (child == 0) {
        close(server);
        int fd = dial(&at);
        expect(fd, "go;");
        CHECK(dup2(fd, 7) == 7 && close(fd) == 0);
        char *arguments[] = {(char *)self, "7", NULL};
        execv(self, arguments);
        _exit(127);
    }
    int peer = accept(server, NULL, NULL);
    send_all(peer, "go;unread before exec;", 22);
    expect(peer, "hello from 7;");
    send_all(peer, "more", 4);
    reap(child);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        inherited(atoi(argv[1]));
    CHECK(dup2(open("/dev/null", O_RDONLY), 0) == 0);
    run(argv[0], 0, 0);
    run(argv[0], 7, 0);
    run(argv[0], 0, 1);
    run(argv[0], 7, 1);
    closed_by_exec();
    replaced(argv[0]);
    return 0;
}

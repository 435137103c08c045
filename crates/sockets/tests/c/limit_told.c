/* A program whose first connection is made at the limit of descriptors is told of nothing else than the limit, if of anything
 * at all, and connects; as soon as there is room its connections are like any other, and so are those that it accepts. */
#include "limit.h"

static const struct sockaddr_in *at;
static int listening;

static void talk(int from)
{
    int to = accept(listening, NULL, NULL);
    CHECK(to >= 0);
    send_all(from, "there", 5);
    expect(to, "there");
    CHECK(close(to) == 0 && close(from) == 0);
}

/* In a child of `fork`: it has the listener, and no session with a daemon yet. */
static void forked(int spare)
{
    int from = socket(AF_INET, SOCK_STREAM, 0);
    take_all_but(spare);
    int outcome = connect(from, (const struct sockaddr *)at, sizeof *at);
    give_back();
    CHECK(outcome == 0);
    talk(from);
    talk(dial(at));
}

/* In a program of its own. */
static void executed(int spare, int port)
{
    char said[4096] = "";
    struct sockaddr_in to = here(port);
    int log = unnamed_file(), terminal = dup(2), fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && dup2(log, 2) == 2);
    take_all_but(spare);
    int outcome = connect(fd, (struct sockaddr *)&to, sizeof to);
    give_back();
    CHECK(dup2(terminal, 2) == 2);
    CHECK(outcome == 0);
    CHECK(pread(log, said, sizeof said - 1, 0) >= 0);
    CHECK(said[0] == 0 || strstr(said, "limit of open files") || strstr(said, "Too many open files"));
    CHECK(!strstr(said, "makes no sense"));
    send_all(fd, "told", 4);
}

int main(int count_of, char **arguments)
{
    if (count_of == 3) {
        executed(atoi(arguments[1]), atoi(arguments[2]));
        return 0;
    }
    struct sockaddr_in own;
    listening = listener(&own);
    at = &own;
    int ends[2];
    for (int spare = 0; spare < 5; spare++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            forked(spare);
            _exit(0);
        }
        reap(child);
        child = fork();
        if (child == 0) {
            char left[16], port[16];
            snprintf(left, sizeof left, "%d", spare);
            snprintf(port, sizeof port, "%d", ntohs(own.sin_port));
            execl("/proc/self/exe", arguments[0], left, port, NULL);
            _exit(9);
        }
        int peer = accept(listening, NULL, NULL);
        CHECK(peer >= 0);
        expect(peer, "told");
        reap(child);
        close(peer);
    }
    pair(ends);
    send_all(ends[0], "stream", 6);
    expect(ends[1], "stream");
    return 0;
}

/* After fork both hold the stream: end of file comes with the last close of all processes, and bytes keep their order. */
#include "quirk.h"

static void child_serves(void)
{
    struct sockaddr_in at;
    int server = listener(&at);
    for (int round = 0; round < 20; round++) {
        int client = dial(&at);
        int peer = accept(server, NULL, NULL);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            close(server);
            close(client);
            expect(peer, "question");
            send_all(peer, "answer", 6);
            _exit(0);
        }
        CHECK(close(peer) == 0);
        send_all(client, "question", 8);
        expect(client, "answer");
        char byte;
        CHECK(recv(client, &byte, 1, 0) == 0);
        reap(child);
        CHECK(close(client) == 0);
    }
    close(server);
}

static void both_write(void)
{
    int ends[2];
    char byte, counts[2] = {0, 0};
    pair(ends);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(ends[1]);
        for (int i = 0; i < 100; i++)
            send_all(ends[0], "b", 1);
        _exit(0);
    }
    for (int i = 0; i < 100; i++)
        send_all(ends[0], "a", 1);
    reap(child);
    send_all(ends[0], ".", 1);
    CHECK(close(ends[0]) == 0);
    while (recv(ends[1], &byte, 1, 0) == 1 && byte != '.')
        counts[byte - 'a']++;
    CHECK(byte == '.' && counts[0] == 100 && counts[1] == 100);
    CHECK(recv(ends[1], &byte, 1, 0) == 0);
}

/* A grandchild whose parents are gone still holds it. */
static void grandchild(void)
{
    int ends[2], gate[2];
    char byte;
    pair(ends);
    CHECK(pipe(gate) == 0);
    pid_t child = fork();
    if (child == 0) {
        if (fork() == 0) {
            close(gate[1]);
            close(ends[1]);
            CHECK(read(gate[0], &byte, 1) == 0);
            send_all(ends[0], "orphan", 6);
            _exit(0);
        }
        _exit(0);
    }
    reap(child);
    close(gate[0]);
    CHECK(close(ends[0]) == 0);
    FAILS(recv(ends[1], &byte, 1, MSG_DONTWAIT), EAGAIN);
    CHECK(close(gate[1]) == 0);
    expect(ends[1], "orphan");
    CHECK(recv(ends[1], &byte, 1, 0) == 0);
}

int main(void)
{
    child_serves();
    both_write();
    grandchild();
    return 0;
}

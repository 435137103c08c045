/* The first bytes: one thread connects to itself and only then accepts; the server speaks first; both at once. */
#include "quirk.h"

static void to_oneself(void)
{
    struct sockaddr_in at;
    int server = listener(&at), clients[8];
    for (int i = 0; i < 8; i++) {
        char digit = (char)('0' + i);
        clients[i] = dial(&at);
        send_all(clients[i], &digit, 1);
        send_all(clients[i], " before accept", 14);
    }
    for (int i = 0; i < 8; i++) {
        char text[] = "? before accept";
        int peer = accept(server, NULL, NULL);
        CHECK(peer >= 0);
        text[0] = (char)('0' + i);
        expect(peer, text);
        send_all(peer, "welcome", 7);
        expect(clients[i], "welcome");
        close(peer);
        close(clients[i]);
    }
    close(server);
}

static void server_first(void)
{
    struct sockaddr_in at;
    int server = listener(&at);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (int i = 0; i < 50; i++) {
            int peer = accept(server, NULL, NULL);
            send_all(peer, "220 ready\r\n", 11);
            expect(peer, "QUIT\r\n");
            close(peer);
        }
        _exit(0);
    }
    for (int i = 0; i < 50; i++) {
        char byte;
        int client = dial(&at);
        expect(client, "220 ready\r\n");
        send_all(client, "QUIT\r\n", 6);
        CHECK(recv(client, &byte, 1, 0) == 0);
        close(client);
    }
    reap(child);
    close(server);
}

/* A listener that is shared by workers after fork: each connection goes to one of them. */
static void workers(void)
{
    struct sockaddr_in at;
    int server = listener(&at);
    pid_t children[3];
    for (int i = 0; i < 3; i++) {
        children[i] = fork();
        CHECK(children[i] >= 0);
        if (children[i] == 0) {
            for (;;) {
                char byte;
                int peer = accept(server, NULL, NULL);
                CHECK(peer >= 0);
                receive_all(peer, &byte, 1);
                send_all(peer, &byte, 1);
                close(peer);
                if (byte == 'q')
                    _exit(0);
            }
        }
    }
    for (int i = 0; i < 60; i++) {
        int client = dial(&at);
        send_all(client, "a", 1);
        expect(client, "a");
        close(client);
    }
    for (int i = 0; i < 3; i++) {
        int client = dial(&at);
        send_all(client, "q", 1);
        expect(client, "q");
        close(client);
    }
    for (int i = 0; i < 3; i++)
        reap(children[i]);
    close(server);
}

int main(void)
{
    to_oneself();
    server_first();
    workers();
    return 0;
}

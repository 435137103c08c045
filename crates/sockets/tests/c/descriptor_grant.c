/* A connection that takes the last descriptor that there is works as any other, whichever end is at the limit: nothing
 * that was sent is lost. */
#include "epoll.h"
#include "limit.h"

static void talk(int from, int to)
{
    char text[200000] = "";
    expect(to, "sent before accept");
    send_all(to, "answer", 6);
    expect(from, "answer");
    CHECK(ready(to, POLLOUT) == POLLOUT);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        send_all(from, text, sizeof text);
        _exit(0);
    }
    receive_all(to, text, sizeof text);
    reap(child);
}

int main(void)
{
    struct sockaddr_in at;
    int listening = listener(&at);
    int first = dial(&at), second = accept(listening, NULL, NULL);
    CHECK(close(first) == 0 && close(second) == 0);
    for (int spare = 1; spare <= 4; spare++) {
        int from = dial(&at), rest;
        send_all(from, "sent before accept", 18);
        take_all_but(spare);
        int to = accept(listening, NULL, NULL);
        CHECK(to >= 0);
        /* No other one was taken for it. */
        for (int left = 1; left < spare; left++) {
            CHECK((rest = dup(0)) >= 0);
            copies[count++] = rest;
        }
        FAILS(dup(0), EMFILE);
        talk(from, to);
        give_back();
        CHECK(close(to) == 0 && close(from) == 0);
    }
    for (int spare = 1; spare <= 4; spare++) {
        take_all_but(spare);
        int from = dial(&at);
        send_all(from, "sent before accept", 18);
        give_back();
        int to = accept(listening, NULL, NULL);
        CHECK(to >= 0);
        talk(from, to);
        CHECK(close(to) == 0 && close(from) == 0);
    }
    return 0;
}

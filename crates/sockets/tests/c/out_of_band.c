/* Urgent data is told, can be read apart or inline, and what is around it keeps its order. */
#include "epoll.h"

static void apart(void)
{
    int ends[2];
    char text[32] = "";
    pair(ends);
    send_all(ends[0], "before ", 7);
    CHECK(send(ends[0], "!", 1, MSG_OOB) == 1);
    send_all(ends[0], "after", 5);
    CHECK(ready(ends[1], POLLPRI) & POLLPRI);
    CHECK(recv(ends[1], text, 1, MSG_OOB) == 1 && text[0] == '!');
    expect(ends[1], "before after");
    send_all(ends[1], "and back", 8);
    expect(ends[0], "and back");
    FAILS(recv(ends[0], text, 1, MSG_OOB), EINVAL);
    CHECK(close(ends[0]) == 0);
    CHECK(recv(ends[1], text, 1, 0) == 0);
    CHECK(close(ends[1]) == 0);
}

static void in_line(void)
{
    int ends[2], on = 1;
    char text[32] = "";
    pair(ends);
    CHECK(setsockopt(ends[1], SOL_SOCKET, SO_OOBINLINE, &on, sizeof on) == 0);
    send_all(ends[0], "ab", 2);
    CHECK(send(ends[0], "cd", 2, MSG_OOB) == 2);
    send_all(ends[0], "ef", 2);
    expect(ends[1], "abc");
    expect(ends[1], "def");
    CHECK(shutdown(ends[0], SHUT_WR) == 0);
    CHECK(recv(ends[1], text, 1, 0) == 0);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

/* Both directions, many times, with data enough to fill a buffer between. */
static void often(void)
{
    static char block[50000], got[50000];
    int ends[2], on = 1;
    pair(ends);
    for (int i = 0; i < 2; i++)
        CHECK(setsockopt(ends[i], SOL_SOCKET, SO_OOBINLINE, &on, sizeof on) == 0);
    for (int round = 0; round < 20; round++) {
        int from = ends[round % 2], to = ends[!(round % 2)];
        memset(block, 'a' + round, sizeof block);
        send_all(from, block, sizeof block);
        CHECK(send(from, "!", 1, MSG_OOB) == 1);
        receive_all(to, got, sizeof got);
        CHECK(memcmp(got, block, sizeof got) == 0);
        expect(to, "!");
    }
}

/* Urgent data, what came before it, and room are one event. */
static void in_one_event(void)
{
    int ends[2], set = set_of();
    char text[32] = "";
    pair(ends);
    add(set, ends[1], EPOLLIN | EPOLLPRI | EPOLLOUT);
    CHECK(event_of(set, ends[1], 1000) == EPOLLOUT);
    CHECK(send(ends[0], "hello", 5, MSG_OOB) == 5);
    /* The urgent byte overtakes what lands later. */
    uint32_t seen = event_of(set, ends[1], 1000);
    CHECK(seen == (EPOLLIN | EPOLLPRI | EPOLLOUT) || (getenv("CROSSLANE_QUIRKS_DELAY_US") && seen & EPOLLPRI));
    CHECK(recv(ends[1], text, 1, MSG_OOB) == 1 && text[0] == 'o');
    expect(ends[1], "hell");
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0 && close(set) == 0);
}

/* A receiver that waits while bytes before the urgent ones lie unread gets them in their order. */
static void behind_unread(void)
{
    int ends[2], set = set_of();
    pair(ends);
    add(set, ends[1], EPOLLIN | EPOLLET);
    for (int round = 0; round < 3; round++) {
        send_all(ends[0], "first", 5);
        CHECK(event_of(set, ends[1], 1000) == EPOLLIN);
        CHECK(send(ends[0], "second", 6, MSG_OOB) == 6);
        event_of(set, ends[1], 100);
        event_of(set, ends[1], 100);
        expect(ends[1], "first");
        expect(ends[1], "secon");
    }
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0 && close(set) == 0);
}

int main(void)
{
    behind_unread();
    apart();
    in_one_event();
    in_line();
    often();
    return 0;
}

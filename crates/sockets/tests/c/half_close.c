/* Half close: what was sent before is delivered, then end of file; the other direction goes on. */
#include "quirk.h"

int main(void)
{
    int ends[2];
    char byte;
    pair(ends);
    send_all(ends[0], "last words", 10);
    CHECK(shutdown(ends[0], SHUT_WR) == 0);
    expect(ends[1], "last words");
    CHECK(recv(ends[1], &byte, 1, 0) == 0);
    CHECK(recv(ends[1], &byte, 1, 0) == 0);
    FAILS(send(ends[0], "x", 1, MSG_NOSIGNAL), EPIPE);
    FAILS(recv(ends[0], &byte, 1, MSG_DONTWAIT), EAGAIN);
    for (int round = 0; round < 1000; round++) {
        send_all(ends[1], "answer", 6);
        expect(ends[0], "answer");
    }
    send_all(ends[1], "bye", 3);
    CHECK(close(ends[1]) == 0);
    expect(ends[0], "bye");
    CHECK(recv(ends[0], &byte, 1, 0) == 0);
    CHECK(close(ends[0]) == 0);

    /* SHUT_RD: what lies there can still be read, then end of file. */
    pair(ends);
    send_all(ends[0], "unread", 6);
    CHECK(ready(ends[1], POLLIN) & POLLIN);
    CHECK(shutdown(ends[1], SHUT_RD) == 0);
    expect(ends[1], "unread");
    CHECK(recv(ends[1], &byte, 1, 0) == 0);
    send_all(ends[1], "still", 5);
    expect(ends[0], "still");
    CHECK(shutdown(ends[1], SHUT_RDWR) == 0);
    CHECK(recv(ends[0], &byte, 1, 0) == 0);
    FAILS(shutdown(ends[0], 77), EINVAL);
    return 0;
}

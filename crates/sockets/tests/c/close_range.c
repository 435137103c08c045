/* A program that closes all descriptors that it does not know keeps its streams, and can make new ones. */
#include "quirk.h"
#include <linux/close_range.h>

static void streams_work(void)
{
    int ends[2];
    pair(ends);
    send_all(ends[0], "again", 5);
    expect(ends[1], "again");
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

int main(void)
{
    int ends[2], gone[2];
    char byte;
    pair(ends);
    pair(gone);
    CHECK(dup2(ends[0], 10) == 10 && dup2(ends[1], 11) == 11);
    CHECK(dup2(gone[0], 20) == 20 && close(gone[0]) == 0);
    CHECK(dup2(gone[1], 9) == 9 && close(gone[1]) == 0);
    CHECK(close_range(12, ~0U, 0) == 0);
    CHECK(recv(9, &byte, 1, 0) == 0);
    FAILS(recv(20, &byte, 1, 0), EBADF);
    send_all(10, "kept", 4);
    expect(11, "kept");
    streams_work();
    CHECK(close_range(3, 8, CLOSE_RANGE_CLOEXEC) == 0);
    closefrom(12);
    send_all(11, "kept", 4);
    expect(10, "kept");
    streams_work();
    /* The old way: one by one, up to a limit. */
    for (int fd = 12; fd < 4096; fd++)
        close(fd);
    send_all(11, "kept", 4);
    expect(10, "kept");
    streams_work();
    closefrom(3);
    streams_work();
    return 0;
}

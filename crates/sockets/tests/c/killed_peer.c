/* A program that asks now and then without waiting learns of a killed peer by its next questions, not after a thousand. */
#include "quirk.h"

int main(void)
{
    int ends[2];
    char byte;
    ssize_t got = -1;
    pair(ends);
    send_all(ends[0], "x", 1);
    expect(ends[1], "x");
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(ends[1]);
        pause();
        _exit(0);
    }
    close(ends[0]);
    FAILS(recv(ends[1], &byte, 1, MSG_DONTWAIT), EAGAIN);
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, NULL, 0) == child);
    for (int asked = 0; asked < 200 && got < 0; asked++) {
        usleep(10000);
        got = recv(ends[1], &byte, 1, MSG_DONTWAIT);
        CHECK(got == 0 || errno == EAGAIN || errno == ECONNRESET);
        if (got < 0 && errno == ECONNRESET)
            got = 0;
    }
    CHECK(got == 0);
    return 0;
}

/* Two threads wait on one socket: what one of them leaves is the other one's, at once. */
#include "quirk.h"

static int ends[2];

static void *reader(void *got)
{
    CHECK(recv(ends[1], got, 1, 0) == 1);
    return NULL;
}

int main(void)
{
    pair(ends);
    int64_t longest = 0;
    for (int round = 0; round < 50; round++) {
        pthread_t threads[2];
        char got[2] = {0, 0};
        for (int i = 0; i < 2; i++)
            CHECK(pthread_create(&threads[i], NULL, reader, &got[i]) == 0);
        if (round % 2 == 0)
            usleep(2000); /* Both sleep, as a rule; every order must do. */
        int64_t start = now_ms();
        send_all(ends[0], "xy", 2);
        for (int i = 0; i < 2; i++)
            CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK((got[0] == 'x' && got[1] == 'y') || (got[0] == 'y' && got[1] == 'x'));
        if (now_ms() - start > longest)
            longest = now_ms() - start;
    }
    CHECK(longest < 5000);
    return 0;
}

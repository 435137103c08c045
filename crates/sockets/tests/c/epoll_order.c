/* A set tells connections in the order in which they became ready: who writes to one and then to another is heard in
 * that order, whether the server was asleep, at work, or just looking. */
#include "epoll.h"

#define COUNT 12
#define ROUNDS 400

static int ends[COUNT][2];
static unsigned seed;

static void shuffle(int order[COUNT])
{
    for (int i = 0; i < COUNT; i++)
        order[i] = i;
    for (int i = COUNT - 1; i > 0; i--) {
        int other = rand_r(&seed) % (i + 1), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
}

/* Writes one message to each connection, in an order of its own, after the server has asked for it. */
static void client(int asked)
{
    for (int round = 0; round < ROUNDS; round++) {
        int order[COUNT];
        char go;
        shuffle(order);
        CHECK(read(asked, &go, 1) == 1);
        for (int i = 0; i < COUNT; i++) {
            char turn = (char)i;
            send_all(ends[order[i]][1], &turn, 1);
        }
    }
}

/* Takes the messages of one round, `room` events at a time at most, and wants them in turn. */
static void take(int set, int room)
{
    for (int next = 0; next < COUNT;) {
        struct epoll_event events[COUNT];
        int count = epoll_wait(set, events, room, 10000);
        CHECK(count > 0);
        for (int i = 0; i < count; i++) {
            char turn;
            CHECK(recv(ends[events[i].data.u64][0], &turn, 1, 0) == 1);
            if (turn != next) {
                fprintf(stderr, "message %d came before %d\n", turn, next);
                _exit(1);
            }
            next++;
        }
    }
}

int main(void)
{
    const char *given = getenv("QUIRK_SEED");
    int set = set_of(), asking[2];
    struct epoll_event none;
    seed = given ? (unsigned)atoi(given) : (unsigned)getpid();
    fprintf(stderr, "seed %u\n", seed);
    CHECK(pipe(asking) == 0);
    for (int i = 0; i < COUNT; i++) {
        pair(ends[i]);
        CHECK(change(set, EPOLL_CTL_ADD, ends[i][0], EPOLLIN, (uint64_t)i) == 0);
    }
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(close(asking[1]) == 0);
        client(asking[0]);
        _exit(0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        CHECK(write(asking[1], "g", 1) == 1);
        /* Sometimes all of it is there before the server looks: the last of them is seen by the bytes. */
        for (int i = 0; round % 4 == 0 && i < COUNT; i++)
            ready(ends[i][0], POLLIN);
        take(set, COUNT);
        CHECK(epoll_wait(set, &none, 1, 0) == 0);
    }
    reap(child);
    return 0;
}

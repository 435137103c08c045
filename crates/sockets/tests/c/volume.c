/* 64 MB both ways at once, in pieces of random sizes, compared by checksum. The seed is printed; QUIRK_SEED sets it. */
#include "quirk.h"

enum { MOST = 200000 };
static const uint64_t TOTAL = 64u << 20;

struct way {
    int fd;
    uint64_t seed, sum;
};

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static uint64_t add(uint64_t sum, const unsigned char *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        sum = (sum ^ data[i]) * 0x100000001b3;
    return sum;
}

static void *sending(void *argument)
{
    struct way *way = argument;
    unsigned char *data = malloc(MOST);
    uint64_t state = way->seed;
    for (uint64_t left = TOTAL; left > 0;) {
        size_t len = 1 + next(&state) % (next(&state) % 4 ? 2000 : MOST);
        len = len < left ? len : (size_t)left;
        for (size_t i = 0; i < len; i += 97)
            data[i] = (unsigned char)next(&state);
        way->sum = add(way->sum, data, len);
        send_all(way->fd, data, len);
        left -= len;
    }
    free(data);
    return NULL;
}

static void *receiving(void *argument)
{
    struct way *way = argument;
    unsigned char *data = malloc(MOST);
    uint64_t state = way->seed;
    for (uint64_t left = TOTAL; left > 0;) {
        size_t len = 1 + next(&state) % (next(&state) % 4 ? 3000 : MOST);
        ssize_t got = recv(way->fd, data, len < left ? len : (size_t)left, 0);
        CHECK(got > 0);
        way->sum = add(way->sum, data, (size_t)got);
        left -= (uint64_t)got;
    }
    free(data);
    return NULL;
}

int main(void)
{
    const char *given = getenv("QUIRK_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL) * 2654435761u + (uint64_t)getpid();
    int ends[2];
    pthread_t threads[4];
    printf("seed %llu\n", (unsigned long long)seed);
    seed |= 1;
    pair(ends);
    struct way ways[4] = {{ends[0], seed, 0}, {ends[1], seed + 2, 0}, {ends[0], seed + 4, 0}, {ends[1], seed + 6, 0}};
    CHECK(pthread_create(&threads[0], NULL, sending, &ways[0]) == 0);
    CHECK(pthread_create(&threads[1], NULL, sending, &ways[1]) == 0);
    CHECK(pthread_create(&threads[2], NULL, receiving, &ways[2]) == 0);
    CHECK(pthread_create(&threads[3], NULL, receiving, &ways[3]) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(ways[0].sum == ways[3].sum && ways[1].sum == ways[2].sum);
    return 0;
}

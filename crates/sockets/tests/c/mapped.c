/* Memory of xl_alloc: sends from it are taken out of it by the far end, receives into it are put there by the far end, and
 * xl_transact gets an answer so; every byte is right, and counters tell how it went. Without the library there are no such
 * functions. Not on posted stores. */
#include "quirk.h"

#include "../../../../include/crosslane.h"

enum { LEN = 1 << 20, ROUNDS = 40 };

static unsigned char pattern(size_t place, int round)
{
    return (unsigned char)(place * 31 + place / 4096 + (size_t)round * 7);
}

static void fill(unsigned char *memory, size_t len, int round)
{
    for (size_t place = 0; place < len; place++)
        memory[place] = pattern(place, round);
}

static void compare(const unsigned char *memory, size_t len, int round)
{
    for (size_t place = 0; place < len; place++)
        if (memory[place] != pattern(place, round)) {
            fprintf(stderr, "round %d, byte %zu is %d, not %d\n", round, place, memory[place], pattern(place, round));
            _exit(1);
        }
}

static void choose(int fd, int transfer)
{
    CHECK(setsockopt(fd, SOL_CROSSLANE, XL_TRANSFER, &transfer, sizeof transfer) == 0);
}

static struct xl_stats stats(int fd)
{
    struct xl_stats stats;
    socklen_t len = sizeof stats;
    CHECK(getsockopt(fd, SOL_CROSSLANE, XL_STATS, &stats, &len) == 0 && len == sizeof stats);
    return stats;
}

struct side {
    int fd;
    int transfer;
    unsigned char *memory;
};

/* Sends each round in one call, from the side's memory, which is overwritten as soon as the call is over. */
static void *sender(void *argument)
{
    struct side *side = argument;
    choose(side->fd, side->transfer);
    for (int round = 0; round < ROUNDS; round++) {
        fill(side->memory, LEN, round);
        send_all(side->fd, side->memory, LEN);
        memset(side->memory, 0xee, LEN);
    }
    return NULL;
}

static void receive_rounds(int fd, unsigned char *into)
{
    for (int round = 0; round < ROUNDS; round++) {
        receive_all(fd, into, LEN);
        compare(into, LEN, round);
        memset(into, 0x55, LEN);
    }
}

static struct xl_stats rounds(int transfer, unsigned char *from, unsigned char *into)
{
    int ends[2];
    pthread_t thread;
    pair(ends);
    struct side side = {.fd = ends[0], .transfer = transfer, .memory = from};
    choose(ends[1], transfer);
    CHECK(pthread_create(&thread, NULL, sender, &side) == 0);
    receive_rounds(ends[1], into);
    CHECK(pthread_join(thread, NULL) == 0);
    struct xl_stats sent = stats(ends[0]), got = stats(ends[1]);
    CHECK(sent.tx_bytes == (uint64_t)LEN * ROUNDS && got.rx_bytes == sent.tx_bytes);
    CHECK(sent.tx_read_zcopy == got.rx_read_zcopy && sent.tx_write_zcopy == got.rx_write_zcopy);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
    return sent;
}

static void *answerer(void *argument)
{
    int fd = *(int *)argument;
    unsigned char request[8], answer[8192];
    for (int round = 0; round < 200; round++) {
        receive_all(fd, request, sizeof request);
        fill(answer, sizeof answer, round);
        send_all(fd, answer, (size_t)64 << (round % 8));
    }
    return NULL;
}

static void transactions(unsigned char *answer)
{
    int ends[2];
    pthread_t thread;
    pair(ends);
    CHECK(pthread_create(&thread, NULL, answerer, &ends[1]) == 0);
    for (int round = 0; round < 200; round++) {
        size_t wanted = (size_t)64 << (round % 8), got = 0;
        while (got < wanted) {
            ssize_t count = got == 0 ? xl_transact(ends[0], "request", 8, answer, LEN)
                                     : recv(ends[0], answer + got, wanted - got, 0);
            CHECK(count > 0);
            got += (size_t)count;
        }
        CHECK(got == wanted);
        compare(answer, got, round);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    struct xl_stats asked = stats(ends[0]);
    CHECK(asked.rx_write_zcopy > asked.rx_bytes / 2);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

int main(void)
{
    if (!xl_alloc)
        return getenv("LD_PRELOAD") ? 1 : 0;
    unsigned char *ours = xl_alloc(LEN, 0), *open = xl_alloc(LEN, XL_ALLOC_OPEN), *plain = malloc(LEN);
    CHECK(ours && open && plain);
    FAILS(xl_alloc(0, 0) ? 0 : -1, EINVAL);
    FAILS(xl_alloc(LEN, 2) ? 0 : -1, EINVAL);
    FAILS(xl_free(plain), EINVAL);
    struct xl_stats mapped = rounds(XL_TRANSFER_READ_ZCOPY, ours, plain);
    CHECK(mapped.tx_read_zcopy > mapped.tx_bytes / 2 && mapped.tx_copied < mapped.tx_bytes / 2);
    CHECK(rounds(XL_TRANSFER_READ_ZCOPY, plain, ours).tx_bcopy == (uint64_t)LEN * ROUNDS);
    struct xl_stats written = rounds(XL_TRANSFER_WRITE_ZCOPY, plain, open);
    CHECK(written.tx_write_zcopy > 0);
    CHECK(rounds(XL_TRANSFER_BCOPY, ours, open).tx_bcopy == (uint64_t)LEN * ROUNDS);
    rounds(XL_TRANSFER_AUTO, ours, open);
    transactions(open);
    CHECK(xl_free(ours) == 0 && xl_free(open) == 0);
    FAILS(xl_free(open), EINVAL);
    free(plain);
    return 0;
}

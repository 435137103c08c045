/* Bulk that the daemon's engine copies, if there is one: order, flags, limits of time, signals whose handlers return or
 * jump away, children, buffers that are not there. Not on posted stores. */
#include "quirk.h"

#include "../../../../include/crosslane.h"
#include <setjmp.h>
#include <sys/mman.h>

#define LONG ((size_t)1 << 20)

static unsigned char at(size_t place) { return (unsigned char)(place * 2654435761u >> 11); }

static unsigned char *made(size_t from, size_t count)
{
    unsigned char *bytes = malloc(count);
    CHECK(bytes != NULL);
    for (size_t i = 0; i < count; i++)
        bytes[i] = at(from + i);
    return bytes;
}

static void same(const unsigned char *bytes, size_t from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        CHECK(bytes[i] == at(from + i));
}

/* The kernel's sockets know no such option. */
static int offloads(int fd)
{
    int on = 1;
    return setsockopt(fd, SOL_CROSSLANE, XL_OFFLOAD, &on, sizeof on) == 0;
}

static void send_whole(int fd, size_t from, size_t count)
{
    unsigned char *bytes = made(from, count);
    CHECK(send(fd, bytes, count, 0) == (ssize_t)count);
    free(bytes);
}

static int far_end;

static void *sender(void *unused)
{
    (void)unused;
    for (size_t i = 0; i < 20; i++)
        send_whole(far_end, i * 3 * LONG, 3 * LONG);
    return NULL;
}

static void in_order(int fd)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, sender, NULL) == 0);
    unsigned char *bytes = malloc(LONG);
    size_t done = 0;
    while (done < 60 * LONG) {
        size_t left = 60 * LONG - done, most = left < LONG ? left : LONG;
        ssize_t count = recv(fd, bytes, most, done % 3 == 0 ? MSG_WAITALL : 0);
        CHECK(count > 0);
        same(bytes, done, (size_t)count);
        done += (size_t)count;
    }
    CHECK(pthread_join(thread, NULL) == 0);
    free(bytes);
}

static void peeked(int fd)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, sender, NULL) == 0);
    unsigned char *bytes = malloc(60 * LONG);
    ssize_t count = recv(fd, bytes, 60 * LONG, MSG_PEEK);
    CHECK(count > 0);
    same(bytes, 0, (size_t)count);
    CHECK(recv(fd, bytes, 60 * LONG, MSG_WAITALL) == (ssize_t)(60 * LONG));
    same(bytes, 0, 60 * LONG);
    CHECK(pthread_join(thread, NULL) == 0);
    free(bytes);
}

static void limited(int fd)
{
    struct timeval little = {.tv_usec = 60000}, none = {0};
    unsigned char *bytes = calloc(64, LONG);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &little, sizeof little) == 0);
    FAILS(recv(fd, bytes, 64 * LONG, 0), EAGAIN);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none) == 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &little, sizeof little) == 0);
    ssize_t sent = send(fd, bytes, 64 * LONG, 0);
    CHECK(sent > 0 && sent < (ssize_t)(64 * LONG));
    CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof none) == 0);
    CHECK(recv(far_end, bytes, (size_t)sent, MSG_WAITALL) == sent);
    FAILS(recv(fd, bytes, 64 * LONG, MSG_DONTWAIT), EAGAIN);
    free(bytes);
}

static volatile sig_atomic_t heard;
static sigjmp_buf away;
static pthread_t target;

static void hear(int signal)
{
    (void)signal;
    heard++;
}

static void jump(int signal)
{
    (void)signal;
    siglongjmp(away, 1);
}

static void *disturb(void *unused)
{
    (void)unused;
    usleep(100000);
    pthread_kill(target, SIGUSR1);
    return NULL;
}

static void with_handler(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
}

static pthread_t disturbed(void)
{
    pthread_t thread;
    target = pthread_self();
    CHECK(pthread_create(&thread, NULL, disturb, NULL) == 0);
    return thread;
}

static void interrupted(int fd)
{
    unsigned char *bytes = calloc(64, LONG);
    with_handler(hear);
    pthread_t thread = disturbed();
    FAILS(recv(fd, bytes, 64 * LONG, 0), EINTR);
    CHECK(heard == 1 && pthread_join(thread, NULL) == 0);
    thread = disturbed();
    ssize_t sent = send(fd, bytes, 64 * LONG, 0);
    CHECK(heard == 2 && sent > 0 && sent < (ssize_t)(64 * LONG) && pthread_join(thread, NULL) == 0);
    CHECK(recv(far_end, bytes, (size_t)sent, MSG_WAITALL) == sent);
    free(bytes);
}

/* Handlers at any moment of a busy stream lose no byte. */
static void *noise(void *stop)
{
    while (!*(volatile int *)stop) {
        pthread_kill(target, SIGUSR1);
        usleep(200);
    }
    return NULL;
}

static void disturbed_flow(int fd)
{
    struct sigaction action = {.sa_handler = hear, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    static volatile int stop;
    pthread_t thread;
    target = pthread_self();
    CHECK(pthread_create(&thread, NULL, noise, (void *)&stop) == 0);
    in_order(fd);
    stop = 1;
    CHECK(pthread_join(thread, NULL) == 0);
}

static void jumped(int fd)
{
    unsigned char *volatile bytes = malloc(4 * LONG);
    static pthread_t thread;
    with_handler(jump);
    if (sigsetjmp(away, 1) == 0) {
        thread = disturbed();
        recv(fd, bytes, 4 * LONG, 0);
        CHECK(!"it came back");
    }
    memset(bytes, 7, 4 * LONG);
    send_whole(far_end, 5, 1000);
    usleep(50000);
    for (size_t i = 0; i < 4 * LONG; i++)
        CHECK(bytes[i] == 7);
    CHECK(recv(fd, bytes, 1000, MSG_WAITALL) == 1000);
    same(bytes, 5, 1000);
    CHECK(pthread_join(thread, NULL) == 0);
    free(bytes);
}

static void forked(int fd)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (size_t i = 0; i < 5; i++)
            send_whole(far_end, i * LONG, LONG);
        _exit(0);
    }
    unsigned char *bytes = malloc(5 * LONG);
    int status;
    CHECK(recv(fd, bytes, 5 * LONG, MSG_WAITALL) == (ssize_t)(5 * LONG));
    same(bytes, 0, 5 * LONG);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    free(bytes);
}

static void unmapped(int fd)
{
    void *gone = mmap(NULL, LONG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(gone != MAP_FAILED && munmap(gone, LONG) == 0);
    FAILS(send(fd, gone, LONG, 0), EFAULT);
    send_whole(far_end, 0, LONG);
    usleep(50000);
    FAILS(recv(fd, gone, LONG, 0), EFAULT);
    unsigned char *bytes = malloc(LONG);
    CHECK(recv(fd, bytes, LONG, MSG_WAITALL) == (ssize_t)LONG);
    same(bytes, 0, LONG);
    free(bytes);
}

/* Memory that the engine may map, if there is one. */
static unsigned char *segments(size_t count, unsigned flags)
{
    unsigned char *bytes = xl_alloc != NULL ? xl_alloc(count, flags) : malloc(count);
    CHECK(bytes != NULL);
    return bytes;
}

static void give_back(unsigned char *bytes)
{
    if (xl_free == NULL || xl_free(bytes) != 0)
        free(bytes);
}

static void *segment_sender(void *unused)
{
    (void)unused;
    unsigned char *bytes = segments(3 * LONG + 4096, 0);
    for (size_t round = 0; round < 20; round++) {
        for (size_t i = 0; i < 3 * LONG; i++)
            bytes[100 + i] = at(round * 3 * LONG + i);
        CHECK(send(far_end, bytes + 100, 3 * LONG, 0) == (ssize_t)(3 * LONG));
        memset(bytes, 0, 3 * LONG);
    }
    give_back(bytes);
    return NULL;
}

/* Whoever gives a buffer to be stored into gets there what arrives, and nothing beside it. */
static void in_segments(int fd)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, segment_sender, NULL) == 0);
    unsigned char *bytes = segments(LONG + 8192, XL_ALLOC_OPEN);
    memset(bytes, 7, LONG + 8192);
    for (size_t done = 0; done < 60 * LONG; done += LONG) {
        CHECK(recv(fd, bytes + 4096, LONG, MSG_WAITALL) == (ssize_t)LONG);
        same(bytes + 4096, done, LONG);
    }
    for (size_t i = 0; i < 4096; i++)
        CHECK(bytes[i] == 7 && bytes[4096 + LONG + i] == 7);
    CHECK(pthread_join(thread, NULL) == 0);
    give_back(bytes);
}

int main(void)
{
    /* Each by a connection of its own: who has sent and received by turns copies by himself. */
    void (*parts[])(int) = {in_order, in_segments, peeked, limited, interrupted, disturbed_flow, jumped, forked, unmapped};
    struct sockaddr_in to;
    int listening = listener(&to), streams = 0;
    size_t offloaded = 0;
    for (size_t part = 0; part < sizeof parts / sizeof *parts; part++) {
        int fd = dial(&to);
        far_end = accept(listening, NULL, NULL);
        CHECK(far_end >= 0);
        streams = offloads(fd) && offloads(far_end);
        parts[part](fd);
        struct xl_stats stats = {0};
        socklen_t len = sizeof stats;
        CHECK(!streams || getsockopt(fd, SOL_CROSSLANE, XL_STATS, &stats, &len) == 0);
        offloaded += stats.rx_offloaded;
        CHECK(close(fd) == 0 && close(far_end) == 0);
    }
    CHECK(!streams || offloaded > 100 * LONG);
    return 0;
}

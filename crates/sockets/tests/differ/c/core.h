/* What all calls of the executor share: the script, slots of descriptors, the trace, and buffers between canaries. */
#ifndef CORE_H
#define CORE_H

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <linux/sockios.h>

#define SLOTS 24        /* Descriptors that a script can name. */
#define OPS 256         /* Most calls of one script. */
#define ARGS 16         /* Most arguments of one call. */
#define PORTS 64        /* Different ports that a trace can name. */
#define PROCESSES 3     /* Processes of one script. */
#define BLOCKED_MS 40   /* A call that takes longer than this is interrupted by a signal, again and again. */
#define SCRIPT_S 10     /* A script that takes longer is killed. */
#define CANARY 0xA5     /* What lies in memory that a call has not stored to. */

/* One call of a script. */
struct op {
    int process;
    char name[20];
    int count;
    long arg[ARGS];
};

/* What the processes of one script share. */
struct shared {
    sem_t go[PROCESSES];   /* The process may make call `current`. */
    sem_t done;            /* It has made it. */
    int current;           /* Index of the call. */
    int alive[PROCESSES];  /* The process is there. */
    int parent[PROCESSES]; /* Who forked it. */
    int reap;              /* Call `current` is not to be made: a child has ended, and is to be waited for. */
    struct sockaddr_storage at[SLOTS]; /* Address that the socket of a slot was bound to, to connect to it. */
    socklen_t at_len[SLOTS];
    uint16_t port[PORTS];  /* Ports in the order of their first appearance in the trace. */
    int ports;
    size_t used;
    char trace[1 << 20];
};

static struct shared *shared;
static struct in_addr script_address;   /* The loopback address that is this script's own. */
static int slot[SLOTS];                 /* Numbers of descriptors, -1 if none; a closed one keeps its number. */
static int my_process;
static volatile sig_atomic_t pipes;     /* How often SIGPIPE came. */
static int send_serial;                 /* Makes what each call sends different. */

__attribute__((format(printf, 1, 2))) static void out(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    size_t room = sizeof shared->trace - shared->used;
    int len = vsnprintf(shared->trace + shared->used, room, format, list);
    va_end(list);
    if (len > 0)
        shared->used += (size_t)len < room ? (size_t)len : room - 1;
}

/* The result of a call, with errno if it failed. */
static void out_result(long result)
{
    int error = errno;
    if (result < 0)
        out(" r=%ld e=%s", result, strerrorname_np(error) ? strerrorname_np(error) : "?");
    else
        out(" r=%ld", result);
}

/* Argument `index` of a call, 0 if it has none there. */
static long arg(const struct op *op, int index)
{
    return index < op->count ? op->arg[index] : 0;
}

/* The descriptor that a script names: a slot, or a number that is none (100: -1, 101: one that is never open). */
static int fd_of(long name)
{
    if (name >= 0 && name < SLOTS)
        return slot[name];
    return name == 101 ? 9999 : -1;
}

/* A new descriptor goes into a slot; what the slot held stays open. */
static void keep(long name, int fd)
{
    if (fd >= 0 && name >= 0 && name < SLOTS)
        slot[name] = fd;
}

static uint64_t hash(const void *data, size_t len)
{
    const unsigned char *bytes = data;
    uint64_t sum = 14695981039346656037u;
    for (size_t at = 0; at < len; at++)
        sum = (sum ^ bytes[at]) * 1099511628211u;
    return sum;
}

/* Bytes [from, len) still hold the canary. */
static int untouched(const void *data, size_t from, size_t len)
{
    const unsigned char *bytes = data;
    for (size_t at = from; at < len; at++)
        if (bytes[at] != CANARY)
            return 0;
    return 1;
}

/* Buffers for one call each, large enough for any length that a generator draws; `big(0)`, `big(1)`. */
#define BIG (1 << 20)
static unsigned char *big(int which)
{
    static unsigned char *memory;
    if (memory == NULL)
        memory = mmap(NULL, 2 * BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory + which * BIG;
}

static size_t within(size_t len) { return len < BIG ? len : BIG; }

/* Bytes to send, different for each call. */
static unsigned char *payload(size_t len)
{
    unsigned char *data = big(0);
    uint32_t state = (uint32_t)++send_serial * 2654435761u;
    for (size_t at = 0; at < within(len); at++) {
        state = state * 1664525u + 1013904223u;
        data[at] = (unsigned char)(state >> 24);
    }
    return data;
}

/* Memory to receive into, filled with the canary. */
static unsigned char *canvas(size_t len)
{
    size_t some = within(len + 64);
    return memset(big(1), CANARY, some);
}

/* What a call stored in memory of `len` bytes: it says itself that it stored `stored`. */
static void out_bytes(const char *name, const unsigned char *data, long stored, size_t len)
{
    size_t end = within(len + 64);
    size_t got = stored < 0 ? 0 : (size_t)stored;
    if (got > end)
        got = end;
    if (got > 0)
        out(" %s=%016llx", name, (unsigned long long)hash(data, got < len ? got : len));
    if (!untouched(data, got < len ? got : len, end)) {
        size_t last = end;
        while (last > 0 && data[last - 1] == CANARY)
            last--;
        out(" %s_beyond=%zu", name, last);
    }
}

/* A port as the trace names it: the order of its first appearance. */
static int port_name(uint16_t port)
{
    if (port == 0)
        return 0;
    for (int at = 0; at < shared->ports; at++)
        if (shared->port[at] == port)
            return at + 1;
    if (shared->ports == PORTS)
        return -1;
    shared->port[shared->ports++] = port;
    return shared->ports;
}

static void out_host(const char *text)
{
    char own[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &script_address, own, sizeof own);
    const char *found = strstr(text, own);
    if (found != NULL && found[strlen(own)] == 0)
        out("%.*sA", (int)(found - text), text);
    else
        out("%s", text);
}

/* An address that a call stored, in memory of `len` bytes that held canaries; `told` is the length that it gave back. */
static void out_address(const struct sockaddr_storage *at, socklen_t len, socklen_t told)
{
    size_t stored = told < len ? told : len;
    char text[INET6_ADDRSTRLEN] = "?";
    out(" len=%u", told);
    if (stored >= 2 && at->ss_family == AF_INET && stored >= sizeof(struct sockaddr_in)) {
        const struct sockaddr_in *in = (const void *)at;
        inet_ntop(AF_INET, &in->sin_addr, text, sizeof text);
        out(" addr=");
        out_host(text);
        out(":p%d", port_name(ntohs(in->sin_port)));
    } else if (stored >= 2 && at->ss_family == AF_INET6 && stored >= sizeof(struct sockaddr_in6)) {
        const struct sockaddr_in6 *in = (const void *)at;
        inet_ntop(AF_INET6, &in->sin6_addr, text, sizeof text);
        out(" addr=");
        out_host(text);
        out(":p%d", port_name(ntohs(in->sin6_port)));
    } else if (stored >= 2) {
        out(" family=%d", at->ss_family);
    }
    if (!untouched(at, stored, sizeof *at))
        out(" addr_beyond=1");
}

#endif

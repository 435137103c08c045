/* A program that sets an io_uring up before its first socket, and changes its epoll set through it as libuv does, gets
 * the set's events. Where there is no ring, it calls epoll_ctl. It is known as one with libuv by the variable that this asks for:
 * its ring is refused, since it has another way, and its connections are streams. */
#include "epoll.h"
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>

struct ring {
    int fd;
    char *queue;
    struct io_uring_sqe *entries;
    struct io_uring_params params;
};

static void *map(int fd, size_t len, off_t what)
{
    void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, what);
    CHECK(at != MAP_FAILED);
    return at;
}

static struct ring set_up(void)
{
    struct ring ring = {.fd = -1};
    const char *wanted = getenv("UV_USE_IO_URING");
    if (wanted && strcmp(wanted, "0") == 0)
        return ring;
    ring.fd = (int)syscall(SYS_io_uring_setup, 4, &ring.params);
    if (ring.fd < 0) {
        CHECK(errno == ENOSYS || errno == EPERM);
        return ring;
    }
    size_t len = ring.params.sq_off.array + ring.params.sq_entries * sizeof(uint32_t);
    ring.queue = map(ring.fd, len, IORING_OFF_SQ_RING);
    ring.entries = map(ring.fd, ring.params.sq_entries * sizeof *ring.entries, IORING_OFF_SQES);
    return ring;
}

static void add_by(struct ring *ring, int set, int fd)
{
    if (ring->fd < 0) {
        add(set, fd, EPOLLIN);
        return;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)fd};
    uint32_t *tail = (uint32_t *)(ring->queue + ring->params.sq_off.tail);
    uint32_t *mask = (uint32_t *)(ring->queue + ring->params.sq_off.ring_mask);
    uint32_t at = *tail & *mask;
    ring->entries[at] = (struct io_uring_sqe){.opcode = IORING_OP_EPOLL_CTL,
                                              .fd = set,
                                              .off = (uint64_t)fd,
                                              .len = EPOLL_CTL_ADD,
                                              .addr = (uint64_t)(uintptr_t)&event};
    ((uint32_t *)(ring->queue + ring->params.sq_off.array))[at] = at;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    CHECK(syscall(SYS_io_uring_enter, ring->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1);
}

int main(void)
{
    struct ring ring = set_up();
    int ends[2], set = set_of();
    pair(ends);
    add_by(&ring, set, ends[0]);
    CHECK(event_of(set, ends[0], 30) == 0);
    send_all(ends[1], "ping", 4);
    CHECK(event_of(set, ends[0], 1000) == EPOLLIN);
    expect(ends[0], "ping");
    CHECK(event_of(set, ends[0], 30) == 0);
    CHECK(close(ends[1]) == 0);
    CHECK(event_of(set, ends[0], 1000) == EPOLLIN);
    return 0;
}

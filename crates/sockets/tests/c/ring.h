/* An io_uring of a few entries by system calls of one's own, as liburing makes them. */
#ifndef RING_H
#define RING_H

#include "quirk.h"
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>

struct ring {
    int fd;
    char *submission, *completion;
    struct io_uring_sqe *entries;
    struct io_uring_params params;
};

#ifdef __x86_64__
__attribute__((always_inline)) static inline long own_call(long number, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "+a"(number)
                     : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return number;
}
/* The number is a constant in front of the instruction, as where a compiler has made it part of its caller. */
#define OWN_CALL(number, a, b, c, d, e, f) own_call(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#else
#define OWN_CALL(number, a, b, c, d, e, f) (errno = 0, syscall(number, a, b, c, d, e, f) < 0 ? -errno : 0)
#endif

/* Maps what belongs to a ring that was made. */
static inline void map_ring(struct ring *ring)
{
    const struct io_uring_params *p = &ring->params;
    size_t submissions = p->sq_off.array + p->sq_entries * sizeof(unsigned);
    size_t completions = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);
    int prot = PROT_READ | PROT_WRITE;
    ring->submission = mmap(NULL, submissions, prot, MAP_SHARED, ring->fd, (off_t)IORING_OFF_SQ_RING);
    ring->completion = mmap(NULL, completions, prot, MAP_SHARED, ring->fd, (off_t)IORING_OFF_CQ_RING);
    ring->entries = mmap(NULL, p->sq_entries * sizeof *ring->entries, prot, MAP_SHARED, ring->fd, (off_t)IORING_OFF_SQES);
    CHECK(ring->submission != MAP_FAILED && ring->completion != MAP_FAILED && ring->entries != MAP_FAILED);
}

/* Makes a ring by a call of one's own; 77 where the kernel has none. */
static inline struct ring own_ring(void)
{
    struct ring ring = {0};
    ring.fd = (int)OWN_CALL(SYS_io_uring_setup, 4, &ring.params, 0, 0, 0, 0);
    if (ring.fd == -ENOSYS || ring.fd == -EPERM)
        exit(SKIPPED);
    CHECK(ring.fd >= 0);
    map_ring(&ring);
    return ring;
}

/* One operation, waited for by a call of one's own; its result. */
static inline int by_ring(struct ring *ring, unsigned char opcode, int fd, void *data, unsigned len)
{
    unsigned *tail = (unsigned *)(ring->submission + ring->params.sq_off.tail);
    unsigned *array = (unsigned *)(ring->submission + ring->params.sq_off.array);
    unsigned mask = *(unsigned *)(ring->submission + ring->params.sq_off.ring_mask);
    unsigned *head = (unsigned *)(ring->completion + ring->params.cq_off.head);
    unsigned *end = (unsigned *)(ring->completion + ring->params.cq_off.tail);
    struct io_uring_cqe *results = (struct io_uring_cqe *)(ring->completion + ring->params.cq_off.cqes);
    unsigned place = *tail & mask, completed = *(unsigned *)(ring->completion + ring->params.cq_off.ring_mask);
    int result;
    ring->entries[place] = (struct io_uring_sqe){.opcode = opcode, .fd = fd, .addr = (uintptr_t)data, .len = len};
    array[place] = place;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(end, __ATOMIC_ACQUIRE) == *head) {
        long entered = OWN_CALL(SYS_io_uring_enter, ring->fd, 1, 1, IORING_ENTER_GETEVENTS, 0, 0);
        CHECK(entered >= 0 || entered == -EINTR);
    }
    result = results[*head & completed].res;
    __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    return result;
}

#endif

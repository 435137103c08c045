/* Memory that is not there, for the quirk programs about it. */
#ifndef QUIRK_BAD_H
#define QUIRK_BAD_H

#include "quirk.h"
#include <sys/mman.h>

/* Bytes that are there before those of `edge`. */
#define AREA (1 << 20)

/* Ends `AREA` bytes of memory; nothing lies behind it. */
static char *edge;
/* Can be read and not written, a page of it. */
static char *constant;
/* A page of a file that has become shorter. */
static char *cut_off;

static inline void make_bad(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *area = mmap(NULL, AREA + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(area != MAP_FAILED && munmap(area + AREA, page) == 0);
    memset(area, 'g', AREA);
    edge = area + AREA;
    constant = mmap(NULL, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(constant != MAP_FAILED);
    int file = unnamed_file();
    CHECK(ftruncate(file, (off_t)page) == 0);
    cut_off = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(cut_off != MAP_FAILED && ftruncate(file, 0) == 0 && close(file) == 0);
}

static inline int unread(int fd)
{
    int count = -1;
    CHECK(ioctl(fd, FIONREAD, &count) == 0);
    return count;
}

/* Waits until so many bytes can be read. */
static inline void arrived(int fd, int count)
{
    for (int64_t until = now_ms() + 10000; unread(fd) < count;) {
        CHECK(now_ms() < until);
        usleep(100);
    }
}

#endif

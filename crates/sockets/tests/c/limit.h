/* A process at its limit of descriptors. */
#ifndef LIMIT_H
#define LIMIT_H

#include "quirk.h"
#include <sys/resource.h>

static int copies[256];
static int count;

/* Takes all descriptors there are but `spare`. */
static inline void take_all_but(int spare)
{
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = 128;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    while (count < 256 && (copies[count] = dup(0)) >= 0)
        count++;
    CHECK(count > spare && errno == EMFILE);
    while (spare-- > 0)
        CHECK(close(copies[--count]) == 0);
}

static inline void give_back(void)
{
    while (count > 0)
        CHECK(close(copies[--count]) == 0);
}

#endif

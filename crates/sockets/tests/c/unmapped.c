/* A buffer that is not there any more while its bytes are taken out of it: the send ends with EFAULT, or what was taken, and
 * nobody dies. The kernel's TCP does the same. */
#include "quirk.h"

#include "../../../../include/crosslane.h"

#include <sys/mman.h>

enum { LEN = 8 << 20 };

static void *reader(void *argument)
{
    int fd = *(int *)argument;
    char *into = malloc(LEN);
    CHECK(into);
    usleep(2000);
    while (recv(fd, into, 4096, 0) > 0)
        usleep(20);
    free(into);
    return NULL;
}

/* The second half of the buffer is not there. */
static void once(void)
{
    int ends[2], way = XL_TRANSFER_READ_ZCOPY;
    pthread_t thread;
    pair(ends);
    if (getenv("LD_PRELOAD"))
        CHECK(setsockopt(ends[0], SOL_CROSSLANE, XL_TRANSFER, &way, sizeof way) == 0);
    char *buffer = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(buffer != MAP_FAILED);
    memset(buffer, 7, LEN / 2);
    CHECK(munmap(buffer + LEN / 2, LEN / 2) == 0);
    CHECK(pthread_create(&thread, NULL, reader, &ends[1]) == 0);
    ssize_t sent = send(ends[0], buffer, LEN, MSG_NOSIGNAL);
    CHECK(sent <= LEN / 2 && (sent > 0 || errno == EFAULT));
    CHECK(munmap(buffer, LEN / 2) == 0);
    CHECK(close(ends[0]) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(close(ends[1]) == 0);
}

int main(void)
{
    for (int round = 0; round < 3; round++)
        once();
    return 0;
}

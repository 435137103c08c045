/* What sendfile refuses, and that it moves nothing then. */
#include "quirk.h"
#include <sys/sendfile.h>

int main(void)
{
    /* Not known to the compiler, which warns of it. */
    volatile size_t most = (size_t)-1;
    char path[32];
    int ends[2], tube[2], file = unnamed_file(), folder = open("/", O_RDONLY);
    CHECK(folder >= 0 && pipe(tube) == 0);
    CHECK(snprintf(path, sizeof path, "/proc/self/fd/%d", file) > 0);
    int writing = open(path, O_WRONLY), zeros = open("/dev/zero", O_RDONLY);
    CHECK(writing >= 0 && zeros >= 0);
    CHECK(write(file, "contents", 8) == 8 && lseek(file, 3, SEEK_SET) == 3);
    pair(ends);
    off_t start = 0, negative = -5, far = 1 << 20;
    FAILS(sendfile(ends[0], file, NULL, most), EINVAL);
    FAILS(sendfile(ends[0], -1, NULL, most), EBADF);
    FAILS(sendfile(ends[0], -1, NULL, 10), EBADF);
    FAILS(sendfile(ends[0], -1, NULL, 0), EBADF);
    FAILS(sendfile(ends[0], -1, &start, 10), EBADF);
    FAILS(sendfile(ends[0], writing, NULL, 10), EBADF);
    FAILS(sendfile(ends[0], folder, NULL, 10), EINVAL);
    FAILS(sendfile(ends[0], folder, &start, 10), EINVAL);
    FAILS(sendfile(ends[0], tube[0], NULL, 10), EINVAL);
    FAILS(sendfile(ends[0], tube[0], &start, 10), ESPIPE);
    FAILS(sendfile(ends[0], ends[1], NULL, 10), EINVAL);
    FAILS(sendfile(ends[0], file, &negative, 10), EINVAL);
    CHECK(sendfile(ends[0], file, NULL, 0) == 0);
    CHECK(sendfile(ends[0], folder, NULL, 0) == 0);
    CHECK(sendfile(ends[0], file, &far, 10) == 0 && far == 1 << 20);
    CHECK(start == 0 && negative == -5 && lseek(file, 0, SEEK_CUR) == 3);
    CHECK(sendfile(ends[0], zeros, NULL, 5) == 5);
    CHECK(sendfile(ends[0], file, &start, (size_t)1 << 40) == 8 && start == 8);
    char got[13];
    receive_all(ends[1], got, sizeof got);
    CHECK(memcmp(got, "\0\0\0\0\0contents", sizeof got) == 0);
    return 0;
}

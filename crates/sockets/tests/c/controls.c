/* FIONREAD, SIOCOUTQ, lseek, fstat and other calls about a descriptor. */
#include "quirk.h"
#include <linux/sockios.h>

int main(void)
{
    int ends[2], count = -1;
    struct stat status;
    char text[128];
    pair(ends);
    CHECK(ioctl(ends[1], FIONREAD, &count) == 0 && count == 0);
    send_all(ends[0], "12345", 5);
    send_all(ends[0], "678", 3);
    int64_t start = now_ms();
    while (ioctl(ends[1], FIONREAD, &count) == 0 && count < 8)
        CHECK(now_ms() - start < 5000);
    CHECK(count == 8);
    expect(ends[1], "123");
    CHECK(ioctl(ends[1], SIOCINQ, &count) == 0 && count == 5);
    CHECK(ioctl(ends[0], FIONREAD, &count) == 0 && count == 0);
    CHECK(ioctl(ends[0], SIOCOUTQ, &count) == 0 && count >= 0);
    expect(ends[1], "45678");
    start = now_ms();
    while (ioctl(ends[0], SIOCOUTQ, &count) == 0 && count != 0)
        CHECK(now_ms() - start < 5000);
    FAILS(lseek(ends[0], 0, SEEK_SET), ESPIPE);
    FAILS(pread(ends[0], text, 1, 0), ESPIPE);
    FAILS(pwrite(ends[0], text, 1, 0), ESPIPE);
    CHECK(fstat(ends[0], &status) == 0 && S_ISSOCK(status.st_mode));
    snprintf(text, sizeof text, "/proc/self/fd/%d", ends[0]);
    CHECK(stat(text, &status) == 0 && S_ISSOCK(status.st_mode));
    CHECK(!isatty(ends[0]));
    CHECK(fcntl(ends[0], F_SETOWN, getpid()) == 0 && fcntl(ends[0], F_GETOWN) == getpid());
    CHECK((fcntl(ends[0], F_GETFL) & O_ACCMODE) == O_RDWR);
    FAILS(fsync(ends[0]), EINVAL);
    CHECK(ftruncate(ends[0], 0) == -1);
    return 0;
}

/* daemon() forks inside the C library. What comes out of it holds the streams, and its descriptors are its own. */
#include "quirk.h"

static void background(int ends[2], int report)
{
    int more[2], file;
    char bytes[4];
    CHECK(daemon(0, 1) == 0);
    send_all(ends[0], "hello", 5);
    expect(ends[1], "hello");
    CHECK(close(ends[0]) == 0);
    CHECK(close(ends[1]) == 0);
    /* The number of a closed stream is a file's now. */
    file = open("/proc/self/exe", O_RDONLY);
    CHECK(file == ends[0] || file == ends[1]);
    CHECK(read(file, bytes, sizeof bytes) == 4 && memcmp(bytes, "\177ELF", 4) == 0);
    pair(more);
    send_all(more[1], "again", 5);
    expect(more[0], "again");
    CHECK(write(report, "k", 1) == 1);
    _exit(0);
}

int main(void)
{
    int ends[2], report[2];
    char said = 0;
    pair(ends);
    CHECK(pipe(report) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        background(ends, report[1]);
    close(report[1]);
    close(ends[0]);
    close(ends[1]);
    reap(child);
    CHECK(read(report[0], &said, 1) == 1 && said == 'k');
    return 0;
}

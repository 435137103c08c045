/* A program with rings for its files, one by a call of its own and one by syscall(), that waits for its sockets by poll: both
 * rings work, and its connections can be streams. A ring that is asked for while there are streams may be refused. */
#include "ring.h"

/* Reads this very program by the ring. */
static void read_a_file(struct ring *ring)
{
    char head[4] = "";
    int fd = open("/proc/self/exe", O_RDONLY);
    CHECK(fd >= 0);
    CHECK(by_ring(ring, IORING_OP_READ, fd, head, sizeof head) == sizeof head);
    CHECK(memcmp(head, "\177ELF", 4) == 0);
    CHECK(close(fd) == 0);
}

int main(void)
{
    struct sockaddr_in at;
    struct ring own = own_ring(), other = {0};
    struct pollfd asked = {.events = POLLIN};
    int fd, ends[2];
    other.fd = (int)syscall(SYS_io_uring_setup, 4, &other.params);
    CHECK(other.fd >= 0);
    map_ring(&other);
    read_a_file(&own);
    read_a_file(&other);

    fd = listener(&at);
    asked.fd = fd;
    CHECK(poll(&asked, 1, 0) == 0);
    ends[0] = dial(&at);
    CHECK(poll(&asked, 1, -1) == 1);
    ends[1] = accept(fd, NULL, NULL);
    CHECK(ends[1] >= 0);
    send_all(ends[0], "there", 5);
    expect(ends[1], "there");
    send_all(ends[1], "and back", 8);
    expect(ends[0], "and back");
    read_a_file(&own);
    read_a_file(&other);

    other.fd = (int)syscall(SYS_io_uring_setup, 4, &other.params);
    CHECK(other.fd >= 0 || errno == ENOSYS);
    CHECK(getenv("QUIRK_DAEMON") == NULL || other.fd < 0);
    return 0;
}

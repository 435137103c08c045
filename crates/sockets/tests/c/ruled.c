/* Rules for the program `ruled` choose how its streams send: each end by its own role; what the program says goes before
 * them. Without the library there is nothing to choose. */
#include "quirk.h"

#include "../../../../include/crosslane.h"

static int get(int fd, int name)
{
    int value = -1;
    socklen_t len = sizeof value;
    CHECK(getsockopt(fd, SOL_CROSSLANE, name, &value, &len) == 0);
    return value;
}

static void talk(int one, int other)
{
    send_all(one, "ruled", 5);
    expect(other, "ruled");
}

int main(void)
{
    int ends[2], value = XL_TRANSFER_AUTO;
    struct sockaddr_in at;
    pair(ends);
    talk(ends[0], ends[1]);
    if (!getenv("LD_PRELOAD"))
        return 0;
    CHECK(get(ends[0], XL_TRANSFER) == XL_TRANSFER_READ_ZCOPY && get(ends[0], XL_OFFLOAD) == 0);
    CHECK(get(ends[1], XL_TRANSFER) == XL_TRANSFER_BCOPY && get(ends[1], XL_OFFLOAD) == 1);
    int server = listener(&at), client = socket(AF_INET, SOCK_STREAM, 0), off = 0;
    CHECK(setsockopt(client, SOL_CROSSLANE, XL_TRANSFER, &value, sizeof value) == 0);
    CHECK(setsockopt(server, SOL_CROSSLANE, XL_OFFLOAD, &off, sizeof off) == 0);
    CHECK(connect(client, (struct sockaddr *)&at, sizeof at) == 0);
    int peer = accept(server, NULL, NULL);
    talk(client, peer);
    CHECK(get(client, XL_TRANSFER) == XL_TRANSFER_AUTO);
    CHECK(get(peer, XL_TRANSFER) == XL_TRANSFER_BCOPY && get(peer, XL_OFFLOAD) == 0);
    return 0;
}

/* A listener whose connections are streams; then the program loads liburing, by which it could accept and receive past us. From
 * the next accept on its connections are TCP, until it waits for the listener by poll. Needs liburing. */
#include "quirk.h"
#include <dlfcn.h>

enum { SOL_CROSSLANE = 0x584c, XL_STATE = 1 };

/* 1: a stream, 2: a listener of streams, 0: TCP, or nobody knows, since the library is not there. */
static int state(int fd)
{
    int value = 0;
    socklen_t len = sizeof value;
    return getsockopt(fd, SOL_CROSSLANE, XL_STATE, &value, &len) == 0 ? value : 0;
}

static int one(int fd, const struct sockaddr_in *at)
{
    int mine = dial(at), theirs = accept(fd, NULL, NULL), is;
    CHECK(theirs >= 0);
    send_all(mine, "hello", 5);
    expect(theirs, "hello");
    is = state(theirs);
    CHECK(state(mine) == is);
    CHECK(close(mine) == 0 && close(theirs) == 0);
    return is;
}

int main(void)
{
    struct sockaddr_in at;
    int fd = listener(&at), followed = getenv("QUIRK_DAEMON") != NULL;
    struct pollfd asked = {.fd = fd, .events = POLLIN};
    CHECK(one(fd, &at) == followed);
    if (dlopen("liburing.so.2", RTLD_NOW) == NULL)
        return SKIPPED;
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    FAILS(accept(fd, NULL, NULL), EAGAIN);
    CHECK(fcntl(fd, F_SETFL, 0) == 0);
    CHECK(state(fd) == 0);
    CHECK(one(fd, &at) == 0);
    CHECK(poll(&asked, 1, 0) == 0);
    CHECK(one(fd, &at) == followed);
    return 0;
}

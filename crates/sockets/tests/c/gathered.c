/* The buffers of one sendmsg or writev come together: nobody reads the first of them without the others. */
#include "quirk.h"

enum { MESSAGES = 300, LONGEST = 4096, PIECES = 16 };

static unsigned seed = 1;

static unsigned draw(unsigned below)
{
    seed = seed * 1103515245 + 12345;
    return (seed >> 16) % below;
}

int main(void)
{
    static unsigned char data[LONGEST], got[LONGEST + 1];
    int ends[2];
    for (int i = 0; i < LONGEST; i++)
        data[i] = (unsigned char)(i * 7);
    pair(ends);
    for (int message = 0; message < MESSAGES; message++) {
        int longest = message % 2 ? 64 : LONGEST, count = 2 + (int)draw(PIECES - 2), len = 0;
        struct iovec out[PIECES];
        for (int i = 0; i < count; i++) {
            int piece = (int)draw((unsigned)(longest / PIECES));
            out[i] = (struct iovec){data + len, (size_t)piece};
            len += piece;
        }
        if (len == 0)
            continue;
        struct msghdr sent = {.msg_iov = out, .msg_iovlen = (size_t)count};
        CHECK((message % 3 ? sendmsg(ends[0], &sent, 0) : writev(ends[0], out, count)) == len);
        CHECK(recv(ends[1], got, sizeof got, 0) == len);
        CHECK(memcmp(got, data, (size_t)len) == 0);
    }
    return 0;
}

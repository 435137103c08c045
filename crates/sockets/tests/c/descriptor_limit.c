/* At the limit of descriptors accept says so, the connection waits, and all goes on when there is room again. */
#include "quirk.h"
#include <sys/resource.h>

static int copies[256];
static int count;

/* Takes all descriptors there are but `spare`. */
static void take_all(int spare)
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

static void give_back(void)
{
    while (count > 0)
        CHECK(close(copies[--count]) == 0);
}

/* Bytes there and back over a connection that is accepted now. */
static void talk(int from, int listening)
{
    int to = accept(listening, NULL, NULL);
    CHECK(to >= 0);
    send_all(from, "there", 5);
    expect(to, "there");
    send_all(to, "back", 4);
    expect(from, "back");
    CHECK(close(to) == 0 && close(from) == 0);
}

int main(void)
{
    struct sockaddr_in at;
    int listening = listener(&at);
    talk(dial(&at), listening);
    for (int spare = 1; spare <= 4; spare++) {
        take_all(spare);
        int first = dial(&at), last;
        while ((last = dup(0)) >= 0)
            copies[count++] = last;
        CHECK(errno == EMFILE);
        FAILS(accept(listening, NULL, NULL), EMFILE);
        FAILS(accept(listening, NULL, NULL), EMFILE);
        give_back();
        talk(first, listening);
        talk(dial(&at), listening);
    }
    return 0;
}

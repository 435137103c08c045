/* At the limit of descriptors accept says so, the connection waits, and all goes on when there is room again. */
#include "limit.h"

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
        take_all_but(spare);
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

/* A listener's descriptor is copied and the first one closed: it listens on, for streams too. */
#include "quirk.h"

int main(void)
{
    struct sockaddr_in at;
    int first = listener(&at), copy = dup(first);
    CHECK(copy >= 0);
    CHECK(close(first) == 0);
    int client = dial(&at), server = accept(copy, NULL, NULL);
    CHECK(server >= 0);
    send_all(client, "heard", 5);
    expect(server, "heard");
    return 0;
}

/* A connection that takes the last descriptor that there is can be waited for in a set that had no stream before. */
#include "epoll.h"
#include "limit.h"

int main(void)
{
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max = 128;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    int set = set_of();
    struct sockaddr_in at;
    int listening = listener(&at);
    add(set, listening, EPOLLIN);
    take_all_but(1);
    int from = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(from >= 0);
    FAILS(dup(0), EMFILE);
    CHECK(connect(from, (struct sockaddr *)&at, sizeof at) == 0 || errno == EINPROGRESS);
    CHECK(change(set, EPOLL_CTL_DEL, listening, 0, 0) == 0);
    add(set, from, EPOLLOUT);
    CHECK(event_of(set, from, 5000) & EPOLLOUT);
    CHECK(close(copies[--count]) == 0);
    int to = accept(listening, NULL, NULL);
    CHECK(to >= 0);
    CHECK(change(set, EPOLL_CTL_MOD, from, EPOLLIN, (uint64_t)from) == 0);
    send_all(to, "there", 5);
    CHECK(event_of(set, from, 5000) == EPOLLIN);
    expect(from, "there");
    give_back();
    CHECK(close(to) == 0 && close(from) == 0 && close(listening) == 0 && close(set) == 0);
    return 0;
}

/* A connected socket is passed to another process (SCM_RIGHTS), with unread bytes; the sender closes its own. */
#include "quirk.h"

static void give(int channel, int fd)
{
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct iovec out = {"f", 1};
    struct msghdr message = {
        .msg_iov = &out, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    CHECK(sendmsg(channel, &message, 0) == 1);
}

static int take(int channel)
{
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    char byte;
    struct iovec in = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &in, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
    CHECK(recvmsg(channel, &message, MSG_CMSG_CLOEXEC) == 1);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    CHECK(header && header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(sizeof(int)));
    int fd;
    memcpy(&fd, CMSG_DATA(header), sizeof fd);
    CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
    return fd;
}

/* The other process was there before the connection was, as workers of a server are; `execute`: it is another
 * program image. */
static void pass(const char *self, int execute)
{
    int channel[2], ends[2];
    char byte, text[16];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(channel[0]);
        snprintf(text, sizeof text, "%d", channel[1]);
        if (execute)
            execl(self, self, text, (char *)NULL);
        int fd = take(channel[1]);
        expect(fd, "unread when passed;");
        send_all(fd, "from the worker", 15);
        expect(fd, "more");
        _exit(0);
    }
    close(channel[1]);
    pair(ends);
    send_all(ends[0], "seen;unread when passed;", 24);
    expect(ends[1], "seen;");
    give(channel[0], ends[1]);
    CHECK(close(ends[1]) == 0);
    expect(ends[0], "from the worker");
    send_all(ends[0], "more", 4);
    reap(child);
    CHECK(recv(ends[0], &byte, 1, 0) == 0);
    CHECK(close(ends[0]) == 0 && close(channel[0]) == 0);
}

/* Passed to oneself, and never taken: the last holder is the message. */
static void in_flight(void)
{
    int channel[2], ends[2];
    char byte;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, channel) == 0);
    pair(ends);
    give(channel[0], ends[1]);
    CHECK(close(ends[1]) == 0);
    send_all(ends[0], "to nobody yet", 13);
    int fd = take(channel[1]);
    expect(fd, "to nobody yet");
    send_all(fd, "here", 4);
    expect(ends[0], "here");
    CHECK(close(fd) == 0);
    CHECK(recv(ends[0], &byte, 1, 0) == 0);
    CHECK(close(ends[0]) == 0);

    pair(ends);
    give(channel[0], ends[1]);
    CHECK(close(ends[1]) == 0 && close(channel[0]) == 0 && close(channel[1]) == 0);
    CHECK(recv(ends[0], &byte, 1, 0) == 0 || errno == ECONNRESET);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        int fd = take(atoi(argv[1]));
        expect(fd, "unread when passed;");
        send_all(fd, "from the worker", 15);
        expect(fd, "more");
        return 0;
    }
    pass(argv[0], 0);
    pass(argv[0], 1);
    in_flight();
    return 0;
}

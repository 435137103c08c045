/* A connected socket with unread bytes goes to another program by every member of the exec family and by whatever else
 * starts programs; the parent closes its own descriptor at once, stays or ends. */
#include "quirk.h"
#include <spawn.h>
#include <sys/syscall.h>

#define AS 9

extern char **environ;

enum way {
    EXECL,
    EXECL_MANY,
    EXECLE,
    EXECLP,
    EXECV,
    EXECVE,
    EXECVP,
    EXECVPE,
    FEXECVE,
    EXECVEAT,
    SYS_EXECVE,
    VFORK_EXECL,
    VFORK_EXECVE,
    SPAWN,
    SPAWN_CLOEXEC,
    SPAWNP,
    SYSTEM,
    POPEN,
    WAYS
};

/* The program that is started: the stream is its descriptors AS and 0. */
static void started(const char *way, int argc, char **argv)
{
    char text[64];
    if (atoi(way) == EXECL_MANY)
        CHECK(argc == 12 && strcmp(argv[11], "ten") == 0 && strcmp(argv[5], "four") == 0);
    if (atoi(way) == EXECLE)
        CHECK(getenv("QUIRK_EXTRA") && strcmp(getenv("QUIRK_EXTRA"), "yes") == 0);
    usleep(50000);
    expect(AS, "unread;");
    CHECK(snprintf(text, sizeof text, "hello %s;", way) > 0);
    send_all(0, text, strlen(text));
    CHECK(close(0) == 0);
    expect(AS, "more;");
    send_all(AS, "bye", 3);
    exit(0);
}

static void take_place(int stream)
{
    CHECK(dup2(stream, AS) == AS && dup2(stream, 0) == 0);
}

static void execute(enum way way, const char *self, char *number)
{
    char *argv[] = {(char *)self, number, NULL};
    int fd;
    switch (way) {
    case EXECL:
    case VFORK_EXECL:
        execl(self, self, number, (char *)NULL);
        break;
    case EXECL_MANY:
        execl(self, self, number, "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
              (char *)NULL);
        break;
    case EXECLE: {
        char library[4096], control[4096], address[64];
        snprintf(library, sizeof library, "LD_PRELOAD=%s", getenv("LD_PRELOAD") ? getenv("LD_PRELOAD") : "");
        snprintf(control, sizeof control, "CROSSLANE_SOCKET=%s",
                 getenv("CROSSLANE_SOCKET") ? getenv("CROSSLANE_SOCKET") : "");
        snprintf(address, sizeof address, "QUIRK_ADDRESS=%s", getenv("QUIRK_ADDRESS") ? getenv("QUIRK_ADDRESS") : "");
        char *envp[] = {library, "QUIRK_EXTRA=yes", control, address, NULL};
        execle(self, self, number, (char *)NULL, envp);
        break;
    }
    case EXECLP:
        execlp(self, self, number, (char *)NULL);
        break;
    case EXECV:
        execv(self, argv);
        break;
    case EXECVE:
    case VFORK_EXECVE:
        execve(self, argv, environ);
        break;
    case EXECVP:
        execvp(self, argv);
        break;
    case EXECVPE:
        execvpe(self, argv, environ);
        break;
    case FEXECVE:
        fd = open(self, O_RDONLY);
        fexecve(fd, argv, environ);
        break;
    case EXECVEAT:
        execveat(AT_FDCWD, self, argv, environ, 0);
        break;
    case SYS_EXECVE:
        syscall(SYS_execve, self, argv, environ);
        break;
    default:
        break;
    }
    _exit(127);
}

/* Starts the program with the stream; -1 if there is nothing to wait for. */
static pid_t start(enum way way, const char *self, int stream)
{
    char number[8], command[4096];
    char *argv[] = {(char *)self, number, NULL};
    posix_spawn_file_actions_t actions;
    pid_t child = -1;
    snprintf(number, sizeof number, "%d", way);
    switch (way) {
    case VFORK_EXECL:
    case VFORK_EXECVE:
        child = vfork();
        if (child == 0) {
            dup2(stream, AS);
            dup2(stream, 0);
            execute(way, self, number);
        }
        CHECK(child > 0);
        return child;
    case SPAWN_CLOEXEC:
        CHECK(fcntl(stream, F_SETFD, FD_CLOEXEC) == 0);
        /* fall through */
    case SPAWN:
    case SPAWNP:
        CHECK(posix_spawn_file_actions_init(&actions) == 0);
        CHECK(posix_spawn_file_actions_adddup2(&actions, stream, AS) == 0);
        CHECK(posix_spawn_file_actions_adddup2(&actions, stream, 0) == 0);
        CHECK((way == SPAWNP ? posix_spawnp : posix_spawn)(&child, self, &actions, NULL, argv, environ) == 0);
        CHECK(posix_spawn_file_actions_destroy(&actions) == 0);
        return child;
    case SYSTEM:
    case POPEN: {
        snprintf(command, sizeof command, "exec '%s' %s <&%d %d<&%d", self, number, stream, AS, stream);
        if (way == POPEN) {
            /* As the parent goes on. */
            CHECK(popen(command, "w") != NULL);
            return -1;
        }
        child = fork();
        CHECK(child >= 0);
        if (child == 0)
            _exit(system(command) == 0 ? 0 : 1);
        return child;
    }
    default:
        child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            take_place(stream);
            execute(way, self, number);
        }
        return child;
    }
}

static void talk(int far, enum way way)
{
    char text[64], byte;
    CHECK(snprintf(text, sizeof text, "hello %d;", way) > 0);
    expect(far, text);
    send_all(far, "more;", 5);
    expect(far, "bye");
    CHECK(recv(far, &byte, 1, 0) == 0);
    CHECK(close(far) == 0);
}

static void parent_stays(enum way way, const char *self)
{
    int ends[2];
    pair(ends);
    CHECK(fcntl(ends[0], F_SETFD, FD_CLOEXEC) == 0);
    send_all(ends[0], "read;unread;", 12);
    expect(ends[1], "read;");
    pid_t child = start(way, self, ends[1]);
    CHECK(close(ends[1]) == 0);
    talk(ends[0], way);
    if (child > 0)
        reap(child);
}

/* The process that started the program is gone before that has looked at the stream. */
static void parent_ends(enum way way, const char *self)
{
    int ends[2];
    pair(ends);
    CHECK(fcntl(ends[0], F_SETFD, FD_CLOEXEC) == 0);
    send_all(ends[0], "read;unread;", 12);
    expect(ends[1], "read;");
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(close(ends[0]) == 0);
        start(way, self, ends[1]);
        _exit(0);
    }
    CHECK(close(ends[1]) == 0);
    reap(child);
    talk(ends[0], way);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        started(argv[1], argc, argv);
    CHECK(dup2(open("/dev/null", O_RDONLY), 0) == 0);
    for (int way = 0; way < WAYS; way++) {
        fprintf(stderr, "way %d\n", way);
        parent_stays((enum way)way, argv[0]);
        if (way != SYSTEM)
            parent_ends((enum way)way, argv[0]);
    }
    return 0;
}

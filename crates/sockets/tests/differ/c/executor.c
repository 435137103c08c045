/* Runs scripts of socket calls and prints what each call gave. Reads from its input
 *
 *     begin ADDRESS              the loopback address that is the script's own
 *     PROCESS CALL ARGUMENTS..   numbers, decimal or 0x..
 *     end
 *
 * and prints a line for each call, `INDEX CALL RESULTS..`, and `end HOW` behind them. Each script runs in a process of its
 * own, which may fork others: they make their calls one after the other, in the order of the script. */
#include "core.h"
#include "bad.h"
#include "moving.h"
#include "naming.h"
#include "waiting.h"

struct call {
    const char *name;
    void (*make)(const struct op *op);
};

static void call_fork(const struct op *op);
static void call_exit(const struct op *op);

static const struct call calls[] = {
    {"socket", call_socket}, {"socketpair", call_socketpair}, {"pipe", call_pipe}, {"file", call_file},
    {"bind", call_bind}, {"listen", call_listen}, {"connect", call_connect}, {"accept", call_accept},
    {"close", call_close}, {"shutdown", call_shutdown}, {"dup", call_dup}, {"dup2", call_dup2},
    {"fcntl", call_fcntl}, {"ioctl", call_ioctl}, {"name", call_name}, {"setopt", call_setopt},
    {"settime", call_settime}, {"getopt", call_getopt}, {"stat", call_stat}, {"refused", call_refused},
    {"send", call_send}, {"write", call_write}, {"sendto", call_sendto}, {"writev", call_writev},
    {"sendmsg", call_sendmsg}, {"sendmmsg", call_sendmmsg}, {"recv", call_recv}, {"read", call_read},
    {"recvfrom", call_recvfrom}, {"readv", call_readv}, {"recvmsg", call_recvmsg}, {"recvmmsg", call_recvmmsg},
    {"at", call_at}, {"sendfile", call_sendfile}, {"splice", call_splice}, {"tee", call_tee},
    {"flood", call_flood}, {"drain", call_drain}, {"poll", call_poll}, {"select", call_select},
    {"epoll_create", call_epoll_create}, {"epoll_ctl", call_epoll_ctl}, {"epoll_wait", call_epoll_wait},
    {"bad_data", call_bad_data}, {"bad_argument", call_bad_argument}, {"bad_event", call_bad_event}, {"probe", call_probe}, {"sleep", call_sleep}, {"fork", call_fork}, {"exit", call_exit},
};

static struct op script[OPS];
static int script_len;

static void on_alarm(int number) { (void)number; }
static void on_pipe(int number)
{
    (void)number;
    pipes++;
}

static void make(const struct op *op)
{
    const struct itimerval bound = {{0, BLOCKED_MS * 1000}, {0, BLOCKED_MS * 1000}}, none = {{0, 0}, {0, 0}};
    out("%d %s", shared->current, op->name);
    for (size_t at = 0; at < sizeof calls / sizeof calls[0]; at++)
        if (strcmp(calls[at].name, op->name) == 0) {
            int before = pipes;
            setitimer(ITIMER_REAL, &bound, NULL);
            errno = 0;
            calls[at].make(op);
            setitimer(ITIMER_REAL, &none, NULL);
            if (pipes != before)
                out(" SIGPIPE=%d", pipes - before);
            out("\n");
            return;
        }
    out(" unknown\n");
}

static void await(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0) {
    }
}

/* What a child had open is closed when it can be waited for. */
static void reap(void)
{
    while (wait(NULL) < 0 && errno == EINTR) {
    }
}

/* A process that is not the first one: makes the calls that it is told to. */
static void follow(void)
{
    for (;;) {
        await(&shared->go[my_process]);
        if (shared->current < 0)
            _exit(0);
        if (shared->reap)
            reap();
        else
            make(&script[shared->current]);
        sem_post(&shared->done);
    }
}

/* process: forks it */
static void call_fork(const struct op *op)
{
    long child = arg(op, 0);
    if (child <= 0 || child >= PROCESSES || shared->alive[child]) {
        out(" no");
        return;
    }
    pid_t pid = fork();
    if (pid == 0) {
        const struct itimerval none = {{0, 0}, {0, 0}};
        setitimer(ITIMER_REAL, &none, NULL);
        my_process = (int)child;
        follow();
    }
    shared->alive[child] = pid > 0;
    shared->parent[child] = my_process;
    out(" r=%d", pid > 0 ? 0 : -1);
}

/* The process ends; not the first one. What it had open is closed when its parent goes on. */
static void call_exit(const struct op *op)
{
    (void)op;
    if (my_process == 0)
        return;
    out("\n");
    shared->alive[my_process] = 0;
    _exit(0);
}

/* Tells a process to make call `current`, and waits until it has. */
static void tell(int process)
{
    sem_post(&shared->go[process]);
    await(&shared->done);
}

/* A process has been told to end. */
static void ended(int process)
{
    int parent = shared->parent[process];
    if (parent == 0 || !shared->alive[parent]) {
        reap();
        return;
    }
    shared->reap = 1;
    tell(parent);
    shared->reap = 0;
}

/* Calls of `op->process` are made there; of one that is not there, nowhere. */
static void direct(void)
{
    for (int index = 0; index < script_len; index++) {
        int process = script[index].process;
        shared->current = index;
        if (process == 0) {
            make(&script[index]);
        } else if (shared->alive[process]) {
            if (strcmp(script[index].name, "exit") == 0) {
                sem_post(&shared->go[process]);
                ended(process);
            } else {
                tell(process);
            }
        }
    }
    shared->current = -1;
    for (int process = 1; process < PROCESSES; process++)
        if (shared->alive[process])
            sem_post(&shared->go[process]);
    /* Those that children have left are ours. */
    while (wait(NULL) > 0 || errno == EINTR) {
    }
}

static void begin(void)
{
    const struct sigaction alarm_action = {.sa_handler = on_alarm}, pipe_action = {.sa_handler = on_pipe};
    sigaction(SIGALRM, &alarm_action, NULL);
    sigaction(SIGPIPE, &pipe_action, NULL);
    for (int name = 0; name < SLOTS; name++)
        slot[name] = -1;
    setpgid(0, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    direct();
    _exit(0);
}

static void run(void)
{
    shared->used = 0;
    shared->ports = 0;
    shared->current = 0;
    shared->reap = 0;
    memset(shared->alive, 0, sizeof shared->alive);
    memset(shared->at_len, 0, sizeof shared->at_len);
    for (int process = 0; process < PROCESSES; process++)
        sem_init(&shared->go[process], 1, 0);
    sem_init(&shared->done, 1, 0);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        begin();
    int status = 0, waited = 0;
    const struct timespec limit = {SCRIPT_S, 0};
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    while (waitpid(pid, &status, WNOHANG) != pid) {
        if (sigtimedwait(&child, NULL, &limit) < 0 && errno == EAGAIN) {
            kill(-pid, SIGKILL);
            kill(pid, SIGKILL);
            waited = waitpid(pid, &status, 0) == pid;
            break;
        }
    }
    /* Those that a first process which crashed has left wait for calls, and would make the next script's. */
    kill(-pid, SIGKILL);
    while (waitpid(-pid, NULL, 0) > 0 || errno == EINTR) {
    }
    fwrite(shared->trace, 1, shared->used, stdout);
    if (waited)
        printf("\nend hangs in %d\n", shared->current);
    else if (WIFSIGNALED(status))
        printf("\nend signal %d in %d\n", WTERMSIG(status), shared->current);
    else
        printf("end %d\n", WEXITSTATUS(status));
    fflush(stdout);
}

static void parse(char *line)
{
    struct op *op = &script[script_len];
    char *next, *word = strtok_r(line, " \n", &next);
    memset(op, 0, sizeof *op);
    if (word == NULL || script_len == OPS)
        return;
    op->process = atoi(word) < PROCESSES ? atoi(word) : 0;
    word = strtok_r(NULL, " \n", &next);
    if (word == NULL)
        return;
    snprintf(op->name, sizeof op->name, "%s", word);
    while (op->count < ARGS && (word = strtok_r(NULL, " \n", &next)) != NULL)
        op->arg[op->count++] = strtol(word, NULL, 0);
    script_len++;
}

int main(void)
{
    char line[512], word[64];
    sigset_t child;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (sscanf(line, "begin %63s", word) == 1) {
            script_len = 0;
            inet_pton(AF_INET, word, &script_address);
        } else if (strncmp(line, "end", 3) == 0) {
            run();
        } else {
            parse(line);
        }
    }
    return 0;
}

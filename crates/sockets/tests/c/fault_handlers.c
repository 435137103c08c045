/* A program's own way with SIGSEGV and SIGBUS stays its own when it has streams: what it sets is what it finds, what its handlers
 * are told, on which stack, with which signals blocked, and how it ends. And its bad buffers are EFAULT all the same. */
#include "bad.h"
#include <setjmp.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ucontext.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static int near, far;
static sigjmp_buf out;
static siginfo_t told;
static volatile sig_atomic_t calls, signal_told;
static volatile char *stack_at;
static sigset_t blocked;
static volatile long sink;

static void look(int number)
{
    char here;
    calls++;
    signal_told = number;
    stack_at = &here;
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
}

static void leave(int number, siginfo_t *info, void *context)
{
    (void)context;
    look(number);
    told = *info;
    siglongjmp(out, 1);
}

/* Goes on behind the instruction, which is `mov (%rax), %eax`, two bytes. */
static void skip(int number, siginfo_t *info, void *context)
{
    look(number);
    told = *info;
#ifdef __x86_64__
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
#endif
}

static void simple(int number)
{
    look(number);
    siglongjmp(out, 1);
}

static void again(int number)
{
    look(number);
    mprotect(constant, 4096, PROT_READ | PROT_WRITE);
}

static struct sigaction set(int number, void (*handler)(int, siginfo_t *, void *), int flags)
{
    struct sigaction action = {.sa_flags = flags}, old;
    if (flags & SA_SIGINFO)
        action.sa_sigaction = handler;
    else
        action.sa_handler = (void (*)(int))(void *)handler;
    sigaddset(&action.sa_mask, SIGUSR2);
    CHECK(sigaction(number, &action, &old) == 0);
    return old;
}

static void still_efault(void)
{
    int before = calls;
    FAILS(send(near, edge - 10, 20, 0), EFAULT);
    FAILS(send(near, cut_off, 20, 0), EFAULT);
    CHECK(calls == before);
}

#define FAULTS(access) (sigsetjmp(out, 1) == 0 ? ((access), 0) : 1)

static void own_handlers(void)
{
    CHECK(set(SIGSEGV, leave, SA_SIGINFO).sa_handler == SIG_DFL);
    CHECK(set(SIGBUS, leave, SA_SIGINFO | SA_NODEFER).sa_handler == SIG_DFL);
    still_efault();
    CHECK(FAULTS(*(volatile char *)edge));
    CHECK(signal_told == SIGSEGV && told.si_addr == edge && told.si_code == SEGV_MAPERR);
    CHECK(sigismember(&blocked, SIGUSR2) == 1 && sigismember(&blocked, SIGSEGV) == 1);
    CHECK(FAULTS(*(volatile char *)constant = 1));
    CHECK(told.si_addr == constant && told.si_code == SEGV_ACCERR);
    CHECK(FAULTS(*(volatile char *)cut_off));
    CHECK(signal_told == SIGBUS && told.si_addr == cut_off && told.si_code == BUS_ADRERR);
    CHECK(sigismember(&blocked, SIGBUS) == 0);
    /* The C library's own reads are the program's. */
    CHECK(FAULTS(memcpy((void *)&sink, edge - 4, 8)));
    union sigval value = {.sival_int = 4711};
    CHECK(FAULTS(sigqueue(getpid(), SIGSEGV, value)));
    CHECK(told.si_code == SI_QUEUE && told.si_value.sival_int == 4711);
    CHECK(FAULTS(raise(SIGBUS)));
    CHECK(told.si_code == SI_TKILL && told.si_pid == getpid());
    set(SIGSEGV, (void (*)(int, siginfo_t *, void *))(void *)simple, 0);
    CHECK(FAULTS(*(volatile char *)edge) && signal_told == SIGSEGV);
    still_efault();
#ifdef __x86_64__
    set(SIGSEGV, skip, SA_SIGINFO);
    int before = calls;
    long rax = (long)edge;
    __asm__ volatile("mov (%%rax), %%eax" : "+a"(rax));
    CHECK(calls == before + 1 && rax == (long)edge);
#endif
    set(SIGSEGV, (void (*)(int, siginfo_t *, void *))(void *)again, 0);
    constant[0] = 'w';
    CHECK(constant[0] == 'w' && mprotect(constant, 4096, PROT_READ) == 0);
}

static void what_is_set_is_found(void)
{
    int flags[] = {0, SA_SIGINFO, SA_RESTART, SA_NODEFER | SA_SIGINFO, SA_ONSTACK, SA_RESETHAND, SA_RESETHAND | SA_SIGINFO};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        struct sigaction found;
        set(SIGSEGV, leave, flags[i]);
        CHECK(sigaction(SIGSEGV, NULL, &found) == 0);
        CHECK(found.sa_sigaction == leave && (found.sa_flags & ~0x04000000) == flags[i]);
        CHECK(sigismember(&found.sa_mask, SIGUSR2) == 1 && sigismember(&found.sa_mask, SIGUSR1) == 0);
        struct { void *handler; unsigned long flags; void *restorer; uint64_t mask; } kernels;
        CHECK(syscall(SYS_rt_sigaction, SIGSEGV, NULL, &kernels, 8) == 0);
        CHECK(kernels.handler == (void *)leave && ((int)kernels.flags & ~0x04000000) == flags[i]);
        CHECK(syscall(SYS_rt_sigaction, SIGSEGV, &kernels, NULL, 8) == 0);
        CHECK(syscall(SYS_rt_sigaction, SIGSEGV, &kernels, &kernels, 8) == 0 && kernels.handler == (void *)leave);
        still_efault();
    }
    CHECK(signal(SIGSEGV, SIG_IGN) == (void (*)(int))(void *)leave);
    CHECK(signal(SIGSEGV, simple) == SIG_IGN);
    struct sigaction found;
    CHECK(sigaction(SIGSEGV, NULL, &found) == 0);
    CHECK(found.sa_handler == simple && (found.sa_flags & ~0x04000000) == SA_RESTART);
    CHECK(sigismember(&found.sa_mask, SIGSEGV) == 1);
    CHECK(sysv_signal(SIGSEGV, SIG_DFL) == simple);
    CHECK(sigset(SIGSEGV, simple) == SIG_DFL && sigset(SIGSEGV, SIG_HOLD) == simple);
    CHECK(sigset(SIGSEGV, simple) == SIG_HOLD);
    still_efault();
    CHECK(sigignore(SIGSEGV) == 0 && signal(SIGSEGV, SIG_DFL) == SIG_IGN);
    CHECK(siginterrupt(SIGSEGV, 1) == 0);
    FAILS(sigaction(SIGKILL, &found, NULL), EINVAL);
    FAILS(syscall(SYS_rt_sigaction, SIGSEGV, edge, NULL, 8), EFAULT);
    FAILS(syscall(SYS_rt_sigaction, SIGSEGV, NULL, NULL, 4), EINVAL);
    still_efault();
}

static void once(void)
{
    struct sigaction found;
    set(SIGSEGV, leave, SA_SIGINFO | SA_RESETHAND);
    still_efault();
    CHECK(sigaction(SIGSEGV, NULL, &found) == 0 && found.sa_sigaction == leave);
    CHECK(FAULTS(*(volatile char *)edge));
    CHECK(sigaction(SIGSEGV, NULL, &found) == 0 && found.sa_handler == SIG_DFL);
    CHECK((found.sa_flags & ~0x04000000) == (SA_SIGINFO | (int)SA_RESETHAND));
    still_efault();
}

/* Depth without end; what is done with the result keeps the calls. */
static long deeper(long depth)
{
    static volatile long deep_enough = -1;
    volatile char page[2048];
    page[depth & 1023] = (char)depth;
    if (depth == deep_enough)
        return 0;
    return deeper(depth + 1) + page[7];
}

static void other_stack(void)
{
    static char area[64 * 1024];
    stack_t stack = {.ss_sp = area, .ss_size = sizeof area}, found;
    CHECK(sigaltstack(&stack, NULL) == 0);
    set(SIGSEGV, leave, SA_SIGINFO | SA_ONSTACK);
    still_efault();
    CHECK(FAULTS(*(volatile char *)edge));
    CHECK((char *)stack_at >= area && (char *)stack_at < area + sizeof area);
    set(SIGSEGV, leave, SA_SIGINFO);
    CHECK(FAULTS(*(volatile char *)edge));
    CHECK((char *)stack_at < area || (char *)stack_at >= area + sizeof area);
    set(SIGSEGV, leave, SA_SIGINFO | SA_ONSTACK);
    CHECK(FAULTS(sink = deeper(0)));
    CHECK(told.si_code > 0 && (char *)stack_at >= area && (char *)stack_at < area + sizeof area);
    stack.ss_flags = SS_DISABLE;
    CHECK(sigaltstack(&stack, &found) == 0 && found.ss_sp == area);
    still_efault();
}

static void *in_thread(void *none)
{
    FAILS(send(near, edge - 10, 20, 0), EFAULT);
    CHECK(FAULTS(*(volatile char *)edge));
    return none;
}

enum way { READS, WRITES, BUS, RAISES, QUEUES, DEEP, AGAIN };

/* How a child ends that does this, after a bad buffer. */
static int ends_by(enum way way, void (*disposition)(int))
{
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        if (way != AGAIN)
            signal(SIGSEGV, disposition), signal(SIGBUS, disposition);
        still_efault();
        switch (way) {
        case READS: sink = *(volatile char *)edge; break;
        case WRITES: *(volatile char *)constant = 1; break;
        case BUS: sink = *(volatile char *)cut_off; break;
        case RAISES: raise(SIGSEGV); break;
        case QUEUES: sigqueue(getpid(), SIGBUS, (union sigval){.sival_int = 1}); break;
        case DEEP: sink = deeper(0); break;
        case AGAIN: set(SIGSEGV, leave, SA_SIGINFO | SA_RESETHAND);
            CHECK(FAULTS(*(volatile char *)edge));
            sink = *(volatile char *)edge;
        }
        _exit(42);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    return status;
}

static void how_it_ends(void)
{
    CHECK(WTERMSIG(ends_by(READS, SIG_DFL)) == SIGSEGV && WTERMSIG(ends_by(WRITES, SIG_DFL)) == SIGSEGV);
    CHECK(WTERMSIG(ends_by(BUS, SIG_DFL)) == SIGBUS && WTERMSIG(ends_by(DEEP, SIG_DFL)) == SIGSEGV);
    CHECK(WTERMSIG(ends_by(RAISES, SIG_DFL)) == SIGSEGV && WTERMSIG(ends_by(QUEUES, SIG_DFL)) == SIGBUS);
    CHECK(WTERMSIG(ends_by(AGAIN, SIG_DFL)) == SIGSEGV);
    /* Nobody ignores a fault, but what others send. */
    CHECK(WTERMSIG(ends_by(READS, SIG_IGN)) == SIGSEGV && WTERMSIG(ends_by(BUS, SIG_IGN)) == SIGBUS);
    CHECK(WEXITSTATUS(ends_by(RAISES, SIG_IGN)) == 42 && WEXITSTATUS(ends_by(QUEUES, SIG_IGN)) == 42);
}

/* A signal that is ignored interrupts no call. */
static void ignored_in_between(void)
{
    signal(SIGSEGV, SIG_IGN), signal(SIGBUS, SIG_DFL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        usleep(50000);
        kill(getppid(), SIGSEGV);
        usleep(50000);
        send_all(far, "x", 1);
        _exit(0);
    }
    char byte;
    CHECK(recv(near, &byte, 1, 0) == 1);
    reap(child);
}

/* A program that is executed ignores what this one ignored, and catches nothing. */
static void executed(void)
{
    char caught[] = "grep -q '^SigIgn:.*[4-7c-f]..$' /proc/$$/status";
    signal(SIGSEGV, SIG_IGN);
    CHECK(system(caught) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", caught, NULL);
        _exit(1);
    }
    reap(pid);
    pid = vfork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct sigaction found, normal = {.sa_handler = SIG_DFL};
        if (sigaction(SIGSEGV, &normal, &found) != 0 || found.sa_handler != SIG_IGN)
            _exit(1);
        execl("/bin/sh", "sh", "-c", "! grep -q '^SigIgn:.*[4-7c-f]..$' /proc/$$/status", NULL);
        _exit(1);
    }
    reap(pid);
    FAILS(execv("/nowhere/at/all", (char *[]){"x", NULL}), ENOENT);
    CHECK(signal(SIGSEGV, SIG_DFL) == SIG_IGN);
    CHECK(system(caught) != 0);
    still_efault();
}

int main(void)
{
    int ends[2];
    /* Set before there is a stream, and found behind it. */
    set(SIGSEGV, leave, SA_SIGINFO | SA_NODEFER);
    pair(ends);
    near = ends[0], far = ends[1];
    make_bad();
    send_all(near, "x", 1);
    expect(far, "x");
    CHECK(set(SIGSEGV, (void (*)(int, siginfo_t *, void *))(void *)SIG_DFL, 0).sa_sigaction == leave);
    own_handlers();
    what_is_set_is_found();
    once();
    other_stack();
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, in_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);
    how_it_ends();
    ignored_in_between();
    executed();
    send_all(near, "still", 5);
    expect(far, "still");
    return 0;
}

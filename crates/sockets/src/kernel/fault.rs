//! The handler of `SIGSEGV` and `SIGBUS` in a program that has streams. A guarded copy ([`crosslane_shm::guarded`]) that faults
//! returns an error, and the call on the stream fails with `EFAULT`. All other faults are the program's, as if we were not there.
//!
//! From the first stream on the kernel has our action, with the flags and the mask of the program's own: it runs where
//! the program's would, and ends by a jump to that one, with the stack as the kernel made it. Queries of the action are
//! answered from what the program has set ([`crate::hook::signal`]).
//!
//! On other processors than x86-64 nothing is caught.

#[cfg(target_arch = "x86_64")]
mod entry;
#[cfg(not(target_arch = "x86_64"))]
mod entry {
    pub(super) fn address() -> usize {
        0
    }
}

use crate::kernel::{program, real, thread};
use core::ffi::c_int;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize};
use crosslane_shm::lock::{Guard, Lock};
use libc::{SA_RESETHAND, SA_RESTART, SA_SIGINFO, SIG_DFL, SIG_IGN, SIGBUS, SIGSEGV};

/// Flags in which our action differs from the program's.
const OTHERWISE: c_int = SA_SIGINFO | SA_RESETHAND | SA_RESTART;
/// What the program has set for a signal.
struct Action {
    handler: AtomicUsize,
    flags: AtomicI32,
}

/// A handler, `SIG_DFL` or `SIG_IGN`, and its flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handling {
    /// The handler.
    pub handler: usize,
    /// `sa_flags`.
    pub flags: c_int,
}

static SEGV: Action = Action::new();
static BUS: Action = Action::new();
/// Whether the kernel has our action.
static CAUGHT: AtomicBool = AtomicBool::new(false);
/// Held while actions are changed.
static LOCK: Lock = Lock::new();

fn action_of(signal: c_int) -> Option<&'static Action> {
    match signal {
        SIGSEGV => Some(&SEGV),
        SIGBUS => Some(&BUS),
        _ => None,
    }
}

/// Whether faults of guarded copies are caught: true from the first stream on.
#[inline]
pub fn is_caught() -> bool {
    CAUGHT.load(Relaxed)
}

/// Starts to catch faults of guarded copies.
#[inline]
pub fn catch() {
    if cfg!(target_arch = "x86_64") && !is_caught() {
        catch_now();
    }
}

/// Not behind a system call filter, which may end the process for it: programs that may have streams there have called this before.
#[cold]
fn catch_now() {
    if program::sandboxed() {
        return;
    }
    let errno = real::errno();
    let _guard = lock();
    if !CAUGHT.load(Acquire) {
        for signal in [SIGSEGV, SIGBUS] {
            put_ours(signal);
        }
        CAUGHT.store(true, Release);
    }
    real::set_errno(errno);
}

/// In the child of a `fork`.
pub fn after_fork() {
    LOCK.reset();
}

/// Whether this signal's action in the kernel is ours, and the program's is kept here. Not so in a child of `vfork`:
/// its actions are its own, and the kept ones are its parent's.
pub fn keeps(signal: c_int) -> bool {
    is_caught() && action_of(signal).is_some() && program::is_owner()
}

/// `sigaction`: replaces the kept action by the program's new one, if any, and returns the one before. `kernel` makes
/// the kernel's call with the action to install, and returns what the kernel had.
pub fn exchange(
    signal: c_int,
    new: Option<Handling>,
    kernel: impl FnOnce(Option<Handling>) -> Result<Handling, c_int>,
) -> Result<Handling, c_int> {
    let _guard = lock();
    let before = kernel(new.map(ours))?;
    let before = programs_action(signal, before);
    if let Some((new, action)) = new.zip(action_of(signal)).filter(|(new, _)| new.handler != entry::address())
    {
        action.keep(new);
    }
    Ok(before)
}

/// The action that the program has set, where the kernel has `kernels`.
pub fn programs_action(signal: c_int, kernels: Handling) -> Handling {
    match action_of(signal) {
        Some(action) if kernels.handler == entry::address() => {
            let kept = action.handling();
            Handling { handler: kept.handler, flags: kernels.flags & !OTHERWISE | kept.flags & OTHERWISE }
        }
        _ => kernels,
    }
}

/// Runs `call`, which changes the action of `signal` by a function of the C library, while the kernel has the program's.
pub fn lifted<T>(signal: c_int, call: impl FnOnce() -> T) -> T {
    if !keeps(signal) {
        return call();
    }
    let _guard = lock();
    if let Some(mut action) = kernels(signal) {
        let programs = programs_action(signal, handling(&action));
        set(&mut action, programs);
        put(signal, &action);
    }
    let outcome = call();
    let errno = real::errno();
    put_ours(signal);
    real::set_errno(errno);
    outcome
}

/// Runs `call`, which executes another program or makes a child that does: the new program must ignore the same signals.
pub fn executing<T>(call: impl FnOnce() -> T) -> T {
    let ignored =
        |signal: &c_int| action_of(*signal).is_some_and(|action| action.handler.load(Relaxed) == SIG_IGN);
    if !is_caught() || ![SIGSEGV, SIGBUS].iter().any(ignored) {
        return call();
    }
    // A child of `vfork` may have set its own.
    let is_ours = |action: &libc::sigaction| action.sa_sigaction == entry::address();
    let before =
        [SIGSEGV, SIGBUS].map(|signal| Some(signal).filter(ignored).and_then(kernels).filter(is_ours));
    for (signal, action) in [SIGSEGV, SIGBUS].into_iter().zip(before) {
        if let Some(mut action) = action {
            action.sa_sigaction = SIG_IGN;
            put(signal, &action);
        }
    }
    let outcome = call();
    let errno = real::errno();
    for (signal, action) in [SIGSEGV, SIGBUS].into_iter().zip(before) {
        action.inspect(|action| put(signal, action));
    }
    real::set_errno(errno);
    outcome
}

impl Action {
    const fn new() -> Self {
        Self { handler: AtomicUsize::new(SIG_DFL), flags: AtomicI32::new(0) }
    }

    fn handling(&self) -> Handling {
        Handling { handler: self.handler.load(Acquire), flags: self.flags.load(Relaxed) }
    }

    fn keep(&self, new: Handling) {
        self.flags.store(new.flags, Relaxed);
        self.handler.store(new.handler, Release);
    }

    /// The handler to run now.
    fn take(&self) -> usize {
        let Handling { handler, flags } = self.handling();
        if flags & SA_RESETHAND != 0 && !matches!(handler, SIG_DFL | SIG_IGN) {
            return self.handler.swap(SIG_DFL, Relaxed);
        }
        handler
    }
}

/// The action to install where the program wants `new`. An ignored signal interrupts nothing.
fn ours(new: Handling) -> Handling {
    let restart = if new.handler == SIG_IGN { SA_RESTART } else { 0 };
    Handling { handler: entry::address(), flags: new.flags & !SA_RESETHAND | SA_SIGINFO | restart }
}

/// Takes the lock; a signal handler that interrupted this thread's own work goes on without it.
fn lock() -> Option<Guard<'static>> {
    LOCK.lock(thread::tid()).ok()
}

/// Installs our action for `signal`, and keeps the kernel's as the program's.
fn put_ours(signal: c_int) {
    let (Some(mut action), Some(kept)) = (kernels(signal), action_of(signal)) else { return };
    let new = handling(&action);
    if new.handler != entry::address() {
        kept.keep(new);
        set(&mut action, ours(new));
        put(signal, &action);
    }
}

fn kernels(signal: c_int) -> Option<libc::sigaction> {
    // SAFETY: all-zero bytes are a valid action, which the kernel fills.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    // SAFETY: our own action.
    (unsafe { real::sigaction(signal, core::ptr::null(), &raw mut action) } == 0).then_some(action)
}

fn put(signal: c_int, action: &libc::sigaction) {
    // SAFETY: an action of the kernel's, with another handler.
    unsafe { real::sigaction(signal, action, core::ptr::null_mut()) };
}

fn handling(action: &libc::sigaction) -> Handling {
    Handling { handler: action.sa_sigaction, flags: action.sa_flags }
}

fn set(action: &mut libc::sigaction, to: Handling) {
    action.sa_sigaction = to.handler;
    action.sa_flags = to.flags;
}

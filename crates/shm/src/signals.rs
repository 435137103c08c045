//! Delay of a thread's signals.

use core::cell::Cell;
use core::mem::MaybeUninit;

thread_local! {
    /// Whether this thread has all signals blocked as long as it lives.
    static FOR_GOOD: Cell<bool> = const { Cell::new(false) };
}

/// Blocks all signals of this thread as long as it lives: other threads handle them. [`Masked`] then costs no system call.
pub fn block_for_good() {
    let _ = Masked::new();
    FOR_GOOD.set(true);
}

/// The thread's signal mask before all signals were blocked: they stay pending until [`Masked::end`]. `None` where they are blocked for good.
#[derive(Debug)]
pub struct Masked(Option<libc::sigset_t>);

impl Masked {
    /// Blocks all signals from now on.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it does something")]
    pub fn new() -> Self {
        if FOR_GOOD.get() {
            return Self(None);
        }
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: both are filled by the calls; a mask that is valid never fails.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::sigemptyset(before.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            Self(Some(before.assume_init()))
        }
    }

    /// Restores the mask, which delivers pending signals.
    pub fn end(&self) {
        if let Some(before) = &self.0 {
            // SAFETY: a mask that the kernel filled.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, core::ptr::null_mut()) };
        }
    }

    /// Whether a signal is pending that was not blocked before.
    pub fn any_waits(&self) -> bool {
        let Some(before) = &self.0 else { return false };
        let mut waiting = MaybeUninit::uninit();
        // SAFETY: filled by the calls; signal numbers are in range.
        unsafe {
            libc::sigemptyset(waiting.as_mut_ptr());
            libc::sigpending(waiting.as_mut_ptr());
            let waiting = waiting.assume_init();
            (1..=64).any(|signal| {
                libc::sigismember(&raw const waiting, signal) == 1 && libc::sigismember(before, signal) == 0
            })
        }
    }
}

#[cfg(not(miri))]
#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

    static HEARD: AtomicU32 = AtomicU32::new(0);

    extern "C" fn hear(_signal: libc::c_int) {
        HEARD.fetch_add(1, SeqCst);
    }

    #[test]
    fn signal_is_held_and_delivered() {
        // SAFETY: a handler that only counts; the signal goes to this thread.
        unsafe { libc::signal(libc::SIGURG, hear as *const () as libc::sighandler_t) };
        let masked = Masked::new();
        assert!(!masked.any_waits());
        // SAFETY: as above.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGURG) };
        assert!(masked.any_waits() && HEARD.load(SeqCst) == 0);
        masked.end();
        assert_eq!(HEARD.load(SeqCst), 1);
    }

    #[test]
    fn signals_blocked_for_good_stay_so() {
        let blocked = || {
            let mut mask = MaybeUninit::uninit();
            // SAFETY: filled by the call.
            unsafe {
                libc::pthread_sigmask(libc::SIG_SETMASK, core::ptr::null(), mask.as_mut_ptr());
                libc::sigismember(mask.as_ptr(), libc::SIGUSR1) == 1
            }
        };
        let thread = std::thread::spawn(move || {
            assert!(!blocked());
            block_for_good();
            let masked = Masked::new();
            masked.end();
            blocked() && !masked.any_waits()
        });
        assert!(thread.join().unwrap());
        assert!(!blocked(), "of one thread only");
    }
}

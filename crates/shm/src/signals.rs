//! Delay of a thread's signals.

use core::mem::MaybeUninit;

/// The thread's signal mask before all signals were blocked: they stay pending until [`Masked::end`].
#[derive(Debug)]
pub struct Masked(libc::sigset_t);

impl Masked {
    /// Blocks all signals from now on.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it does something")]
    pub fn new() -> Self {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: both are filled by the calls; a mask that is valid never fails.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::sigemptyset(before.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            Self(before.assume_init())
        }
    }

    /// Restores the mask, which delivers pending signals.
    pub fn end(&self) {
        // SAFETY: a mask that the kernel filled.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, core::ptr::null_mut()) };
    }

    /// Whether a signal is pending that was not blocked before.
    pub fn any_waits(&self) -> bool {
        let mut waiting = MaybeUninit::uninit();
        // SAFETY: filled by the calls; signal numbers are in range.
        unsafe {
            libc::sigemptyset(waiting.as_mut_ptr());
            libc::sigpending(waiting.as_mut_ptr());
            let waiting = waiting.assume_init();
            (1..=64).any(|signal| {
                libc::sigismember(&raw const waiting, signal) == 1
                    && libc::sigismember(&raw const self.0, signal) == 0
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
}

//! Signals as events.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};

/// What a signal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// End: SIGINT, SIGTERM, SIGQUIT, SIGHUP.
    Stop,
    /// Give the terminal back and stop: SIGTSTP.
    Suspend,
    /// Somebody let us go on: SIGCONT.
    Resume,
    /// The terminal has another size: SIGWINCH.
    Resize,
}

const MEANINGS: [(i32, Signal); 7] = [
    (SIGINT, Signal::Stop),
    (SIGTERM, Signal::Stop),
    (SIGQUIT, Signal::Stop),
    (SIGHUP, Signal::Stop),
    (SIGTSTP, Signal::Suspend),
    (SIGCONT, Signal::Resume),
    (SIGWINCH, Signal::Resize),
];

/// The signals of this process.
#[derive(Debug)]
pub(crate) struct Signals {
    pipe: UnixStream,
    flags: Vec<(Signal, Arc<AtomicBool>)>,
}

impl Signals {
    /// Installs the handlers.
    ///
    /// # Errors
    /// The kernel gives us no socket pair.
    pub(crate) fn watch() -> io::Result<Self> {
        let (pipe, write) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        let mut flags = Vec::new();
        for (signal, meaning) in MEANINGS {
            let flag = Arc::<AtomicBool>::default();
            // The flag first: it is set when the pipe becomes readable.
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
            signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
            flags.push((meaning, flag));
        }
        Ok(Self { pipe, flags })
    }

    /// Readable when a signal has come.
    pub(crate) fn event_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// What has come, the most urgent first.
    pub(crate) fn take(&mut self) -> Vec<Signal> {
        let mut bytes = [0; 64];
        while matches!(self.pipe.read(&mut bytes), Ok(count) if count > 0) {}
        self.flags.iter().filter(|(_, flag)| flag.swap(false, Relaxed)).map(|(signal, _)| *signal).collect()
    }
}

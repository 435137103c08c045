//! Signals as events: SIGTERM and SIGINT stop the daemon, SIGHUP does nothing.

use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What a signal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Stop in order.
    Stop,
}

/// The signals of this process.
#[derive(Debug)]
pub struct Signals {
    pipe: UnixStream,
}

impl Signals {
    /// Takes the signals over.
    pub fn open() -> Result<Self, std::io::Error> {
        let (pipe, write) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        for signal in [SIGTERM, SIGINT] {
            signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
        }
        signal_hook::flag::register(SIGHUP, Arc::new(AtomicBool::new(false)))?;
        Ok(Self { pipe })
    }

    /// Readable when a signal came.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// The next signal.
    pub fn poll(&mut self) -> Option<Signal> {
        let mut byte = [0; 64];
        match self.pipe.read(&mut byte) {
            Ok(count) if count > 0 => Some(Signal::Stop),
            _ => None,
        }
    }
}

/// As many descriptors as we may have: each circuit end takes two.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(errno) = setrlimit(Resource::Nofile, raised) {
        let errno: Errno = errno;
        tracing::warn!(%errno, "the limit of open files cannot be raised");
    }
}

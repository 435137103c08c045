//! Signals as events: SIGTERM and SIGINT stop the daemon, SIGHUP has it reload its rules.

use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// What a signal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Stop in order.
    Stop,
    /// Reload the rules.
    Reload,
}

/// The signals of this process.
#[derive(Debug)]
pub struct Signals {
    pipe: UnixStream,
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
}

impl Signals {
    /// Installs handlers for the signals.
    pub fn open() -> Result<Self, std::io::Error> {
        let (pipe, write) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        let (stop, reload) = (Arc::default(), Arc::default());
        for (signal, flag) in [(SIGTERM, &stop), (SIGINT, &stop), (SIGHUP, &reload)] {
            // The flag first: it is set when the pipe becomes readable.
            signal_hook::flag::register(signal, Arc::clone(flag))?;
            signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
        }
        Ok(Self { pipe, stop, reload })
    }

    /// Readable when a signal has come.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// The next signal.
    pub fn poll(&mut self) -> Option<Signal> {
        let mut bytes = [0; 64];
        while matches!(self.pipe.read(&mut bytes), Ok(count) if count > 0) {}
        if self.stop.swap(false, Relaxed) {
            return Some(Signal::Stop);
        }
        self.reload.swap(false, Relaxed).then_some(Signal::Reload)
    }
}

/// Raises this process's limit of descriptors to its hard limit: each endpoint takes three, which stay in the process's own table up to a
/// quarter of the limit ([`crate::shelves`]). A daemon that runs as root takes as many as the kernel allows any process.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let kernel = std::fs::read_to_string("/proc/sys/fs/nr_open").ok();
    let kernel = kernel.and_then(|text| text.trim().parse().ok());
    if let Some(most) = kernel.filter(|most| limit.maximum.is_none_or(|maximum| *most > maximum))
        && setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: Some(most) }).is_ok()
    {
        return;
    }
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(errno) = setrlimit(Resource::Nofile, raised) {
        let errno: Errno = errno;
        tracing::warn!(%errno, "the limit of open files cannot be raised");
    }
}

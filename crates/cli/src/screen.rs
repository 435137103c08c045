//! A pause that Ctrl-C ends.

use anyhow::Result;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Whether somebody wants us to stop (SIGINT, SIGTERM).
#[derive(Debug)]
pub(crate) struct Stop {
    pipe: UnixStream,
}

impl Stop {
    /// Begins to watch.
    ///
    /// # Errors
    /// The kernel gives us no socket pair.
    pub(crate) fn watch() -> Result<Self> {
        let (pipe, write) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM] {
            signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
        }
        Ok(Self { pipe })
    }

    /// Waits for `time`; `true` at once if it is time to stop.
    pub(crate) fn within(&self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).ok();
            match poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], timeout.as_ref()) {
                Ok(0) => return false,
                Err(rustix::io::Errno::INTR) => {}
                _ => return true,
            }
        }
    }
}

//! The terminal: how wide it is, what it can show, and a pause that Ctrl-C ends.

use anyhow::Result;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::tcgetwinsize;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Width if standard output is no terminal, characters.
const WIDTH: usize = 100;

/// Characters in a line of the terminal at `out`; a usual number if it is none.
pub(crate) fn width(out: &impl AsFd) -> usize {
    let columns = tcgetwinsize(out).map(|size| usize::from(size.ws_col));
    // Pictures are indented a little.
    columns.ok().filter(|columns| *columns > 0).unwrap_or(WIDTH).saturating_sub(2)
}

/// Whether the terminal shows more than ASCII, as the locale has it.
pub(crate) fn unicode() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|it| !it.is_empty()));
    locale.is_some_and(|locale| locale.to_uppercase().replace('-', "").ends_with("UTF8"))
}

/// Notices that we are to stop (SIGINT, SIGTERM).
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

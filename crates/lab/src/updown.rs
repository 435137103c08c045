//! Before and after a lab: room for its files, the start of its keeper, and the end of all that runs in it.

use crate::config::Order;
use crate::folder::{self, Folder};
use crate::plan::Options;
use crate::process::{self, Identity};
use crate::state::State;
use crate::{LabError, keeper};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use std::fs;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the keeper may take to end all processes of a lab.
const DOWN_PATIENCE: Duration = Duration::from_secs(12);
/// Pause between two looks at a lab that comes or goes.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Makes room for a new lab: nothing there, a left-over, or one that may be replaced.
pub(crate) fn clear(folder: &Folder, options: &Options) -> Result<(), LabError> {
    folder.check()?;
    if !folder.path.exists() {
        return Ok(());
    }
    settle(folder);
    if folder.kept() && !options.force {
        return Err(LabError::AlreadyUp { name: options.name.clone() });
    }
    take_down(folder)
}

/// Waits, for a while, for a keeper that is about to end, or has just begun: it has no state then.
fn settle(folder: &Folder) {
    let deadline = Instant::now() + DOWN_PATIENCE;
    while folder.kept() && !folder.ready() && Instant::now() < deadline {
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Makes the lab's folder and its lock.
pub(crate) fn create(folder: &Folder, options: &Options) -> Result<(), LabError> {
    folder.create().map_err(|error| match error {
        LabError::Io { source, .. } if source.kind() == std::io::ErrorKind::AlreadyExists => {
            LabError::AlreadyUp { name: options.name.clone() }
        }
        error => error,
    })?;
    fs::write(folder.file(folder::LOCK), "").map_err(LabError::io("create the lab's lock"))
}

/// Starts the keeper and waits for its ready message.
pub(crate) fn start_keeper(folder: &Folder, order: &Order) -> Result<(Child, State), LabError> {
    let (program, patience) = (&order.programs.keeper, order.options.patience);
    let order = serde_json::to_vec(order).map_err(|e| LabError::Keeper(e.to_string()))?;
    fs::write(folder.file(folder::ORDER), order).map_err(LabError::io("write the lab's order"))?;
    let log = fs::File::create(folder.file("keeper.log")).map_err(LabError::io("create keeper.log"))?;
    let mut keeper = Command::new(program)
        .arg("keep")
        .arg(&folder.path)
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(LabError::io(format!("start {}", program.display())))?;
    let word = keeper.stdout.take().map_or_else(String::new, |pipe| read_word(pipe, patience));
    let state = if word.trim() == keeper::READY { folder.state() } else { None };
    match state {
        Some(state) => Ok((keeper, state)),
        None => {
            // End of file on its standard input makes it clean up.
            drop(keeper.stdin.take());
            keeper.wait().map_err(LabError::io("wait for the keeper"))?;
            let said = if word.trim().is_empty() { log_end(&folder.file("keeper.log")) } else { word };
            Err(LabError::Keeper(said.trim().to_owned()))
        }
    }
}

/// All that `pipe` gives up to its end, a line's end, or `patience`.
fn read_word(mut pipe: impl Read + AsFd, patience: Duration) -> String {
    let deadline = Instant::now() + patience;
    let mut word = Vec::new();
    let mut part = [0; 512];
    while !word.ends_with(b"\n") {
        let timeout = Timespec::try_from(deadline.saturating_duration_since(Instant::now())).ok();
        match poll(&mut [PollFd::new(&pipe, PollFlags::IN)], timeout.as_ref()) {
            Ok(0) => return "its keeper said nothing in time".to_owned(),
            Ok(_) => match pipe.read(&mut part) {
                Ok(0) | Err(_) => break,
                Ok(n) => word.extend_from_slice(&part[..n]),
            },
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&word).into_owned()
}

/// Takes down whatever is left of a lab, with its keeper's help or without.
pub(crate) fn take_down(folder: &Folder) -> Result<(), LabError> {
    settle(folder);
    let Some(state) = folder.state() else {
        if folder.kept() {
            return Err(LabError::Keeper(format!(
                "its keeper neither begins nor ends: {}",
                folder.path.display()
            )));
        }
        return folder.remove();
    };
    if folder.kept() && state.keeper.signal(Signal::TERM) && !state.keeper.wait_gone(DOWN_PATIENCE) {
        state.keeper.signal(Signal::KILL);
        state.keeper.wait_gone(Duration::from_secs(2));
    }
    // The rest is for a keeper that was killed; a live one would have done all this.
    let daemons: Vec<Identity> = state.hosts.iter().filter_map(|h| h.daemon).filter(|d| d.alive()).collect();
    let mark = state.mark_entry();
    // Perhaps nobody holds the namespaces any more, so their inodes may have been reused: the mark must agree.
    let ours = |pid| process::started_with(pid, &mark);
    process::end_members(&state.networks(), ours, Duration::from_secs(2))?;
    process::end(&daemons, Duration::from_secs(2));
    folder.remove()
}

/// The last lines of a log.
pub(crate) fn log_end(path: &Path) -> String {
    let text = fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}

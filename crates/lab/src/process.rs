//! Processes that the lab started: found, signalled and waited for without mistaking another one of the same id for them.

use crate::LabError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// How often newly started processes are looked for before giving up.
const ROUNDS: u32 = 50;

/// A process, distinguished by its start time from a later one of the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Process id.
    pub pid: i32,
    /// Start time as `/proc/PID/stat` has it, clock ticks since boot.
    pub start: u64,
}

/// How long a process may take to end after a requested signal; less than the requester waits for an answer.
pub(crate) const KILL_PATIENCE: Duration = Duration::from_secs(5);

impl Identity {
    /// The process that has id `pid` now; `None` if there is none (a zombie counts as none).
    pub fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may hold blanks and brackets: fields are counted behind its last bracket.
        let mut fields = stat.get(stat.rfind(')')? + 2..)?.split(' ');
        let state = fields.next()?;
        let start = fields.nth(18)?.parse().ok()?;
        (state != "Z" && state != "X").then_some(Self { pid, start })
    }

    /// Whether it still runs.
    pub fn alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// A descriptor of exactly this process; `None` if it is gone.
    fn handle(self) -> Option<OwnedFd> {
        let fd = pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::empty()).ok()?;
        self.alive().then_some(fd)
    }

    /// Sends `signal` to exactly this process; `false` if it is gone.
    pub fn signal(self, signal: Signal) -> bool {
        self.handle().is_some_and(|fd| pidfd_send_signal(fd, signal).is_ok())
    }

    /// Waits until it is gone; `false` if it still runs after `patience`.
    pub fn wait_gone(self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while let Some(fd) = self.handle() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let timeout = Timespec::try_from(left).ok();
            let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], timeout.as_ref());
        }
        true
    }
}

/// Ends all of `processes`: SIGTERM, `grace` to comply, SIGKILL.
pub(crate) fn end(processes: &[Identity], grace: Duration) {
    for process in processes {
        process.signal(Signal::TERM);
    }
    let deadline = Instant::now() + grace;
    for process in processes {
        process.wait_gone(deadline.saturating_duration_since(Instant::now()));
    }
    kill(processes);
}

/// Kills all of `processes` that are left, and waits until they are gone.
fn kill(processes: &[Identity]) {
    for process in processes {
        process.signal(Signal::KILL);
    }
    for process in processes {
        process.wait_gone(Duration::from_secs(2));
    }
}

/// Inode of the network namespace that `pid` is in, if it can be seen.
pub(crate) fn network_of(pid: i32) -> Option<u64> {
    fs::metadata(format!("/proc/{pid}/ns/net")).ok().map(|m| m.ino())
}

/// Processes in one of the namespaces `networks`, for which `also` holds.
///
/// # Errors
/// `/proc` cannot be read.
pub(crate) fn members(networks: &[u64], also: impl Fn(i32) -> bool) -> Result<Vec<Identity>, LabError> {
    let entries = fs::read_dir("/proc").map_err(LabError::io("read /proc"))?;
    let pids = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    Ok(pids
        .filter(|&pid| network_of(pid).is_some_and(|net| networks.contains(&net)) && also(pid))
        .filter_map(Identity::of)
        .collect())
}

/// Ends everything that [`members`] finds, also what it starts meanwhile: SIGTERM and `grace` once, then SIGKILL
/// for as long as there is something, in bounded time.
///
/// # Errors
/// `/proc` cannot be read.
pub(crate) fn end_members(
    networks: &[u64],
    also: impl Fn(i32) -> bool,
    grace: Duration,
) -> Result<(), LabError> {
    end(&members(networks, &also)?, grace);
    kill_members(networks, also)
}

/// Kills everything that [`members`] finds, also what it starts meanwhile, in bounded time.
///
/// # Errors
/// `/proc` cannot be read.
pub(crate) fn kill_members(networks: &[u64], also: impl Fn(i32) -> bool) -> Result<(), LabError> {
    for _ in 0..ROUNDS {
        let all = members(networks, &also)?;
        if all.is_empty() {
            break;
        }
        kill(&all);
    }
    Ok(())
}

/// Whether the environment that `pid` was started with holds `entry` (`NAME=value`).
pub(crate) fn started_with(pid: i32, entry: &str) -> bool {
    fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|environ| environ.split(|&byte| byte == 0).any(|one| one == entry.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn sleeper() -> std::process::Child {
        Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().expect("sleep starts")
    }

    #[test]
    fn process_is_identified_by_its_start_time() {
        let mut child = sleeper();
        let pid = i32::try_from(child.id()).expect("pid");
        let it = Identity::of(pid).expect("runs");
        assert!(it.alive());
        let other = Identity { pid, start: it.start + 1 };
        assert!(!other.alive());
        assert!(!other.signal(Signal::KILL), "a stranger of the same id is not touched");
        assert!(it.alive());
        end(&[it], Duration::from_secs(5));
        assert!(!it.alive());
        child.wait().expect("reaped");
        assert_eq!(Identity::of(pid), None);
    }

    #[test]
    fn process_environment_is_read() {
        let mut child = Command::new("sleep").arg("60").env("CROSSLANE_LAB", "t-1").spawn().expect("sleep");
        let pid = i32::try_from(child.id()).expect("pid");
        // The kernel shows the environment a moment after the spawn has returned.
        let deadline = Instant::now() + Duration::from_secs(5);
        while !started_with(pid, "CROSSLANE_LAB=t-1") {
            assert!(Instant::now() < deadline, "environment not seen");
            std::thread::yield_now();
        }
        assert!(!started_with(pid, "CROSSLANE_LAB=t"));
        child.kill().expect("kill");
        child.wait().expect("reaped");
    }
}

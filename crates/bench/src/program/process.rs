//! Programs that are started for a measurement: always ended, always within a time limit.

use anyhow::{Context, Result, anyhow, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};
use std::any::Any;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to listen, and to end after it was asked to.
const SERVER_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two looks at a server that does not listen yet: the kernel has no event for it.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Bytes of a program's error output that are passed on.
const COMPLAINT: usize = 300;

/// A server, and all that it started in its process group; asked to end when dropped, and made to.
#[derive(Debug)]
pub struct Server {
    child: Child,
    log: File,
    /// What is removed when it has ended.
    beside: Option<Box<dyn Any>>,
}

impl Server {
    /// Starts a server and waits until something in its network namespace listens on `port`.
    ///
    /// # Errors
    /// It cannot be started, ends at once, or does not listen in time; the error has its output.
    pub fn start(command: Command, port: u16) -> Result<Self> {
        Self::start_within(command, port, SERVER_TIMEOUT)
    }

    /// As [`Self::start`], for one that may take as long as `patience`.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_within(command: Command, port: u16, patience: Duration) -> Result<Self> {
        Self::spawn(command)?.when(patience, "the server does not listen", |it| listens(it.id(), port))
    }

    /// Starts a program that is to run until it is dropped, and waits until it has written a line.
    ///
    /// # Errors
    /// It cannot be started, ends, or says nothing in time.
    pub fn start_speaking(command: Command) -> Result<Self> {
        Self::start_speaking_within(command, SERVER_TIMEOUT)
    }

    /// As [`Self::start_speaking`], for one that may take as long as `patience`.
    ///
    /// # Errors
    /// As [`Self::start_speaking`].
    pub fn start_speaking_within(command: Command, patience: Duration) -> Result<Self> {
        let spoken = |it: &mut Self| text(&mut it.log).contains('\n');
        Self::spawn(command)?.when(patience, "the program does not begin", spoken)
    }

    /// Starts a server that listens where this process cannot see it: `ready` waits until it does.
    ///
    /// # Errors
    /// It cannot be started, ends at once, or does not get ready; the error has its output.
    pub fn start_elsewhere(command: Command, ready: impl FnOnce() -> Result<()>) -> Result<Self> {
        let mut server = Self::spawn(command)?;
        let outcome = ready();
        if outcome.is_err() || wait_for_exit(&server.child, Duration::ZERO)? {
            let why = outcome.err().unwrap_or_else(|| anyhow!("it has ended"));
            bail!("{why:#}: {}", complaint(&mut server.log));
        }
        Ok(server)
    }

    fn spawn(mut command: Command) -> Result<Self> {
        let log = tempfile::tempfile()?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log.try_clone()?);
        let child = command.process_group(0).spawn().with_context(|| format!("cannot start {command:?}"))?;
        Ok(Self { child, log, beside: None })
    }

    /// The same once `ready` holds.
    fn when(mut self, patience: Duration, wrong: &str, ready: impl Fn(&mut Self) -> bool) -> Result<Self> {
        let end = Instant::now() + patience;
        while !ready(&mut self) {
            if wait_for_exit(&self.child, Duration::ZERO)? || Instant::now() > end {
                bail!("{wrong}: {}", complaint(&mut self.log));
            }
            wait_for_exit(&self.child, LOOK_AGAIN)?;
        }
        Ok(self)
    }

    /// The same with something that it needs as long as it runs.
    #[must_use]
    pub fn with(mut self, beside: impl Any) -> Self {
        self.beside = Some(Box::new(beside));
        self
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    /// The group is named by its first process, so that one is reaped last.
    fn drop(&mut self) {
        let group = Pid::from_child(&self.child);
        let _ = kill_process_group(group, Signal::TERM);
        let _ = wait_for_exit(&self.child, SERVER_TIMEOUT);
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
        drop(self.beside.take());
    }
}

/// Runs a client to its end and returns what it wrote.
///
/// # Errors
/// It cannot be started, fails, or is not done within `limit`; the error has its output.
pub fn run(mut command: Command, limit: Duration) -> Result<String> {
    let (mut out, mut log) = (tempfile::tempfile()?, tempfile::tempfile()?);
    command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(log.try_clone()?);
    let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    if !wait_for_exit(&child, limit)? {
        end(&mut child);
        bail!("not done after {limit:?}: {}", complaint(&mut log));
    }
    let (status, said) = (child.wait()?, text(&mut out));
    if !status.success() {
        let words = complaint(&mut log);
        bail!("failed ({status}): {}", if words.is_empty() { last_words(&said) } else { words });
    }
    Ok(said)
}

/// Where `program` is in the search path.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Processor time that process `pid` has used in all its threads, ns.
pub fn processor_time(pid: u32) -> Option<u64> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let times = tasks.flatten().filter_map(|task| {
        let stat = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        stat.split(' ').next()?.parse::<u64>().ok()
    });
    Some(times.sum())
}

fn end(child: &mut Child) {
    if matches!(child.try_wait(), Ok(None)) {
        let pid = Pid::from_child(child);
        let _ = kill_process(pid, Signal::TERM);
        if !wait_for_exit(child, SERVER_TIMEOUT).unwrap_or(false) {
            let _ = child.kill();
        }
    }
    let _ = child.wait();
}

/// Waits until `child`, which was not yet waited for, ends. Returns whether it did within `limit`.
fn wait_for_exit(child: &Child, limit: Duration) -> Result<bool> {
    let Ok(process) = pidfd_open(Pid::from_child(child), PidfdFlags::empty()) else { return Ok(true) };
    let deadline = Instant::now() + limit;
    loop {
        let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now()))?;
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&left)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether a TCP socket listens on `port` in the network namespace of process `pid`.
fn listens(pid: u32, port: u16) -> bool {
    ["tcp", "tcp6"].iter().any(|table| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        text.lines().any(|line| is_listener(line, port))
    })
}

/// Whether this line of the kernel's socket table is a listener on `port`.
fn is_listener(line: &str, port: u16) -> bool {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (Some(local), Some(_), Some(state)) = (fields.next(), fields.next(), fields.next()) else {
        return false;
    };
    let number = local.rsplit(':').next().and_then(|hex| u16::from_str_radix(hex, 16).ok());
    state == "0A" && number == Some(port)
}

fn text(file: &mut File) -> String {
    let mut bytes = Vec::new();
    let _ = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

fn complaint(file: &mut File) -> String {
    last_words(&text(file))
}

/// The end of a program's output, on one line.
fn last_words(text: &str) -> String {
    let plain: String =
        text.split('\x1b').enumerate().map(|(number, part)| after_escape(number, part)).collect();
    let line: Vec<&str> = plain.split_whitespace().collect();
    let line = line.join(" ");
    let skip = line.chars().count().saturating_sub(COMPLAINT);
    line.chars().skip(skip).collect()
}

/// What follows a terminal escape (`ESC [ .. m`); the part before the first escape is whole.
fn after_escape(number: usize, part: &str) -> &str {
    if number == 0 { part } else { part.split_once('m').map_or("", |(_, rest)| rest) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_text_is_one_plain_line() {
        assert_eq!(last_words("a\n \x1b[2;35mb\x1b[0m c"), "a b c");
    }

    #[test]
    fn listener_is_found_in_the_kernels_table() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(listens(std::process::id(), port));
        drop(listener);
        assert!(!listens(std::process::id(), port));
        assert!(!is_listener("", port));
    }

    #[test]
    fn program_that_fails_or_hangs_is_an_error_with_its_output() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        assert_eq!(run(shell("echo yes"), SERVER_TIMEOUT).unwrap(), "yes\n");
        let error = run(shell("echo bad luck >&2; exit 3"), SERVER_TIMEOUT).unwrap_err().to_string();
        assert!(error.contains("bad luck") && error.contains('3'), "{error}");
        let error = run(shell("exec sleep 60"), Duration::from_millis(20)).unwrap_err().to_string();
        assert!(error.contains("not done"), "{error}");
        assert!(Server::start(shell("echo no port; exit 1"), 1).unwrap_err().to_string().contains("no port"));
    }

    #[test]
    fn server_ends_when_dropped() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo here; exec sleep 60"]);
        let server = Server::start_speaking(command).unwrap();
        let pid = server.id();
        assert!(processor_time(pid).is_some());
        drop(server);
        assert!(processor_time(pid).is_none());
    }
}

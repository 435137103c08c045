//! A running program: its output, its end, and that it does end.

use crate::{PATIENCE, wait_for};
use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a program may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(3);

/// A running program, in a process group of its own. A drop ends it and its group.
#[derive(Debug)]
pub struct Program {
    child: Child,
    handle: OwnedFd,
    name: String,
    output: File,
    errors: File,
    ended: Option<ExitStatus>,
    /// Control socket of its daemon, if the socket library is with it.
    control: Option<PathBuf>,
}

/// What a program printed until its end.
#[derive(Clone, Debug)]
pub struct Printed {
    /// Standard output.
    pub output: Vec<u8>,
    /// Standard error.
    pub errors: String,
}

impl Printed {
    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }
}

impl Program {
    /// Starts a program without input.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(command: &mut Command) -> Result<Self> {
        Self::begin(command, Stdio::null())
    }

    /// Starts a program that reads `input`.
    ///
    /// # Errors
    /// It cannot be started, or the input cannot be kept in a file.
    pub fn start_with(command: &mut Command, input: &[u8]) -> Result<Self> {
        let mut file = tempfile::tempfile()?;
        file.write_all(input)?;
        std::io::Seek::rewind(&mut file)?;
        Self::begin(command, file.into())
    }

    fn begin(command: &mut Command, input: Stdio) -> Result<Self> {
        let (output, errors) = (tempfile::tempfile()?, tempfile::tempfile()?);
        let name = describe(command);
        let child = command
            .stdin(input)
            .stdout(output.try_clone()?)
            .stderr(errors.try_clone()?)
            .process_group(0)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        let pid = Pid::from_child(&child);
        let handle = pidfd_open(pid, PidfdFlags::empty()).context("pidfd")?;
        let control = control_of(command);
        Ok(Self { child, handle, name, output, errors, ended: None, control })
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        Pid::from_child(&self.child).as_raw_nonzero().get()
    }

    /// What it printed so far on standard output.
    pub fn output(&self) -> Vec<u8> {
        contents(&self.output)
    }

    /// What it printed so far on standard error.
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&contents(&self.errors)).into_owned()
    }

    /// Waits until a process of its network namespace listens on TCP port `port` and, if it is accelerated, until its
    /// daemon knows the listener: for a moment the kernel accepts connections that go by TCP.
    ///
    /// # Errors
    /// It ended, or does not listen in time.
    pub fn listens(&mut self, port: u16) -> Result<()> {
        self.listens_to_tcp(port)?;
        let Some(control) = self.control.clone() else { return Ok(()) };
        wait_for(
            &format!("the daemon of {} knows that it listens on port {port}", self.name),
            PATIENCE,
            || {
                let status = crosslane_lab::status(&control).map_err(|error| error.to_string())?;
                let is_known = status.listeners.iter().any(|address| address.port() == port);
                if is_known { Ok(()) } else { Err(status.to_string()) }
            },
        )
    }

    /// Waits until a process of its network namespace listens on TCP port `port`, for the kernel's TCP at least.
    ///
    /// # Errors
    /// It ended, or does not listen in time.
    pub fn listens_to_tcp(&mut self, port: u16) -> Result<()> {
        let what = format!("{} listens on port {port}", self.name);
        let seen = wait_for(&what, PATIENCE, || {
            if self.is_over() {
                return Ok(false);
            }
            if listens(self.pid(), port) { Ok(true) } else { Err(self.errors()) }
        })?;
        ensure!(seen, "{} has ended: {}", self.name, self.tail());
        Ok(())
    }

    /// Waits until its output contains `words`.
    ///
    /// # Errors
    /// It ended without, or does not print them in time.
    pub fn says(&mut self, words: &str) -> Result<()> {
        let said =
            |it: &Self| String::from_utf8_lossy(&it.output()).contains(words) || it.errors().contains(words);
        let what = format!("{} says `{words}`", self.name);
        let printed = wait_for(&what, PATIENCE, || {
            let over = self.is_over();
            match said(self) {
                true => Ok(true),
                false if over => Ok(false),
                false => Err(self.tail()),
            }
        })?;
        ensure!(printed, "{} has ended without `{words}`: {}", self.name, self.tail());
        Ok(())
    }

    /// Whether it has ended.
    pub fn is_over(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended.is_some()
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It still runs after `patience`; it is ended then.
    pub fn wait(&mut self, patience: Duration) -> Result<ExitStatus> {
        if let Some(status) = self.ended {
            return Ok(status);
        }
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).ok();
            match poll(&mut [PollFd::new(&self.handle, PollFlags::IN)], timeout.as_ref()) {
                Ok(0) => {
                    let (tail, stacks) = (self.tail(), self.whereabouts());
                    self.end();
                    bail!("{} did not end within {} s: {tail}{stacks}", self.name, patience.as_secs());
                }
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let status = self.child.wait()?;
        self.ended = Some(status);
        Ok(status)
    }

    /// Waits for its end in success and returns what it printed.
    ///
    /// # Errors
    /// It failed, or still runs after `patience`.
    pub fn finish(mut self, patience: Duration) -> Result<Printed> {
        let status = self.wait(patience)?;
        ensure!(status.success(), "{} failed ({}): {}", self.name, story(status), self.tail());
        Ok(Printed { output: self.output(), errors: self.errors() })
    }

    /// Sends a signal to it alone.
    ///
    /// # Errors
    /// It has ended.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        ensure!(!self.is_over(), "{} has ended: {}", self.name, self.tail());
        kill_process(Pid::from_child(&self.child), signal)?;
        Ok(())
    }

    /// Kills it and waits for its end.
    ///
    /// # Errors
    /// It has ended before.
    pub fn kill(&mut self) -> Result<()> {
        self.signal(Signal::KILL)?;
        self.wait(GRACE)?;
        Ok(())
    }

    /// Ends it and all of its group: SIGTERM, then SIGKILL.
    pub fn end(&mut self) {
        let group = Pid::from_child(&self.child);
        if !self.is_over() {
            let _ = kill_process_group(group, Signal::TERM);
            let timeout = Timespec::try_from(GRACE).ok();
            let _ = poll(&mut [PollFd::new(&self.handle, PollFlags::IN)], timeout.as_ref());
        }
        // Before the program is reaped: until then its id names the group.
        if self.ended.is_none() {
            let _ = kill_process_group(group, Signal::KILL);
            self.ended = self.child.wait().ok();
        }
    }

    /// The ends of its outputs.
    pub fn tail(&self) -> String {
        let last = |text: &str| text.get(text.len().saturating_sub(1500)..).unwrap_or("..").to_owned();
        let output = String::from_utf8_lossy(&self.output()).into_owned();
        format!("\n[stderr] {}\n[stdout] {}\n", last(&self.errors()), last(&output))
    }

    /// The stacks of its threads, for reports of failures.
    fn whereabouts(&self) -> String {
        let mut text = String::new();
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).into_iter().flatten().flatten();
        for task in tasks {
            let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
            text += &format!("[thread] {} {}\n", read("comm").trim(), read("syscall").trim());
        }
        text
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs a program to its end in success.
///
/// # Errors
/// It cannot be started, failed, or still runs after `patience`.
pub fn run(command: &mut Command, patience: Duration) -> Result<Printed> {
    Program::start(command)?.finish(patience)
}

/// Whether one of the processes in the network namespace of `pid` listens on TCP port `port`.
pub fn listens(pid: i32, port: u16) -> bool {
    queued(pid, port).is_some()
}

/// How many connections wait for an `accept` at TCP port `port` in the network namespace of `pid`; `None` if nobody listens there.
pub fn queued(pid: i32, port: u16) -> Option<u32> {
    let suffix = format!(":{port:04X}");
    ["tcp", "tcp6"].iter().find_map(|table| {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        text.lines().skip(1).find_map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            let [_, local, _, "0A", queues, ..] = words[..] else { return None };
            let (_, waiting) = queues.split_once(':').filter(|_| local.ends_with(&suffix))?;
            u32::from_str_radix(waiting, 16).ok()
        })
    })
}

/// How a program ended.
pub fn story(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, signal) => format!("signal {}", signal.unwrap_or(0)),
    }
}

/// Control socket of the daemon that an accelerated program of a lab has: `enter FOLDER HOST on ..`, or a user's own
/// preload behind `enter FOLDER HOST off`.
fn control_of(command: &Command) -> Option<PathBuf> {
    let words: Vec<&OsStr> = command.get_args().collect();
    let [enter, folder, host, preload, ..] = words[..] else { return None };
    let own = words.iter().any(|word| word.to_string_lossy().starts_with("LD_PRELOAD="));
    let accelerated = enter == "enter" && (preload == "on" || own);
    accelerated.then(|| Path::new(folder).join(format!("{}.sock", host.to_string_lossy())))
}

/// The program behind the lab's keeper, and its arguments.
fn describe(command: &Command) -> String {
    let words: Vec<String> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    let skip = if words.first().is_some_and(|word| word == "enter") { 5 } else { 0 };
    if skip == 0 {
        return format!("`{} {}`", command.get_program().to_string_lossy(), words.join(" "));
    }
    let host = words.get(2).map_or("?", String::as_str);
    let text: String = words[skip.min(words.len())..].join(" ").chars().take(160).collect();
    format!("`{text}` on {host}")
}

fn contents(file: &File) -> Vec<u8> {
    let len = file.metadata().map_or(0, |meta| meta.len());
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    let read = file.read_at(&mut bytes, 0).unwrap_or(0);
    bytes.truncate(read);
    if (read as u64) < len {
        // A single read may be short; the rest follows.
        let mut at = read as u64;
        let mut more = [0; 65536];
        while let Ok(count @ 1..) = file.read_at(&mut more, at) {
            bytes.extend_from_slice(&more[..count]);
            at += count as u64;
        }
    }
    bytes
}

/// Reads a file to its end as text; empty if there is none.
pub fn text_of(path: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok(mut file) = File::open(path) {
        let _ = file.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_output_is_read_and_it_ends() {
        let mut command = Command::new("sh");
        let printed = Program::start_with(command.args(["-c", "cat; echo e >&2"]), b"in").unwrap();
        let printed = printed.finish(GRACE).unwrap();
        assert_eq!((printed.text().as_str(), printed.errors.trim()), ("in", "e"));
        let failed = run(Command::new("sh").args(["-c", "echo why >&2; exit 3"]), GRACE).unwrap_err();
        assert!(failed.to_string().contains("exit code 3") && failed.to_string().contains("why"), "{failed}");
    }

    #[test]
    fn program_end_ends_its_process_group() {
        let mut program =
            Program::start(Command::new("sh").args(["-c", "sleep 60 & echo $!; wait"])).unwrap();
        program.says("\n").unwrap();
        let child: i32 = String::from_utf8(program.output()).unwrap().trim().parse().unwrap();
        drop(program);
        wait_for("the child is gone", GRACE, || {
            crosslane_lab::Identity::of(child).map_or(Ok(()), |it| Err(format!("{it:?}")))
        })
        .unwrap();
    }
}

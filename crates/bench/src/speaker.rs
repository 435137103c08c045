//! A copy of this process that takes commands, a line at a time, and answers each in a line, within a time limit.

use anyhow::{Context, Result, bail};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

/// How long an answer may take: longer than the answering side waits for others.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// A child that is ended and waited for when dropped.
#[derive(Debug)]
pub struct Reaped(pub Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lines of JSON, both ways, with an answering side; a program that was started for it is ended when this is dropped.
#[derive(Debug)]
pub struct Speaker {
    from: BufReader<UnixStream>,
    to: UnixStream,
    _child: Option<Reaped>,
}

impl Speaker {
    /// Starts a program that communicates by its standard input and output; its standard error is ours.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(mut command: Command) -> Result<Self> {
        let (near, far) = UnixStream::pair()?;
        command.stdin(OwnedFd::from(far.try_clone()?)).stdout(OwnedFd::from(far));
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        Self::over(near, Some(Reaped(child)))
    }

    /// Over a socket at whose other end `child`, or another process, answers.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn over(to: UnixStream, child: Option<Reaped>) -> Result<Self> {
        to.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(Self { from: BufReader::new(to.try_clone()?), to, _child: child })
    }

    /// Sends a line.
    ///
    /// # Errors
    /// The other side is gone.
    pub fn say(&mut self, words: &impl Serialize) -> Result<()> {
        write_line(&mut self.to, words).context("the other side has ended")
    }

    /// Receives the next line.
    ///
    /// # Errors
    /// The other side has ended, sends nothing in time, or sends something that cannot be parsed.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        match self.from.read_line(&mut line) {
            Ok(0) => bail!("the other side has ended"),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                bail!("the other side has said nothing for {} s", ANSWER_TIMEOUT.as_secs())
            }
            read => read?,
        };
        serde_json::from_str(&line).with_context(|| format!("the other side says {line:?}"))
    }
}

/// Writes a line of JSON for a [`Speaker`].
///
/// # Errors
/// Nobody reads it any more.
pub fn write_line(to: &mut impl Write, words: &impl Serialize) -> Result<()> {
    writeln!(to, "{}", serde_json::to_string(words)?)?;
    Ok(())
}

/// The path of this program, of which copies are started.
///
/// # Errors
/// The kernel does not tell.
pub fn own_program() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find my own program")
}

/// Ends this process with the one that started it, also where that is killed and no thread reads a socket.
///
/// # Errors
/// The kernel does not know how.
pub fn end_with_parent() -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("tie to the measuring process")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Speaker {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Speaker::start(command).unwrap()
    }

    #[test]
    fn speaker_answers_each_line() {
        let mut speaker = shell("read line; echo $line; echo nonsense");
        speaker.say(&7).unwrap();
        assert_eq!(speaker.receive::<u32>().unwrap(), 7);
        assert!(speaker.receive::<u32>().unwrap_err().to_string().contains("nonsense"));
        assert!(speaker.receive::<u32>().unwrap_err().to_string().contains("ended"));
    }
}

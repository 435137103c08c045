//! Plain programs with sockets of the standard library and nothing of ours, so that the preloaded library is measured:
//! one sends blocks of a size, another receives; or one sends requests and another replies. A second thread of each
//! reports on request its progress and its process's processor time.

use crate::clock::{clock, processor_time};
use crate::speaker::{end_with_parent, write_line};
use anyhow::{Context, Result, anyhow};
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;

/// Smallest buffer of a receiver, bytes: a program that knows nothing of its sender's sizes takes what is there.
pub const BUFFER: usize = 64 << 10;

/// A command on a program's standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Report your progress: a [`Mark`].
    Mark,
    /// End in order, and report the last [`Mark`].
    Stop,
}

/// The progress of a program at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Bytes that it has sent or received, or questions that were answered.
    pub done: u64,
    /// The clock that all processes of a machine share, ns.
    pub nanos: u64,
    /// Processor time of all its threads, user's and kernel's, ns.
    pub processor: u64,
}

/// State shared by both threads of a program.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    stop: AtomicBool,
}

impl Progress {
    /// Adds to the work done; called by one thread alone.
    pub fn add(&self, more: u64) {
        self.done.store(self.done.load(Relaxed) + more, Relaxed);
    }

    /// Whether it is to end.
    pub fn is_over(&self) -> bool {
        self.stop.load(Relaxed)
    }

    fn mark(&self) -> Mark {
        let processor = processor_time();
        Mark { done: self.done.load(Relaxed), nanos: clock(), processor }
    }
}

/// Runs `work` in a thread, and the commands of standard input in this one, until both have ended. The first message of
/// `words` is the program's own announcement.
///
/// # Errors
/// Those of `work`, or nobody reads standard output any more.
pub fn obey<W: Serialize>(
    words: &W,
    work: impl FnOnce(&Progress) -> Result<()> + Send + 'static,
) -> Result<()> {
    end_with_parent()?;
    let progress = Arc::new(Progress::default());
    let theirs = Arc::clone(&progress);
    let worker: JoinHandle<Result<()>> = std::thread::spawn(move || work(&theirs));
    let mut out = std::io::stdout();
    write_line(&mut out, words)?;
    for line in std::io::stdin().lines() {
        match serde_json::from_str(&line?)? {
            Order::Mark => write_line(&mut out, &progress.mark())?,
            Order::Stop => break,
        }
    }
    progress.stop.store(true, Relaxed);
    worker.join().map_err(|_| anyhow!("the worker panicked"))??;
    write_line(&mut out, &progress.mark())
}

/// Receives messages of `size` from one sender, into a buffer of that size, but at least [`BUFFER`]; reports where it
/// listens.
///
/// # Errors
/// The address is taken.
pub fn receive(at: SocketAddr, size: usize) -> Result<()> {
    let listener = TcpListener::bind(at).context("cannot listen")?;
    obey(&listener.local_addr()?, move |progress| {
        let (mut peer, _) = listener.accept()?;
        let mut buffer = vec![0; size.max(BUFFER)];
        loop {
            match peer.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => progress.add(count as u64),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    })
}

/// Sends blocks of `size` bytes until the command to end; reports its own address.
///
/// # Errors
/// Nobody listens there.
pub fn send(to: SocketAddr, size: usize) -> Result<()> {
    let mut peer = TcpStream::connect(to).context("cannot connect")?;
    obey(&peer.local_addr()?, move |progress| {
        let block = vec![0x5a; size];
        while !progress.is_over() {
            peer.write_all(&block)?;
            progress.add(size as u64);
        }
        Ok(peer.shutdown(Shutdown::Write)?)
    })
}

/// Answers requests of `question` bytes with `answer` bytes until the asker ends; reports where it listens.
///
/// # Errors
/// The address is taken.
pub fn reply(at: SocketAddr, question: usize, answer: usize) -> Result<()> {
    let listener = TcpListener::bind(at).context("cannot listen")?;
    obey(&listener.local_addr()?, move |progress| {
        let (mut peer, _) = listener.accept()?;
        peer.set_nodelay(true)?;
        let (mut asked, answer) = (vec![0; question], vec![0xa5; answer]);
        loop {
            match peer.read_exact(&mut asked) {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
                outcome => outcome?,
            }
            peer.write_all(&answer)?;
            progress.add(1);
        }
    })
}

/// Sends one request after the other until the command to end; reports its own address.
///
/// # Errors
/// Nobody listens there.
pub fn ask(to: SocketAddr, question: usize, answer: usize) -> Result<()> {
    let mut peer = TcpStream::connect(to).context("cannot connect")?;
    peer.set_nodelay(true)?;
    obey(&peer.local_addr()?, move |progress| {
        let (question, mut answered) = (vec![0x5a; question], vec![0; answer]);
        while !progress.is_over() {
            peer.write_all(&question)?;
            peer.read_exact(&mut answered).context("the answer")?;
            progress.add(1);
        }
        Ok(peer.shutdown(Shutdown::Write)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_has_work_done_and_time_taken() {
        let progress = Progress::default();
        let before = progress.mark();
        let mut sum = 0_u64;
        while progress.mark().processor < before.processor + 1_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
        progress.add(sum);
        let after = progress.mark();
        assert!(after.done == sum && after.nanos > before.nanos && !progress.is_over());
    }
}

//! The two programs of a one-sided measurement.

use super::Operation;
use crate::affinity::Pin;
use anyhow::{Context, Result, bail};
use crosslane_client::memory::{Access, Buffer, Memory, Peer, RemoteRegion};
use crosslane_client::native::Fabric;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of the region: twice the largest size.
const REGION: u64 = 16 << 20;
/// Operations that are posted before one of them is waited for.
const WINDOW: usize = 128;

/// What the requester is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The operation.
    pub operation: Operation,
    /// Its size, bytes.
    pub size: usize,
    /// Whether each one is waited for before the next.
    pub waits: bool,
    /// How long, ms.
    pub millis: u64,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// How long it took until the last one was executed, s.
    pub seconds: f64,
    /// Operations.
    pub count: u64,
}

/// A side that runs; it is ended and waited for when dropped.
#[derive(Debug)]
struct Side {
    child: Child,
    from: BufReader<ChildStdout>,
    to: ChildStdin,
}

impl Side {
    fn start(mut command: Command) -> Result<Self> {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("start a side")?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else { bail!("no pipes") };
        Ok(Self { child, from: BufReader::new(from), to })
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.from.read_line(&mut line)? == 0 {
            bail!("a side of the measurement has ended");
        }
        Ok(line.trim().to_owned())
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program whose memory it is.
#[derive(Debug)]
pub struct Owner {
    _side: Side,
    /// Where its memory is served, and the key.
    pub offer: String,
}

impl Owner {
    /// Starts it: `command` must call [`own`].
    ///
    /// # Errors
    /// It does not start.
    pub fn start(command: Command) -> Result<Self> {
        let mut side = Side::start(command)?;
        let offer = side.line().context("the owner")?;
        Ok(Self { _side: side, offer })
    }
}

/// The program that asks.
#[derive(Debug)]
pub struct Requester(Side);

impl Requester {
    /// Starts it: `command` must call [`request`].
    ///
    /// # Errors
    /// It does not start.
    pub fn start(command: Command) -> Result<Self> {
        Side::start(command).map(Self)
    }

    /// Has it do something.
    ///
    /// # Errors
    /// It failed, and said why on standard error.
    pub fn ask(&mut self, question: Question) -> Result<Outcome> {
        writeln!(self.0.to, "{}", serde_json::to_string(&question)?)?;
        Ok(serde_json::from_str(&self.0.line().context("the requester")?)?)
    }
}

/// Serves memory at an address until standard input ends, on processor `core`.
///
/// # Errors
/// There is no daemon, or no memory.
pub fn own(address: IpAddr, core: usize) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("tie to the measuring process")?;
    let _pin = Pin::to(core)?;
    let memory = Memory::serve(Fabric::open()?, SocketAddr::new(address, 0))?;
    let region = memory.register(REGION)?;
    println!("{}", serde_json::to_string(&(memory.address(), region.share(Access::ALL)?))?);
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

/// Does what comes in on standard input, one question a line, on processor `core`.
///
/// # Errors
/// The owner cannot be reached, or an operation failed.
pub fn request(offer: &str, core: usize) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("tie to the measuring process")?;
    let _pin = Pin::to(core)?;
    let (address, remote): (SocketAddr, RemoteRegion) = serde_json::from_str(offer)?;
    let mut peer = Peer::connect(Fabric::open()?, address)?;
    let target = Arc::new(Buffer::create(REGION)?);
    for line in std::io::stdin().lines() {
        let outcome = answer(serde_json::from_str(&line?)?, &mut peer, &remote, &target)?;
        println!("{}", serde_json::to_string(&outcome)?);
    }
    Ok(())
}

fn answer(
    question: Question,
    peer: &mut Peer,
    remote: &RemoteRegion,
    target: &Arc<Buffer>,
) -> Result<Outcome> {
    let Question { operation, size, waits, millis } = question;
    let (source, time, start) = (vec![0x5a; size], Duration::from_millis(millis), Instant::now());
    let batch = if waits { 1 } else { WINDOW.min((16 << 20) / size) };
    let (mut ops, mut count) = (Vec::with_capacity(batch), 0);
    while start.elapsed() < time {
        for _ in 0..batch {
            ops.push(match operation {
                Operation::Put => peer.put(remote, 0, &source)?,
                Operation::Get => peer.start_get(remote, 0, size as u64, target, 0)?,
                Operation::Atomic => peer.start_fetch_add(remote, 0, 1)?,
            });
        }
        count += batch as u64;
        for op in ops.drain(..) {
            peer.wait(op)?;
        }
    }
    Ok(Outcome { seconds: start.elapsed().as_secs_f64(), count })
}

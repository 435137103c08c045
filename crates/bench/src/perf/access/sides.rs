//! The two programs of a one-sided measurement.

use super::Operation;
use crate::affinity::Pin;
use crate::speaker::{end_with_parent, write_line};
use anyhow::Result;
use crosslane::fabric::Fabric;
use crosslane::memory::{Access, Memory, RemoteRegion, SharedBytes};
use crosslane::peer::Peer;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of the region: twice the largest size.
const REGION: u64 = 16 << 20;
/// Operations that are posted before one of them is waited for.
const WINDOW: usize = 128;

/// A request to the requester.
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

/// The result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// How long it took until the last one was executed, s.
    pub seconds: f64,
    /// Operations.
    pub count: u64,
}

/// An address, and what is reached there.
pub type Offer = (SocketAddr, RemoteRegion);

/// Serves memory at an address until standard input ends, on processor `core`.
///
/// # Errors
/// There is no daemon, or no memory.
pub fn own(address: IpAddr, core: usize) -> Result<()> {
    end_with_parent()?;
    let _pin = Pin::to(core)?;
    let memory = Memory::serve(Fabric::open()?, SocketAddr::new(address, 0))?;
    let region = memory.register(REGION)?;
    write_line(&mut std::io::stdout(), &(memory.address(), region.share(Access::ALL)?))?;
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

/// Does what comes in on standard input, one question a line, on processor `core`.
///
/// # Errors
/// The owner cannot be reached, or an operation failed.
pub fn request(offer: &str, core: usize) -> Result<()> {
    end_with_parent()?;
    let _pin = Pin::to(core)?;
    let (address, remote): Offer = serde_json::from_str(offer)?;
    let mut peer = Peer::connect(Fabric::open()?, address)?;
    let target = Arc::new(SharedBytes::create(REGION)?);
    for line in std::io::stdin().lines() {
        let outcome = answer(serde_json::from_str(&line?)?, &mut peer, &remote, &target)?;
        write_line(&mut std::io::stdout(), &outcome)?;
    }
    Ok(())
}

fn answer(
    question: Question,
    peer: &mut Peer,
    remote: &RemoteRegion,
    target: &Arc<SharedBytes>,
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

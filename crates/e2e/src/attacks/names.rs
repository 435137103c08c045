//! A client of a server with many connections that wakes it without end, by names of streams that are not its own, and by more
//! wakes than are kept, so that those of others are lost. `names ADDRESS PORT`, against a Redis server.

use super::{LIFE, begun};
use crate::raw::Program;
use anyhow::{Context, Result, bail, ensure};
use crosslane_shm::Load;
use crosslane_shm::wake::{FarWaker, Waker};
use crosslane_wire::WaiterId;
use crosslane_wire::record::Kind;
use crosslane_wire::segment::WANT_DATA;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Until when the server must sleep.
const PATIENCE: Duration = Duration::from_secs(10);
/// More wakes than any queue keeps.
const FLOOD: u32 = 2000;
/// What one waker has queued is bounded by its own buffer, so that it alone does not fill the queue.
const WAKERS: usize = 4;

/// Attacks until it is ended.
///
/// # Errors
/// There is no server, or it never sleeps.
pub fn run(words: &[String]) -> Result<()> {
    let [address, port] = words else { bail!("names ADDRESS PORT") };
    let server: SocketAddr = format!("{address}:{port}").parse()?;
    let program = Program::greet("names")?;
    let mut end = program.announce(server)?;
    end.connect()?;
    end.push(Kind::Data, b"PING\r\n")?;
    let until = Instant::now() + PATIENCE;
    let waiter = loop {
        ensure!(Instant::now() < until, "the server does not sleep");
        let waiter = u32::try_from(end.grant.segments.inbound.load_u64(WANT_DATA) & u64::from(u32::MAX))?;
        if waiter != 0 {
            break WaiterId(waiter);
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let (circuit, token) = (end.grant.circuit, end.grant.token);
    let mut wakers = Vec::new();
    for _ in 0..WAKERS {
        match program.session().waker(circuit, token, waiter)? {
            Some(FarWaker::Own(waker)) => wakers.push(waker),
            _ => bail!("no waker of {waiter}"),
        }
    }
    begun();
    let begin = Instant::now();
    for round in 0.. {
        if begin.elapsed() > LIFE {
            return Ok(());
        }
        flood(&wakers, round).context("the server is gone")?;
    }
    Ok(())
}

/// One kind of wakes after the other, each for some thousand wakes, with pauses in which the server sleeps.
fn flood(wakers: &[Waker], round: u32) -> Result<()> {
    for (number, waker) in (0..FLOOD).zip(wakers.iter().cycle()) {
        // Never nobody's name, by which the server would look at all.
        let name = match round % 3 {
            0 => u32::MAX,
            1 => (number + 1).wrapping_mul(0x9e37_79b9),
            _ => round + 1,
        };
        ensure!(waker.wake_for(name), "its socket is closed");
    }
    std::thread::sleep(Duration::from_millis(2));
    Ok(())
}

//! A plain program that sends messages, and one that receives them. Each reports the cost of its calls: processor time,
//! and time in which it could not run.

use crate::clock::processor_time as busy;
use crate::speaker::{end_with_parent, write_line};
use anyhow::{Context, Result, ensure};
use rustix::net::sockopt::tcp_congestion;
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// How long either side waits for the other.
const PEER_TIMEOUT: Duration = Duration::from_secs(15);

/// A receiver listens.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Listening {
    /// Its port.
    pub port: u16,
    /// Its process.
    pub pid: u32,
}

/// A sender has its connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// Its process.
    pub pid: u32,
    /// The congestion control of its connection.
    pub congestion: String,
}

/// The work of one side, and its cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Side {
    /// Bytes that were moved.
    pub bytes: u64,
    /// Time in which they were, ns.
    pub nanos: u64,
    /// Processor time of the whole process in it, ns.
    pub busy: u64,
    /// Time in which the thread slept: neither ran nor waited for a processor, ns.
    pub asleep: u64,
}

/// Clocks when a side began.
struct Begin {
    at: Instant,
    busy: u64,
    scheduled: u64,
}

impl Begin {
    fn now() -> Self {
        Self { busy: busy(), scheduled: scheduled(), at: Instant::now() }
    }

    fn end(&self, bytes: u64) -> Side {
        let nanos = u64::try_from(self.at.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let (busy, scheduled) = (busy() - self.busy, scheduled() - self.scheduled);
        Side { bytes, nanos, busy, asleep: nanos.saturating_sub(scheduled) }
    }
}

/// Time that this thread has run or waited for a processor, ns.
fn scheduled() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_ascii_whitespace().take(2).filter_map(|word| word.parse::<u64>().ok()).sum()
}

/// The receiving program: listens, takes one connection, reads `size` bytes at a time to its end.
///
/// # Errors
/// Nobody connects in time or the connection breaks.
pub fn receiver(size: usize) -> Result<()> {
    end_with_parent()?;
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).context("cannot listen")?;
    let mut out = std::io::stdout();
    write_line(&mut out, &Listening { port: listener.local_addr()?.port(), pid: std::process::id() })?;
    write_line(&mut out, &receive(listener.accept()?.0, size)?)
}

fn receive(mut peer: TcpStream, size: usize) -> Result<Side> {
    peer.set_read_timeout(Some(PEER_TIMEOUT))?;
    let mut buffer = vec![0; size];
    let mut bytes = peer.read(&mut buffer)? as u64;
    let begin = Begin::now();
    loop {
        match peer.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(0) => break,
            count => bytes += count? as u64,
        }
    }
    Ok(begin.end(bytes))
}

/// The sending program: connects, reports that, waits for a line, and sends messages of `size` bytes for `time`.
///
/// # Errors
/// The receiver ends, or nobody sends the line.
pub fn sender(to: SocketAddr, size: usize, time: Duration) -> Result<()> {
    end_with_parent()?;
    let peer = TcpStream::connect(to).context("cannot connect")?;
    let mut out = std::io::stdout();
    let congestion = tcp_congestion(&peer).unwrap_or_default();
    write_line(&mut out, &Ready { pid: std::process::id(), congestion })?;
    let mut line = String::new();
    ensure!(std::io::stdin().read_line(&mut line)? > 0, "nobody says when to begin");
    write_line(&mut out, &send(peer, size, time)?)
}

fn send(mut peer: TcpStream, size: usize, time: Duration) -> Result<Side> {
    peer.set_write_timeout(Some(PEER_TIMEOUT))?;
    let (message, mut bytes, begin) = (vec![0x5a; size], 0, Begin::now());
    while begin.at.elapsed() < time {
        peer.write_all(&message)?;
        bytes += size as u64;
    }
    let side = begin.end(bytes);
    peer.shutdown(Shutdown::Write)?;
    Ok(side)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_both_sides_report_bytes_and_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let far = std::thread::spawn(move || receive(listener.accept().unwrap().0, 4096).unwrap());
        let near = send(TcpStream::connect(to).unwrap(), 4096, Duration::from_millis(30)).unwrap();
        let far = far.join().unwrap();
        assert!(near.bytes > 0 && near.bytes == far.bytes && near.bytes.is_multiple_of(4096), "{near:?}");
        assert!(near.busy > 0 && near.asleep <= near.nanos && near.nanos >= 30_000_000, "{near:?} {far:?}");
    }
}

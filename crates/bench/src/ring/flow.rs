//! A plain program that sends, and one that receives: sockets of the standard library and nothing of ours, so that the
//! preloaded library is measured.

use crate::clock::clock;
use crate::speaker::{end_with_parent, write_line};
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// How long either side waits for the other.
const PEER_TIMEOUT: Duration = Duration::from_secs(20);
/// Largest size that a sender may announce, bytes.
const SIZE_MAX: u64 = 64 << 20;

/// The traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Bytes that the receiver got.
    pub bytes: u64,
    /// From the first of them to the last, ns.
    pub nanos: u64,
}

impl Moved {
    /// Megabytes (10^6) a second; 0 if no time has passed.
    #[expect(clippy::cast_precision_loss, reason = "a figure")]
    pub fn rate(self) -> f64 {
        if self.nanos == 0 { 0.0 } else { self.bytes as f64 * 1e3 / self.nanos as f64 }
    }
}

/// A sender has its connection.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Connected;

/// Receives from everybody who connects to `port`, each in a thread, until it is killed.
///
/// # Errors
/// The port is taken.
pub fn sink(port: u16) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).context("cannot listen")?;
    loop {
        let (peer, _) = listener.accept()?;
        std::thread::spawn(move || {
            if let Err(error) = receive(peer) {
                eprintln!("{error:#}");
            }
        });
    }
}

/// Reads the bytes of one sender, and reports their number and time to it.
fn receive(mut peer: TcpStream) -> Result<()> {
    peer.set_read_timeout(Some(PEER_TIMEOUT))?;
    let mut word = [0; 8];
    peer.read_exact(&mut word)?;
    let size = u64::from_ne_bytes(word);
    ensure!((1..=SIZE_MAX).contains(&size), "a size of {size}");
    let mut buffer = vec![0; usize::try_from(size)?];
    let (mut begin, mut end, mut bytes) = (None, Instant::now(), 0_u64);
    loop {
        let count = match peer.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            count => count?,
        };
        if count == 0 {
            break;
        }
        end = Instant::now();
        begin.get_or_insert(end);
        bytes += count as u64;
    }
    let nanos = begin.map_or(0, |begin| u64::try_from((end - begin).as_nanos()).unwrap_or(u64::MAX));
    peer.write_all(&[bytes.to_ne_bytes(), nanos.to_ne_bytes()].concat())?;
    Ok(())
}

/// A connection to a [`sink`] on which nothing was sent yet.
#[derive(Debug)]
pub struct Flow {
    peer: TcpStream,
    bytes: Vec<u8>,
}

impl Flow {
    /// Connects; what is sent will be in writes of `size` bytes.
    ///
    /// # Errors
    /// Nobody listens.
    pub fn connect(to: SocketAddr, size: usize) -> Result<Self> {
        let mut peer = TcpStream::connect(to).context("cannot connect")?;
        peer.set_read_timeout(Some(PEER_TIMEOUT))?;
        peer.set_write_timeout(Some(PEER_TIMEOUT))?;
        peer.write_all(&(size as u64).to_ne_bytes())?;
        Ok(Self { peer, bytes: vec![0x5a; size] })
    }

    /// Sends for `time` from when the [clock] says `at`, and returns what the receiver got.
    ///
    /// # Errors
    /// The receiver goes.
    pub fn pour(mut self, at: u64, time: Duration) -> Result<Moved> {
        std::thread::sleep(Duration::from_nanos(at.saturating_sub(clock())));
        let begin = Instant::now();
        while begin.elapsed() < time {
            self.peer.write_all(&self.bytes)?;
        }
        self.peer.shutdown(Shutdown::Write)?;
        let mut answer = [0; 16];
        self.peer.read_exact(&mut answer).context("the receiver does not answer")?;
        let (bytes, nanos) = answer.split_at(8);
        let word = |part: &[u8]| part.try_into().map(u64::from_ne_bytes).unwrap_or_default();
        Ok(Moved { bytes: word(bytes), nanos: word(nanos) })
    }
}

/// The sending program: connects, reports that, waits on standard input for its start, and prints its result.
///
/// # Errors
/// As [`Flow`]'s.
pub fn sender(to: SocketAddr, size: usize, time: Duration) -> Result<()> {
    end_with_parent()?;
    let flow = Flow::connect(to, size)?;
    let mut out = std::io::stdout();
    write_line(&mut out, &Connected)?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    write_line(&mut out, &flow.pour(serde_json::from_str(&line)?, time)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_counts_bytes_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let sink = std::thread::spawn(move || receive(listener.accept().unwrap().0).unwrap());
        let moved = Flow::connect(to, 4096).unwrap().pour(0, Duration::from_millis(20)).unwrap();
        sink.join().unwrap();
        assert!(moved.bytes > 0 && moved.bytes.is_multiple_of(4096) && moved.rate() > 0.0, "{moved:?}");
        assert_eq!(Moved { bytes: 3_000_000, nanos: 1_000_000 }.rate(), 3000.0);
    }

    #[test]
    fn flow_refuses_an_impossible_size() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        peer.write_all(&u64::MAX.to_ne_bytes()).unwrap();
        assert!(receive(listener.accept().unwrap().0).is_err());
    }
}

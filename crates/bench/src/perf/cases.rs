//! One measured case, as both sides run it.

use super::bare::Bare;
use super::link::Link;
use super::ring::Ring;
use super::transport::{PEER_TIMEOUT, Transport, Wait};
use crate::clock::clock;
use anyhow::{Result, bail, ensure};
use crosslane_shm::{Load, Store};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// The transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Over {
    /// Crosslane's ring.
    Crosslane,
    /// The bare ring: the limit.
    Bare,
}

/// A case. Times are in milliseconds, sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Case {
    /// One cache line there and back.
    Line {
        /// How long.
        millis: u64,
    },
    /// A message there and back.
    PingPong {
        /// By what.
        over: Over,
        /// Of each message; at least 8 if stamped.
        size: usize,
        /// How long.
        millis: u64,
        /// Whether each message bears its time, for percentiles, which costs two looks at the clock.
        stamped: bool,
        /// Mark key of the ring.
        key: u64,
    },
    /// Messages as fast as they go.
    Stream {
        /// By what.
        over: Over,
        /// Of each message.
        size: usize,
        /// How long.
        millis: u64,
        /// Both ways at once.
        both: bool,
        /// Mark key of the ring.
        key: u64,
    },
}

/// The result of one side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// How long it took, s.
    pub seconds: f64,
    /// Messages (round trips in a ping-pong), both directions together.
    pub messages: u64,
    /// Percentiles of the one-way time seen here, ns, in the order of [`PERCENTILES`]; empty if not stamped.
    pub one_way_ns: Vec<u64>,
    /// Percentiles of the round trip, ns.
    pub round_trip_ns: Vec<u64>,
}

/// The percentiles that are reported.
pub const PERCENTILES: [f64; 5] = [50.0, 90.0, 99.0, 99.9, 100.0];

/// Round trips between two looks at the clock, where each would disturb.
const BATCH: u64 = 64;
/// First byte of a message: more follow, or not.
const MORE: u8 = 0;
const LAST: u8 = 1;

impl Case {
    /// Clears this side's words. Both sides must do this before either runs the case.
    pub fn clear(self, link: &Link) {
        Ring::clear(link);
        Bare::clear(link);
        link.line.0.store_u64(0, 0);
    }

    /// Runs the side that measures.
    pub fn near(self, link: &Link) -> Result<Outcome> {
        self.run(link, true)
    }

    /// Runs the side that answers.
    pub fn far(self, link: &Link) -> Result<Outcome> {
        self.run(link, false)
    }

    fn run(self, link: &Link, near: bool) -> Result<Outcome> {
        match self {
            Self::Line { millis } if near => line_near(link, Duration::from_millis(millis)),
            Self::Line { .. } => line_far(link),
            Self::PingPong { over: Over::Bare, .. } | Self::Stream { over: Over::Bare, .. } => {
                self.by(&mut Bare::new(link), near)
            }
            Self::PingPong { key, .. } | Self::Stream { key, .. } => self.by(&mut Ring::new(link, key), near),
        }
    }

    fn by(self, transport: &mut impl Transport, near: bool) -> Result<Outcome> {
        let time = Duration::from_millis;
        match self {
            Self::PingPong { size, millis, stamped, .. } if near => {
                ping(transport, size, time(millis), stamped)
            }
            Self::PingPong { size, stamped, .. } => pong(transport, size, stamped),
            Self::Stream { size, millis, both, .. } => {
                stream(transport, size, (near || both).then(|| time(millis)), both)
            }
            Self::Line { .. } => bail!("a line goes by no transport"),
        }
    }
}

/// Waits until the line holds another value than `old`, and returns it.
#[inline]
fn await_line(link: &Link, old: u64) -> Result<u64> {
    let mut start = None;
    loop {
        for _ in 0..if link.shared_core { 1 } else { 100_000 } {
            let value = link.line.1.load_u64(0);
            if value != old {
                return Ok(value);
            }
            std::hint::spin_loop();
        }
        std::thread::yield_now();
        let waited = start.get_or_insert_with(Instant::now).elapsed();
        ensure!(waited <= PEER_TIMEOUT, "the other side has been silent for {PEER_TIMEOUT:?}");
    }
}

fn line_near(link: &Link, time: Duration) -> Result<Outcome> {
    let (start, mut value, mut messages) = (Instant::now(), 0, 0);
    while start.elapsed() < time {
        for _ in 0..BATCH {
            link.line.0.store_u64(0, value + 1);
            value = await_line(link, value + 1)?;
            messages += 1;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    link.line.0.store_u64(0, u64::MAX);
    Ok(Outcome { seconds, messages, ..Outcome::default() })
}

fn line_far(link: &Link) -> Result<Outcome> {
    let mut value = 0;
    loop {
        value = await_line(link, value)?;
        if value == u64::MAX {
            return Ok(Outcome::default());
        }
        value += 1;
        link.line.0.store_u64(0, value);
    }
}

fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 60_000_000_000, 3)?)
}

fn percentiles(histogram: &Histogram<u64>) -> Vec<u64> {
    if histogram.is_empty() {
        return Vec::new();
    }
    PERCENTILES.iter().map(|&at| histogram.value_at_percentile(at)).collect()
}

/// Sends messages and waits for each answer. A stamped message is its time in 8 bytes, 0 for the last.
fn ping(transport: &mut impl Transport, size: usize, time: Duration, stamped: bool) -> Result<Outcome> {
    let (mut message, mut answer) = (vec![MORE; size], vec![0; size]);
    let (mut trips, mut messages, start) = (histogram()?, 0, Instant::now());
    while start.elapsed() < time {
        for _ in 0..BATCH {
            let before = if stamped { clock() } else { 0 };
            if stamped {
                message[..8].copy_from_slice(&before.to_ne_bytes());
            }
            transport.send(&message)?;
            transport.receive(&mut answer)?;
            if stamped {
                trips.saturating_record(clock().saturating_sub(before));
            }
            messages += 1;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    message.fill(if stamped { 0 } else { LAST });
    transport.send(&message)?;
    Ok(Outcome { seconds, messages, round_trip_ns: percentiles(&trips), ..Outcome::default() })
}

fn pong(transport: &mut impl Transport, size: usize, stamped: bool) -> Result<Outcome> {
    let mut message = vec![0; size];
    let mut ways = histogram()?;
    loop {
        transport.receive(&mut message)?;
        let last = if stamped {
            let now = clock();
            let stamp = message[..8].try_into().map_or(0, u64::from_ne_bytes);
            if stamp != 0 {
                ways.saturating_record(now.saturating_sub(stamp));
            }
            stamp == 0
        } else {
            message[0] == LAST
        };
        if last {
            return Ok(Outcome { one_way_ns: percentiles(&ways), ..Outcome::default() });
        }
        transport.send(&message)?;
    }
}

/// Sends for `time`, if given, and receives if `both`, or if nothing is sent. The side that only sends waits for
/// one byte in answer to the last message.
fn stream(
    transport: &mut impl Transport,
    size: usize,
    time: Option<Duration>,
    both: bool,
) -> Result<Outcome> {
    let start = Instant::now();
    let messages = match time {
        Some(time) if both => exchange(transport, size, start + time)?,
        Some(time) => {
            let messages = send_until(transport, size, start + time)?;
            transport.receive(&mut [0])?;
            messages
        }
        None => {
            let messages = receive_all(transport, size)?;
            transport.send(&[0])?;
            messages
        }
    };
    Ok(Outcome { seconds: start.elapsed().as_secs_f64(), messages, ..Outcome::default() })
}

/// Messages between two looks at the clock.
fn clock_interval(size: usize) -> u64 {
    (64 * 1024 / size as u64).clamp(1, 1024)
}

fn send_until(transport: &mut impl Transport, size: usize, end: Instant) -> Result<u64> {
    let (mut message, mut messages) = (vec![MORE; size], 0);
    while messages % clock_interval(size) != 0 || Instant::now() < end {
        transport.send(&message)?;
        messages += 1;
    }
    message[0] = LAST;
    transport.send(&message)?;
    Ok(messages + 1)
}

fn receive_all(transport: &mut impl Transport, size: usize) -> Result<u64> {
    let (mut message, mut messages) = (vec![0; size], 0);
    loop {
        transport.receive(&mut message)?;
        messages += 1;
        if message[0] == LAST {
            return Ok(messages);
        }
    }
}

/// Sends and receives by turns, whatever is possible, until the last message has gone out and the other's has come in.
fn exchange(transport: &mut impl Transport, size: usize, end: Instant) -> Result<u64> {
    let (mut message, mut target) = (vec![MORE; size], vec![0; size]);
    let (mut sent, mut received, mut at, mut from) = (0, 0, 0, 0);
    let (mut last_sent, mut last_received) = (false, false);
    while !last_sent || !last_received {
        let mut moved = 0;
        if !last_sent {
            let count = transport.try_send(&message[at..])?;
            (at, moved) = (at + count, count);
            if at == size {
                last_sent = message[0] == LAST;
                (at, sent) = (0, sent + 1);
                if sent % clock_interval(size) == 0 && Instant::now() >= end {
                    message[0] = LAST;
                }
            }
        }
        if !last_received {
            let count = transport.try_receive(&mut target[from..])?;
            (from, moved) = (from + count, moved + count);
            if from == size {
                last_received = target[0] == LAST;
                (from, received) = (0, received + 1);
            }
        }
        if moved == 0 {
            transport.wait(match (last_sent, last_received) {
                (false, false) => Wait::Both,
                (false, true) => Wait::Room,
                _ => Wait::Data,
            })?;
        }
    }
    Ok(sent + received)
}

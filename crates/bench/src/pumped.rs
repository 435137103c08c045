//! Our rings through the pumps of hosts between, with no daemon: two ends and some pumps, each a thread of this
//! process, all polled as long as something moves.

use anyhow::{Context, Result, anyhow, ensure};
use crosslane_node::pump::{Command, Leg, Pumps, TransitId};
use crosslane_shm::mem::new_segment;
use crosslane_shm::ring::{Consumer, Producer};
use crosslane_shm::wake::Waker;
use crosslane_shm::{Inbound, Outbound};
use crosslane_wire::WaiterId;
use crosslane_wire::record::{CPU_MASK, Kind};
use crosslane_wire::segment::{RING_MIN, segment_len};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longest ring, bytes.
const RING: u64 = 4 << 20;
/// Keys of all marks; fresh memory has no valid mark.
const KEY: u64 = 1 << 40;
/// Failed looks before an end yields its processor.
const LOOKS: u32 = 1024;
/// How many times an end yields before it wants a longer ring, and before it looks at the clock.
const PRESS: u32 = 20;
/// How long a pump polls while nothing moves.
const SPIN: Duration = Duration::from_secs(1);
/// How long an end waits before it gives up.
const PEER_TIMEOUT: Duration = Duration::from_secs(10);
/// First byte of a message: whether another follows.
const GO_ON: u8 = 1;
const LAST: u8 = 0;
/// Bytes that the receiver takes at a time, at most.
const TAKE: usize = 128 << 10;

/// One end.
#[derive(Debug)]
struct Side {
    inbound: Inbound,
    outbound: Outbound,
    producer: Producer,
    consumer: Consumer,
    wakers: Wakers,
}

/// The wake events of the pumps between, which sleep when nothing has moved for a while.
type Wakers = Arc<Vec<Waker>>;

/// Two ends with pumps between.
#[derive(Debug)]
pub struct Chain {
    near: Side,
    far: Side,
    _pumps: Vec<Pumps>,
}

impl Chain {
    /// Two ends with `pumps` pumps between: a way over one cable more.
    ///
    /// # Errors
    /// No memory, or no threads.
    pub fn new(pumps: usize) -> Result<Self> {
        let segment =
            || Ok([new_segment("forth", segment_len(RING))?, new_segment("back", segment_len(RING))?]);
        let cables = (0..=pumps).map(|_| segment()).collect::<Result<Vec<[OwnedFd; 2]>>>()?;
        let leg = |inbound: &OwnedFd, outbound: &OwnedFd, is_end| -> Result<Leg> {
            let (inbound, outbound) = views(inbound, outbound)?;
            Ok(Leg { inbound, outbound, ring_max: RING, rx_key: KEY, tx_key: KEY, is_end, in_flight_ns: 0 })
        };
        let (mut all, mut wakers) = (Vec::new(), Vec::new());
        for (at, pair) in cables.windows(2).enumerate() {
            let [[forth, back], [on, off]] = pair else { continue };
            let legs = [leg(forth, back, at == 0)?, leg(off, on, at + 1 == pumps)?];
            let mut pump = Pumps::new(1, SPIN)?;
            pump.command(Command::Add { transit: TransitId(1), legs, waiter: WaiterId(1) })?;
            let (_, receiver) = pump.receiver_of(TransitId(1)).context("the pump has no such circuit")?;
            wakers.push(receiver.waker()?);
            all.push(pump);
        }
        let ([forth, back], [last, first]) = (&cables[0], &cables[pumps]);
        let wakers = Arc::new(wakers);
        let near = Side::new(views(back, forth)?, wakers.clone());
        Ok(Self { near, far: Side::new(views(last, first)?, wakers), _pumps: all })
    }

    /// Bytes in a second from end to end, in writes of `size` bytes for about `time`.
    ///
    /// # Errors
    /// An end waits in vain.
    #[expect(clippy::cast_precision_loss, reason = "a figure")]
    pub fn rate(&mut self, size: usize, time: Duration) -> Result<f64> {
        let Self { near, far, .. } = self;
        let (sent, done) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                // Not before: on a busy machine a thread may begin late.
                let (bytes, begin) = (vec![1; size], Instant::now());
                while near.send(&bytes).is_ok() {
                    sent.fetch_add(size as u64, Ordering::Relaxed);
                    if begin.elapsed() >= time {
                        break;
                    }
                }
                done.store(true, Ordering::Release);
                begin
            });
            let (mut target, mut got, mut wait) = (vec![0; TAKE], 0, Wait::default());
            while !(done.load(Ordering::Acquire) && got >= sent.load(Ordering::Relaxed)) {
                match far.take(&mut target)? {
                    0 => wait.look(&far.wakers)?,
                    count => (got, wait) = (got + count as u64, Wait::default()),
                }
            }
            ensure!(got > 0, "nothing was sent");
            let end = Instant::now();
            let begin = sender.join().map_err(|_| anyhow!("the sender has panicked"))?;
            Ok(got as f64 / (end - begin).as_secs_f64())
        })
    }

    /// Half of the median round trip of `size` bytes (1 or more), ns; measured for `time`.
    ///
    /// # Errors
    /// An end waits in vain.
    #[expect(clippy::cast_precision_loss, reason = "a figure")]
    pub fn one_way(&mut self, size: usize, time: Duration) -> Result<f64> {
        ensure!(size > 0, "a message of no bytes");
        let Self { near, far, .. } = self;
        std::thread::scope(|scope| {
            scope.spawn(move || -> Result<()> {
                let mut bytes = vec![GO_ON; size];
                while bytes[0] == GO_ON {
                    far.receive(&mut bytes)?;
                    far.send(&bytes)?;
                }
                Ok(())
            });
            let (begin, mut bytes, mut times) = (Instant::now(), vec![GO_ON; size], Vec::new());
            while bytes[0] == GO_ON {
                let start = Instant::now();
                if start - begin > time {
                    bytes.fill(LAST);
                }
                near.send(&bytes)?;
                near.receive(&mut bytes)?;
                times.push(start.elapsed().as_nanos() as f64 / 2.0);
            }
            times.sort_by(f64::total_cmp);
            Ok(times[times.len() / 2])
        })
    }
}

impl Side {
    fn new((inbound, outbound): (Inbound, Outbound), wakers: Wakers) -> Self {
        let (producer, consumer) = (Producer::default(), Consumer::default());
        producer.reset(RING_MIN, RING, KEY);
        consumer.reset(RING_MIN, RING, KEY);
        Self { inbound, outbound, producer, consumer, wakers }
    }

    fn send(&mut self, mut bytes: &[u8]) -> Result<()> {
        let mut wait = Wait::default();
        while !bytes.is_empty() {
            let count = self.producer.push(&self.outbound, &self.inbound, Kind::Data, bytes, CPU_MASK)?;
            bytes = &bytes[count..];
            if count > 0 {
                wait = Wait::default();
                continue;
            }
            wait.look(&self.wakers)?;
            if wait.yields > PRESS && self.producer.can_grow() {
                self.producer.request_grow();
            }
        }
        Ok(())
    }

    fn receive(&mut self, mut target: &mut [u8]) -> Result<()> {
        let mut wait = Wait::default();
        while !target.is_empty() {
            let count = self.take(target)?;
            target = &mut target[count..];
            if count == 0 {
                wait.look(&self.wakers)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, target: &mut [u8]) -> Result<usize> {
        let count = self.consumer.take(&self.inbound, target)?;
        self.consumer.give_credit(&self.outbound, false);
        Ok(count)
    }
}

/// The memory that an end loads from, and that it stores to.
fn views(inbound: &OwnedFd, outbound: &OwnedFd) -> Result<(Inbound, Outbound)> {
    let len = segment_len(RING);
    Ok((Inbound::sealed(inbound, len)?, Outbound::sealed(outbound, len)?))
}

/// A wait without sleep that yields the processor now and then, since there may be fewer processors than threads, and
/// wakes the pumps.
#[derive(Debug, Default)]
struct Wait {
    looks: u32,
    yields: u32,
    since: Option<Instant>,
}

impl Wait {
    fn look(&mut self, wakers: &Wakers) -> Result<()> {
        self.looks += 1;
        if self.looks < LOOKS {
            std::hint::spin_loop();
            return Ok(());
        }
        (self.looks, self.yields) = (0, self.yields + 1);
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        ensure!(waited <= PEER_TIMEOUT, "the other end is silent");
        for waker in wakers.iter() {
            waker.wake();
        }
        std::thread::yield_now();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pump_passes_bytes_both_ways() {
        for pumps in 0..=2 {
            let mut chain = Chain::new(pumps).unwrap();
            for size in [64, 1 << 20] {
                assert!(chain.rate(size, Duration::from_millis(5)).unwrap() > 0.0);
                assert!(chain.one_way(size, Duration::from_millis(5)).unwrap() > 0.0);
            }
        }
    }
}

//! What a host between costs: stream bandwidth and one-way latency over 0, 1, 2 pumps, all polled, each on a processor
//! of its own as far as they suffice. `cargo run --release -p crosslane-bench --example pump`

use anyhow::{Context, Result};
use crosslane_bench::affinity::Pin;
use crosslane_node::pump::{Command, Leg, Pumps, TransitId};
use crosslane_shm::mem::new_slice;
use crosslane_shm::ring::{Consumer, Producer};
use crosslane_shm::{Caching, Inbound, Outbound};
use crosslane_wire::WaiterId;
use crosslane_wire::record::Kind;
use crosslane_wire::slice::{RING_MIN, slice_len};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

const RING: u64 = 4 << 20;
const KEY: u64 = 1 << 40;
const PIECE: usize = 128 << 10;
const BYTES: usize = 8 << 30;
const ROUNDS: u32 = 200_000;
/// Rings of no end press when no credit has come for so many looks.
const LOOKS: u32 = 20_000;

/// One end of a channel, without sleep.
struct Side {
    inbound: Inbound,
    outbound: Outbound,
    producer: Producer,
    consumer: Consumer,
}

impl Side {
    fn new(inbound: &OwnedFd, outbound: &OwnedFd) -> Result<Self> {
        let len = slice_len(RING);
        let outbound = Outbound::map(outbound, len, Caching::WriteBack)?;
        let side = Self {
            inbound: Inbound::map(inbound, len)?,
            outbound,
            producer: Producer::default(),
            consumer: Consumer::default(),
        };
        side.producer.reset(RING_MIN, RING, KEY);
        side.consumer.reset(RING_MIN, RING, KEY);
        Ok(side)
    }

    fn send(&self, mut bytes: &[u8]) -> Result<()> {
        let mut looks = 0;
        while !bytes.is_empty() {
            let count = self.producer.push(&self.outbound, &self.inbound, Kind::Data, bytes, 0x3ff)?;
            bytes = &bytes[count..];
            looks = if count > 0 { 0 } else { looks + 1 };
            if looks > LOOKS && self.producer.can_be_pressed() {
                self.producer.press();
            }
            std::hint::spin_loop();
        }
        Ok(())
    }

    fn receive(&self, mut target: &mut [u8]) -> Result<()> {
        while !target.is_empty() {
            let count = self.consumer.take(&self.inbound, target)?;
            target = &mut target[count..];
            if !self.consumer.give_credit(&self.outbound, false) && count == 0 {
                std::hint::spin_loop();
            }
        }
        Ok(())
    }
}

/// Two ends with so many pumps between, which live as long as what is returned.
fn chain(count: usize) -> Result<([Side; 2], Vec<Pumps>)> {
    let slice = || Ok([new_slice("forth", slice_len(RING))?, new_slice("back", slice_len(RING))?]);
    let cables = (0..=count).map(|_| slice()).collect::<Result<Vec<[OwnedFd; 2]>>>()?;
    let leg = |inbound: &OwnedFd, outbound: &OwnedFd, is_end| -> Result<Leg> {
        let Side { inbound, outbound, .. } = Side::new(inbound, outbound)?;
        Ok(Leg { inbound, outbound, ring_max: RING, rx_key: KEY, tx_key: KEY, is_end, posted: false })
    };
    let mut pumps = Vec::new();
    for at in 0..count {
        let ([forth, back], [on, off]) = (&cables[at], &cables[at + 1]);
        let legs = [leg(forth, back, at == 0)?, leg(off, on, at + 1 == count)?];
        let mut pump = Pumps::new(&[WaiterId(1)], Duration::from_secs(1))?;
        // The thread begins with its first circuit and inherits our processor; on a single one it would not poll.
        let _pin = Pin::to(2 + at % 2).ok();
        pump.command(Command::Add { transit: TransitId(1), legs })?;
        pumps.push(pump);
    }
    let ([forth, back], [last, first]) = (&cables[0], &cables[count]);
    Ok(([Side::new(back, forth)?, Side::new(last, first)?], pumps))
}

/// Bytes per second.
fn bandwidth(count: usize) -> Result<f64> {
    let ([near, far], _pumps) = chain(count)?;
    let start = Instant::now();
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || -> Result<()> {
            let _pin = Pin::to(0).ok();
            let piece = vec![1; PIECE];
            (0..BYTES / PIECE).try_for_each(|_| near.send(&piece))
        });
        let _pin = Pin::to(1).ok();
        let mut piece = vec![0; PIECE];
        (0..BYTES / PIECE).try_for_each(|_| far.receive(&mut piece))?;
        sender.join().ok().context("the sender ended")?
    })?;
    Ok(BYTES as f64 / start.elapsed().as_secs_f64())
}

/// Half of the median round trip of one byte, ns.
fn latency(count: usize) -> Result<u128> {
    let ([near, far], _pumps) = chain(count)?;
    std::thread::scope(|scope| {
        let echo = scope.spawn(move || -> Result<()> {
            let _pin = Pin::to(1).ok();
            let mut byte = [0];
            (0..ROUNDS).try_for_each(|_| far.receive(&mut byte).and_then(|()| far.send(&byte)))
        });
        let _pin = Pin::to(0).ok();
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let start = Instant::now();
            near.send(&[1])?;
            near.receive(&mut [0])?;
            times.push(start.elapsed().as_nanos() / 2);
        }
        echo.join().ok().context("the echo ended")??;
        times.sort_unstable();
        Ok(times[times.len() / 2])
    })
}

fn main() -> Result<()> {
    let (mut bare, mut before) = (None, None);
    println!("pumps  GB/s   of bare  one-way ns  added ns");
    for count in 0..=2 {
        let (rate, time) = (bandwidth(count)?, latency(count)?);
        let bare = *bare.get_or_insert(rate);
        let added = time.saturating_sub(before.unwrap_or(time));
        before = Some(time);
        println!("{count:5}  {:5.2}  {:5.0} %  {time:10}  {added:8}", rate / 1e9, rate / bare * 100.0);
    }
    Ok(())
}

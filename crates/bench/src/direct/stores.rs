//! Direct access over a timed cable: one program's stores into another host's memory, by two ports and no daemon. What `ntb_perf` is
//! for the kernel, with the difference that the end of a run is what the far side has seen.

use anyhow::{Context, Result, ensure};
use crosslane_pcie::Cable;
use crosslane_port::posted::{PostedConfig, PostedPort, Stores, Timing};
use crosslane_port::soft::SoftConfig;
use crosslane_port::{Pacing, Port};
use crosslane_shm::{Inbound, Load, Outbound, Store};
use crosslane_wire::SegmentRange;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Bytes of the far memory that are stored to, over and over; a page of it, in front, has the counter of rounds.
const LEN: usize = 1 << 20;
const PAGE: usize = 4096;
/// How long the link may take to come up, and stores to land.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a message whose time one way is measured: a line.
const MESSAGE: usize = 64;

/// A cable with both its ends in this process.
#[derive(Debug)]
pub(super) struct Rig {
    near: PostedPort,
    _far: PostedPort,
    window: Outbound,
    memory: Inbound,
    rounds: u64,
    _folder: TempDir,
}

impl Rig {
    /// Plugs the cable in, and opens a window.
    pub(super) fn new(cable: Cable) -> Result<Self> {
        let folder = tempfile::tempdir().context("a folder for the cable's socket")?;
        let stores = Stores { timing: Timing::Cable(cable), seed: 1, combine: true };
        let config = PostedConfig { soft: SoftConfig::new(folder.path().join("cable.sock")), stores };
        let (mut far, mut near) = (PostedPort::listen(config.clone())?, PostedPort::connect(config)?);
        let deadline = Instant::now() + PATIENCE;
        while !(near.is_up() && far.is_up()) {
            ensure!(Instant::now() < deadline, "the link does not come up");
            while far.poll_event().is_some() || near.poll_event().is_some() {}
            std::thread::sleep(Duration::from_millis(1));
        }
        let range = SegmentRange { offset: 0, len: (PAGE + LEN) as u64 };
        far.set_inbound(0, range.len).context("memory for the window")?;
        let memory = far.map_inbound(0, range).context("memory behind the window")?;
        let window = near.map_outbound(0, range).context("the window")?;
        Ok(Self { near, _far: far, window, memory, rounds: 0, _folder: folder })
    }

    /// MB (10^6) a second of stores of `size` bytes that go on for about `time`, until the last has landed.
    #[expect(clippy::cast_precision_loss, reason = "a figure")]
    pub(super) fn rate(&mut self, size: usize, time: Duration) -> Result<f64> {
        let (bytes, start, mut stored) = (vec![0x5a; size], Instant::now(), 0_u64);
        let places = (LEN / size).max(1);
        while start.elapsed() < time {
            for place in 0..places {
                self.window.write(PAGE + place * size, &bytes);
                stored += size as u64;
            }
        }
        self.finish()?;
        Ok(stored as f64 / start.elapsed().as_secs_f64() / 1e6)
    }

    /// Times one way of lines of 64 bytes, one at a time, us: from before the store until this program sees it in the far memory.
    pub(super) fn times(&mut self, count: usize) -> Result<Vec<f64>> {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            self.rounds += 1;
            let line = [self.rounds.to_ne_bytes(); MESSAGE / 8].concat();
            let start = Instant::now();
            self.window.write(0, &line);
            self.wait(start)?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        Ok(times)
    }

    /// Waits until all stores up to now have landed.
    fn finish(&mut self) -> Result<()> {
        self.rounds += 1;
        self.window.store_fence();
        self.window.store_u64(0, self.rounds);
        self.wait(Instant::now())
    }

    fn wait(&self, since: Instant) -> Result<()> {
        while self.memory.load_u64(0) != self.rounds {
            ensure!(since.elapsed() < PATIENCE, "stores do not land");
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// How well the cable's times were kept so far.
    pub(super) fn pacing(&self) -> Option<Pacing> {
        self.near.pacing()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crosslane_pcie::Limits;

    #[test]
    fn stores_are_no_faster_than_their_cable() {
        let cable: Cable = "gen1 x1".parse().unwrap();
        let mut rig = Rig::new(cable).unwrap();
        let rate = rig.rate(64 << 10, Duration::from_millis(50)).unwrap();
        let limit = Limits(&cable).payload(false) / 1e6;
        assert!(rate > 0.0 && rate < limit * 1.01, "{rate} MB/s of {limit}");
        let least = Limits(&cable).latency(64) as f64 / 1e6;
        assert!(rig.times(20).unwrap().iter().all(|time| *time >= least));
        let pacing = rig.pacing().unwrap();
        assert_eq!(pacing.cable, cable);
        assert!(pacing.landed_bytes >= 1 << 20 && pacing.late_bytes <= pacing.landed_bytes);
    }
}

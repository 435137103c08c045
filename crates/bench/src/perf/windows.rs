//! How fast one processor stores into a window, by size and by kind of copy.

use super::link::RING_BYTES;
use anyhow::Result;
use crosslane_shm::copy::{Strategy, store_fence};
use crosslane_shm::{Outbound, Store, mem};
use std::time::{Duration, Instant};

/// A segment that is written, and private memory of the same size to compare with.
#[derive(Debug)]
pub(super) struct Window {
    segment: Outbound,
    private: Vec<u8>,
    source: Vec<u8>,
}

impl Window {
    pub(super) fn new() -> Result<Self> {
        let fd = mem::new_segment("crosslane-perf-window", RING_BYTES)?;
        let segment = Outbound::sealed(&fd, RING_BYTES)?;
        let source = vec![0x5a; segment.len()];
        segment.write(0, &source);
        Ok(Self { private: source.clone(), segment, source })
    }

    /// Gb/s of writes of `size` bytes, back to back.
    pub(super) fn rate(&self, strategy: Strategy, size: usize, time: Duration) -> f64 {
        run(self.source.len(), size, time, |at| {
            self.segment.write_by(strategy, at, &self.source[at..at + size]);
            store_fence();
        })
    }

    /// The same into private memory.
    pub(super) fn private_rate(&mut self, size: usize, time: Duration) -> f64 {
        let (private, source) = (&mut self.private, &self.source);
        run(source.len(), size, time, |at| {
            private[at..at + size].copy_from_slice(&source[at..at + size]);
            std::hint::black_box(&mut *private);
        })
    }
}

fn run(len: usize, size: usize, time: Duration, mut write: impl FnMut(usize)) -> f64 {
    let (mut at, mut bytes, start) = (0, 0u64, Instant::now());
    loop {
        for _ in 0..(65536 / size).max(1) {
            write(at);
            at = if at + 2 * size <= len { at + size } else { 0 };
            bytes += size as u64;
        }
        let elapsed = start.elapsed();
        if elapsed >= time {
            #[expect(clippy::cast_precision_loss, reason = "a figure")]
            return bytes as f64 * 8.0 / elapsed.as_secs_f64() / 1e9;
        }
    }
}

//! The limit: a bare two-copy byte ring in shared memory, with two indices and nothing else. It trusts its peer, has no
//! records, never sleeps, and uses all of its 8 MB from the start.

use super::link::{Link, RING_BYTES};
use super::transport::{PEER_TIMEOUT, Transport, Wait};
use anyhow::{Result, ensure};
use crosslane_shm::{Load, Store};
use crosslane_wire::segment::RING;
use std::time::Instant;

/// Where the writer's index lies in the reader's memory, and the reader's in the writer's.
const SENT: usize = 0x200;
const TAKEN: usize = 0x240;
/// Bytes that are published at a time, so that the reader copies one piece while the writer copies the next.
const PIECE: usize = 64 * 1024;
/// Failed looks before the processor is yielded.
const SPINS: u32 = 20_000;

/// One end.
#[derive(Debug)]
pub struct Bare<'a> {
    link: &'a Link,
    sent: u64,
    /// The other side's index as last seen.
    free_until: u64,
    taken: u64,
    /// The value of `taken` that the other side knows.
    published: u64,
    /// The other side's index as last seen.
    full_until: u64,
}

impl<'a> Bare<'a> {
    /// Resets the ring.
    pub fn new(link: &'a Link) -> Self {
        Self { link, sent: 0, free_until: RING_BYTES, taken: 0, published: 0, full_until: 0 }
    }

    /// Clears the words that this side keeps with the other, before either begins.
    pub fn clear(link: &Link) {
        for word in [SENT, TAKEN] {
            link.out.store_u64(word, 0);
        }
    }

    /// Publishes how much was taken, if it is at least `least` more than the other side knows of.
    #[inline]
    fn publish(&mut self, least: u64) {
        if self.taken - self.published >= least {
            self.published = self.taken;
            self.link.out.store_u64(TAKEN, self.taken);
        }
    }

    /// Where in the segment `index` lies, and how many bytes there are to the ring's end.
    fn place(index: u64) -> (usize, usize) {
        let offset = usize::try_from(index % RING_BYTES).unwrap_or(0);
        (RING + offset, usize::try_from(RING_BYTES).unwrap_or(0) - offset)
    }
}

impl Transport for Bare<'_> {
    #[inline]
    fn try_send(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut done = 0;
        while done < bytes.len() {
            if self.free_until == self.sent || self.free_until - self.sent < (bytes.len() - done) as u64 {
                self.free_until = self.link.inb.load_u64(TAKEN) + RING_BYTES;
            }
            let (at, to_end) = Self::place(self.sent);
            let room = usize::try_from(self.free_until - self.sent).unwrap_or(0);
            let count = (bytes.len() - done).min(room).min(to_end).min(PIECE);
            if count == 0 {
                break;
            }
            self.link.out.write(at, &bytes[done..done + count]);
            done += count;
            self.sent += count as u64;
            self.link.out.store_u64(SENT, self.sent);
        }
        Ok(done)
    }

    #[inline]
    fn try_receive(&mut self, target: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < target.len() {
            if self.full_until - self.taken < (target.len() - done) as u64 {
                self.full_until = self.link.inb.load_u64(SENT);
            }
            let (at, to_end) = Self::place(self.taken);
            let there = usize::try_from(self.full_until - self.taken).unwrap_or(0);
            let count = (target.len() - done).min(there).min(to_end).min(PIECE);
            if count == 0 {
                self.publish(1);
                break;
            }
            self.link.inb.read(at, &mut target[done..done + count]);
            done += count;
            self.taken += count as u64;
            self.publish(RING_BYTES / 8);
        }
        Ok(done)
    }

    #[inline]
    fn wait(&mut self, wait: Wait) -> Result<()> {
        let mut start = None;
        loop {
            for _ in 0..if self.link.shared_core { 1 } else { SPINS } {
                let data = wait != Wait::Room && self.link.inb.load_u64(SENT) != self.taken;
                let room = wait != Wait::Data && self.link.inb.load_u64(TAKEN) + RING_BYTES != self.sent;
                if data || room {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            std::thread::yield_now();
            let waited = start.get_or_insert_with(Instant::now).elapsed();
            ensure!(waited <= PEER_TIMEOUT, "the other side has been silent for {PEER_TIMEOUT:?}");
        }
    }
}

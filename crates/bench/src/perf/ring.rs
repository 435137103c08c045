//! Crosslane's own ring as a transport: checked records, credits, growth, and sleep when nothing comes.

use super::link::{Link, RING_BYTES};
use super::transport::{Transport, Wait};
use crate::affinity;
use anyhow::Result;
use crosslane_shm::ring::{Consumer, Duplex, Producer};
use crosslane_shm::wait::{Budget, spin};
use crosslane_shm::{Inbound, Load, Store};
use crosslane_wire::record::Kind;
use crosslane_wire::segment::{CREDIT, RING_MIN, WANT_DATA, WANT_ROOM};
use std::time::Instant;

/// Longest spin before sleep: about what a wake-up costs, ns.
const SPIN_NS: u32 = 50_000;

/// One end.
#[derive(Debug)]
pub struct Ring<'a> {
    link: &'a Link,
    producer: Producer,
    consumer: Consumer,
    budget: Budget,
    limit_ns: u32,
    cpu: u16,
}

impl<'a> Ring<'a> {
    /// Resets the ring on memory that both sides leave alone. `key` must be the same on both sides and new.
    pub fn new(link: &'a Link, key: u64) -> Self {
        let limit_ns = if link.shared_core { 0 } else { SPIN_NS };
        let (producer, consumer, budget) = (Producer::default(), Consumer::default(), Budget::default());
        producer.reset(RING_MIN, RING_BYTES, key);
        consumer.reset(RING_MIN, RING_BYTES, key);
        budget.reset(limit_ns);
        Self { link, producer, consumer, budget, limit_ns, cpu: affinity::current() }
    }

    /// Clears the words that this side keeps with the other, before either begins.
    pub fn clear(link: &Link) {
        for word in [CREDIT, WANT_DATA, WANT_ROOM] {
            link.out.store_u64(word, 0);
        }
    }

    /// After publishing: wakes the other side if it announced that it sleeps for that.
    fn published(&self, want: usize) -> Result<()> {
        self.link.out.fence();
        if self.link.inb.load_u64(want) != 0 { self.link.wake() } else { Ok(()) }
    }

    fn credits(&self) -> Duplex<'_, Inbound> {
        Duplex { words: &self.link.inb, consumer: &self.consumer, rides: true }
    }

    fn ready(&self, wait: Wait) -> bool {
        let inb = &self.link.inb;
        let data = wait != Wait::Room && self.consumer.arrived(inb);
        // A credit that breaks the rules is "ready" too: the next try reports it.
        let full =
            || self.producer.room(&self.credits(), self.producer.cap() / 4).is_ok_and(|room| room < 128);
        data || (wait != Wait::Data && !full())
    }

    /// Arm, fence, look once more, sleep, disarm.
    fn sleep(&self, wait: Wait) -> Result<()> {
        let words: &[usize] = match wait {
            Wait::Data => &[WANT_DATA],
            Wait::Room => &[WANT_ROOM],
            Wait::Both => &[WANT_DATA, WANT_ROOM],
        };
        for &word in words {
            self.link.out.store_u64(word, 1);
        }
        self.link.out.fence();
        if !self.ready(wait) {
            self.link.sleep()?;
        }
        for &word in words {
            self.link.out.store_u64(word, 0);
        }
        Ok(())
    }
}

impl Transport for Ring<'_> {
    #[inline]
    fn try_send(&mut self, bytes: &[u8]) -> Result<usize> {
        let count = self.producer.push(&self.link.out, &self.credits(), Kind::Data, bytes, self.cpu)?;
        if count > 0 {
            self.published(WANT_DATA)?;
        }
        Ok(count)
    }

    #[inline]
    fn try_receive(&mut self, target: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < target.len() {
            let count = self.consumer.take(&self.link.inb, &mut target[done..])?;
            if count == 0 {
                break;
            }
            done += count;
            if self.consumer.give_or_offer(&self.link.out, &self.link.inb) {
                self.published(WANT_ROOM)?;
            }
        }
        Ok(done)
    }

    fn wait(&mut self, wait: Wait) -> Result<()> {
        if spin(self.budget.ns(self.limit_ns), || self.ready(wait)) {
            self.budget.spun(self.limit_ns);
            return Ok(());
        }
        if wait != Wait::Data && self.producer.can_grow() {
            self.producer.request_grow();
            return Ok(());
        }
        let start = Instant::now();
        self.sleep(wait)?;
        let slept = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.budget.slept(slept, self.limit_ns);
        Ok(())
    }
}

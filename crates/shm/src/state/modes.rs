//! Which way of moving data was chosen for a stream, and how many bytes were moved each way.

use core::sync::atomic::{AtomicU64, Ordering};

/// How many bytes of one direction were moved each way, for display only. The holder of the direction's lock writes them.
/// All other bytes of the direction were Bcopy, and this end copied them once.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Modes {
    /// Payload moved by Read Zcopy, bytes.
    pub read_zcopy: AtomicU64,
    /// Payload moved by Write Zcopy, bytes.
    pub write_zcopy: AtomicU64,
    /// Payload of Transactions, requests and answers, bytes.
    pub transaction: AtomicU64,
    /// Payload that this end moved without a copy of its own, bytes: the far end copied it, or no end did.
    pub spared: AtomicU64,
    /// Records with payload.
    pub records: AtomicU64,
    /// Messages without payload that this end sent for this direction: announcements, completions, credit. The completion of a
    /// write into offered memory does not count.
    pub control: AtomicU64,
    /// Announcements that were taken back or refused.
    pub cancelled: AtomicU64,
    /// Payload that the daemon's engine moved, bytes.
    pub offloaded: AtomicU64,
}

/// [`Modes`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModesSnapshot {
    /// Payload moved by Read Zcopy, bytes.
    pub read_zcopy: u64,
    /// Payload moved by Write Zcopy, bytes.
    pub write_zcopy: u64,
    /// Payload of Transactions, bytes.
    pub transaction: u64,
    /// Payload that this end did not copy, bytes.
    pub spared: u64,
    /// Records with payload.
    pub records: u64,
    /// Messages without payload.
    pub control: u64,
    /// Announcements that were taken back or refused.
    pub cancelled: u64,
    /// Payload that the daemon's engine moved, bytes.
    pub offloaded: u64,
}

impl ModesSnapshot {
    /// The sums of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let sum = u64::wrapping_add;
        Self {
            read_zcopy: sum(self.read_zcopy, other.read_zcopy),
            write_zcopy: sum(self.write_zcopy, other.write_zcopy),
            transaction: sum(self.transaction, other.transaction),
            spared: sum(self.spared, other.spared),
            records: sum(self.records, other.records),
            control: sum(self.control, other.control),
            cancelled: sum(self.cancelled, other.cancelled),
            offloaded: sum(self.offloaded, other.offloaded),
        }
    }
}

/// Who chose how a stream moves its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Chooser {
    /// The default: no one has chosen.
    #[default]
    Nobody = 0,
    /// The program, by `setsockopt`.
    Program = 1,
    /// A rule of the configuration.
    Rule = 2,
}

/// What was chosen for a stream, by number, and who chose it. The program may have written any value there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// A `crosslane_stream::Transfer`.
    pub transfer: u32,
    /// Who chose `transfer`.
    pub transfer_by: Chooser,
    /// Whether the daemon's engine is to copy.
    pub offload: bool,
    /// Who chose `offload`.
    pub offload_by: Chooser,
}

impl Modes {
    /// The present values.
    pub fn snapshot(&self) -> ModesSnapshot {
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
        ModesSnapshot {
            read_zcopy: word(&self.read_zcopy),
            write_zcopy: word(&self.write_zcopy),
            transaction: word(&self.transaction),
            spared: word(&self.spared),
            records: word(&self.records),
            control: word(&self.control),
            cancelled: word(&self.cancelled),
            offloaded: word(&self.offloaded),
        }
    }
}

impl ModesSnapshot {
    /// Payload that went through the ring, of `total` bytes.
    pub fn bcopy(&self, total: u64) -> u64 {
        [self.read_zcopy, self.write_zcopy, self.transaction].into_iter().fold(total, u64::saturating_sub)
    }

    /// Payload that this end copied, of `total` bytes.
    pub fn copied(&self, total: u64) -> u64 {
        total.saturating_sub(self.spared)
    }
}

impl Chooser {
    /// The chooser with this number; [`Self::Nobody`] for a number that this code never writes.
    pub fn from_number(number: u32) -> Self {
        match number {
            1 => Self::Program,
            2 => Self::Rule,
            _ => Self::Nobody,
        }
    }
}

//! The generations of segments that a process has for an end: a list that only grows at its end, while any thread may be
//! reading it.

use crate::segments::{Next, Segments};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Release};
use crosslane_shm::list::{List, Node};
use crosslane_wire::local::{STATUS_ALIVE, status_word};

/// One generation, kept until the end is dropped.
pub(super) type Generation = Node<Member>;

/// The contents of a generation.
#[derive(Debug)]
pub(super) struct Member {
    /// Its mapped segments.
    pub(super) segments: Segments,
    /// Stream offset of the receiving direction at which it begins.
    pub(super) limit: u64,
    /// Stream offset of the sending direction that the far end had when it began; `None` if sending does not use this generation.
    pub(super) arrived: Option<u64>,
}

/// All generations of this process, and those that receiving and sending use.
#[derive(Debug)]
pub(super) struct Generations {
    list: List<Member, 2>,
    current: AtomicU32,
}

/// Mark of the generation that receiving uses.
const RX: usize = 0;
/// Mark of the generation that sending uses.
const TX: usize = 1;
/// A value that no word of the status page has.
const UNKNOWN: u32 = u32::MAX;

impl Member {
    /// The next generation, as the daemon gave it.
    pub(super) fn of(next: Next) -> Self {
        let Next { segments, newest, limit, arrived } = next;
        Self { segments, limit, arrived: newest.then_some(arrived) }
    }

    /// Its number.
    #[inline]
    pub(super) fn number(&self) -> u32 {
        self.segments.generation
    }

    /// The status word while this is the newest generation and the circuit lives.
    #[inline]
    pub(super) fn word(&self) -> u32 {
        status_word(self.segments.generation, STATUS_ALIVE)
    }
}

impl Generations {
    /// A list of one.
    pub(super) fn new(segments: Segments) -> Self {
        let first = Member { segments, limit: 0, arrived: None };
        Self { list: List::new(first), current: AtomicU32::new(UNKNOWN) }
    }

    /// The generation that receiving uses, as far as this process knows.
    #[inline]
    pub(super) fn rx(&self) -> &Generation {
        self.list.at(RX)
    }

    /// The generation that sending uses, as far as this process knows.
    #[inline]
    pub(super) fn tx(&self) -> &Generation {
        self.list.at(TX)
    }

    /// The newest generation of this process.
    pub(super) fn newest(&self) -> &Generation {
        let mut newest = self.tx();
        while let Some(next) = newest.next() {
            newest = next;
        }
        newest
    }

    /// All generations of this process, the oldest first.
    pub(super) fn all(&self) -> impl Iterator<Item = &Generation> {
        self.list.all()
    }

    /// The generation with this number; looks first at the one that receiving uses.
    pub(super) fn find(&self, number: u32) -> Option<&Generation> {
        let rx = self.rx();
        let from = if rx.number() <= number { Some(rx) } else { self.all().next() };
        core::iter::successors(from, |generation| generation.next())
            .find(|generation| generation.number() == number)
    }

    /// From now on receiving uses `to`, unless it uses a newer one already.
    pub(super) fn receive_by(&self, to: &Generation) {
        self.list.advance(RX, |member| member.number() == to.number());
    }

    /// From now on sending uses `to`, unless it uses a newer one already.
    pub(super) fn send_by(&self, to: &Generation) {
        self.list.advance(TX, |member| member.number() == to.number());
    }

    /// Both directions use the newest generation, nothing is left in older ones, and the status word was `word`.
    pub(super) fn mark_steady(&self, word: u32) {
        self.current.store(word, Release);
    }

    /// Whether that still holds, if the status word is `word` now.
    #[inline]
    pub(super) fn is_steady(&self, word: u32) -> bool {
        self.current.load(Acquire) == word
    }
}

//! The generations of segments that a process has for an end: a list that only grows at its end, while any thread may be
//! reading it.

use crate::segments::{Next, Segments};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Release};
use crosslane_shm::list::{List, Node};
use crosslane_wire::local::{STATUS_ALIVE, status_word};

/// One generation. It stays until the end is dropped.
pub(super) type Generation = Node<Member>;

/// What a generation is.
#[derive(Debug)]
pub(super) struct Member {
    /// Its memory.
    pub(super) segments: Segments,
    /// Units of the receiving direction that came before it.
    pub(super) limit: u64,
    /// Units of the sending direction that the far end had when it began; `None` if sending does not go on here.
    pub(super) arrived: Option<u64>,
}

/// All that this process has, and which of them receiving and sending go by.
#[derive(Debug)]
pub(super) struct Generations {
    list: List<Member, 2>,
    current: AtomicU32,
}

/// The mark of the one that is received by.
const RX: usize = 0;
/// The mark of the one that is sent by.
const TX: usize = 1;
/// No word of the status page is this.
const UNKNOWN: u32 = u32::MAX;

impl Member {
    /// The one after another, as the daemon gave it.
    pub(super) fn of(next: Next) -> Self {
        let Next { segments, newest, limit, arrived } = next;
        Self { segments, limit, arrived: newest.then_some(arrived) }
    }

    /// Its number.
    #[inline]
    pub(super) fn number(&self) -> u32 {
        self.segments.generation
    }

    /// The circuit's word while this is the newest generation and lives.
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

    /// The one that is received by, as far as this process knows.
    #[inline]
    pub(super) fn rx(&self) -> &Generation {
        self.list.at(RX)
    }

    /// The one that is sent by, as far as this process knows.
    #[inline]
    pub(super) fn tx(&self) -> &Generation {
        self.list.at(TX)
    }

    /// The last one of this process.
    pub(super) fn newest(&self) -> &Generation {
        let mut newest = self.tx();
        while let Some(next) = newest.next() {
            newest = next;
        }
        newest
    }

    /// All of this process, the oldest first.
    pub(super) fn all(&self) -> impl Iterator<Item = &Generation> {
        self.list.all()
    }

    /// The one with this number; looks first where receiving is.
    pub(super) fn find(&self, number: u32) -> Option<&Generation> {
        let rx = self.rx();
        let from = if rx.number() <= number { Some(rx) } else { self.all().next() };
        core::iter::successors(from, |generation| generation.next())
            .find(|generation| generation.number() == number)
    }

    /// Receiving goes by `to` from here on, unless it is further already.
    pub(super) fn receive_by(&self, to: &Generation) {
        self.list.advance(RX, |member| member.number() == to.number());
    }

    /// Sending goes by `to` from here on, unless it is further already.
    pub(super) fn send_by(&self, to: &Generation) {
        self.list.advance(TX, |member| member.number() == to.number());
    }

    /// Both directions go by the newest generation, nothing is left of others, and the circuit's word was `word`.
    pub(super) fn mark_steady(&self, word: u32) {
        self.current.store(word, Release);
    }

    /// Whether that still holds, if the circuit's word is `word` now.
    #[inline]
    pub(super) fn is_steady(&self, word: u32) -> bool {
        self.current.load(Acquire) == word
    }
}

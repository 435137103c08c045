//! Scratchpads and doorbells as words in two pages; each side reads one of them.
//!
//! ```text
//!   page of R, stored into by W only, loaded by R only
//!   0x000  scratchpads of R          16 x u32
//!   0x040  doorbells that W masks    u32
//!   0x044  last wake-up that W saw   u32
//!   0x048  bytes of W's stores that have landed   u64; only on cables with a rate
//!   0x080  times W rang each of R's  32 x u32
//! ```
//! A doorbell is pending while its count differs from the one that R last reported, so no word has two writers. W wakes R
//! by a frame, unless R has masked the doorbell or has not seen an earlier wake-up yet. Each side stores, fences and then
//! loads the word that the other side stores, so one of them sees the other's store.

use super::descriptor::check_segment;
use crate::port::{DOORBELLS, SCRATCHPADS};
use crosslane_shm::mem::new_segment;
use crosslane_shm::{Inbound, Load, MapError, Outbound, Store};
use std::cell::Cell;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

const LEN: u64 = 4096;
const MASK: usize = 0x40;
const SEEN: usize = 0x44;
const LANDED: usize = 0x48;
const COUNTS: usize = 0x80;

/// The register page that this side reads.
#[derive(Debug)]
pub(super) struct OwnPage {
    page: Arc<Inbound>,
    reported: [u32; DOORBELLS as usize],
}

impl OwnPage {
    /// A fresh page, and its descriptor for the peer.
    pub(super) fn new() -> Result<(Self, OwnedFd), MapError> {
        let fd = new_segment("crosslane-registers", LEN)?;
        let page = Arc::new(Inbound::sealed(&fd, LEN)?);
        Ok((Self { page, reported: [0; DOORBELLS as usize] }, fd))
    }

    /// One of this side's scratchpads.
    pub(super) fn scratchpad(&self, index: usize) -> u32 {
        assert!(index < SCRATCHPADS, "no scratchpad {index}");
        self.page.load_u32(index * 4)
    }

    /// The doorbells that the peer has masked.
    pub(super) fn peer_mask(&self) -> u32 {
        self.page.load_u32(MASK)
    }

    /// The last wake-up that the peer saw.
    pub(super) fn peer_saw(&self) -> u32 {
        self.page.load_u32(SEEN)
    }

    /// Pending doorbells.
    pub(super) fn pending(&self) -> u32 {
        self.reported.iter().enumerate().fold(0, |bits, (bell, reported)| {
            bits | u32::from(self.page.load_u32(COUNTS + 4 * bell) != *reported) << bell
        })
    }

    /// Takes the pending doorbells that are not masked.
    pub(super) fn take(&mut self, mask: u32) -> u32 {
        let mut taken = 0;
        for (bell, reported) in self.reported.iter_mut().enumerate().filter(|(bell, _)| mask >> bell & 1 == 0)
        {
            let count = self.page.load_u32(COUNTS + 4 * bell);
            if count != *reported {
                *reported = count;
                taken |= 1 << bell;
            }
        }
        taken
    }
}

/// The peer's register page, for stores.
#[derive(Debug)]
pub(super) struct PeerPage {
    page: Arc<Outbound>,
    rung: [Cell<u32>; DOORBELLS as usize],
    wakes: Cell<u32>,
}

impl PeerPage {
    /// Maps a page that the peer sent, after checking it.
    pub(super) fn map(fd: &impl AsFd) -> Result<Self, String> {
        check_segment(fd, LEN)?;
        let page = Arc::new(Outbound::sealed(fd, LEN).map_err(|error| error.to_string())?);
        Ok(Self { page, rung: [const { Cell::new(0) }; DOORBELLS as usize], wakes: Cell::new(0) })
    }

    /// Stores into a scratchpad of the peer.
    pub(super) fn set_scratchpad(&self, index: usize, value: u32) {
        assert!(index < SCRATCHPADS, "no scratchpad {index}");
        self.page.store_u32(index * 4, value);
    }

    /// Stores this side's mask of doorbells into the peer's page; earlier rings are visible after this (full fence).
    pub(super) fn set_mask(&self, mask: u32) {
        self.page.store_u32(MASK, mask);
        self.page.fence();
    }

    /// Stores the number of the last wake-up that this side saw; earlier rings are visible after this (full fence).
    pub(super) fn saw(&self, number: u32) {
        self.page.store_u32(SEEN, number);
        self.page.fence();
    }

    /// Increments the counts of these doorbells; the peer's earlier stores are visible after this (full fence).
    pub(super) fn ring(&self, bits: u32) {
        self.page.store_fence();
        for (bell, count) in self.rung.iter().enumerate().filter(|(bell, _)| bits >> bell & 1 != 0) {
            count.set(count.get().wrapping_add(1));
            self.page.store_u32(COUNTS + 4 * bell, count.get());
        }
        self.page.fence();
    }

    /// The number of the last wake-up that this side sent.
    pub(super) fn wakes(&self) -> u32 {
        self.wakes.get()
    }

    /// Notes that a wake-up was sent.
    pub(super) fn woke(&self, number: u32) {
        self.wakes.set(number);
    }
}

/// How many bytes of stores have landed in either direction since the link came up, as the two sides say.
#[derive(Clone, Debug)]
pub(crate) struct Carried {
    own: Arc<Inbound>,
    peer: Arc<Outbound>,
}

impl Carried {
    pub(super) fn new(own: &OwnPage, peer: &PeerPage) -> Self {
        Self { own: own.page.clone(), peer: peer.page.clone() }
    }

    /// Of the peer's stores. Any number: the peer may write what it likes.
    pub(crate) fn by_peer(&self) -> u64 {
        self.own.load_u64(LANDED)
    }

    /// Tells the peer how many of this side's stores have.
    pub(crate) fn tell(&self, bytes: u64) {
        self.peer.store_u64(LANDED, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages() -> (OwnPage, PeerPage) {
        let (own, fd) = OwnPage::new().unwrap();
        (own, PeerPage::map(&fd).unwrap())
    }

    #[test]
    fn doorbell_is_taken_once_and_waits_while_masked() {
        let (mut own, peer) = pages();
        peer.ring(0b1010);
        peer.ring(0b0010);
        assert_eq!(own.take(0b1000), 0b0010);
        assert_eq!(own.take(0b1000), 0);
        assert_eq!(own.pending(), 0b1000);
        assert_eq!(own.take(0), 0b1000);
    }

    #[test]
    fn scratchpads_lie_beside_the_doorbells() {
        let (mut own, peer) = pages();
        (0..SCRATCHPADS).for_each(|index| peer.set_scratchpad(index, 100 + u32::try_from(index).unwrap()));
        assert_eq!((own.scratchpad(0), own.scratchpad(15)), (100, 115));
        assert_eq!((own.take(0), own.peer_mask()), (0, 0));
    }
}

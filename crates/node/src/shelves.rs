//! Descriptors that the daemon keeps for streams and rarely needs: two segments for each end, its state, and perhaps a retention
//! ring. They are needed when an end gets another holder, moves to another circuit, ends, or is shown. A process has so many numbers
//! for descriptors, and the daemon must have some left for sessions and wakers, so of these only so many (`here_of`) lie in the daemon's own
//! table. What is above that goes to a `Shelf`, the oldest first: a thread with a table of its own ([decision 41]).
//!
//! ```text
//!   keep --> here --(more than a quarter of the table, 128 at a time)--> shelf
//!             |                                                            |
//!   lend      +-- the descriptor itself                                    +-- the same memory, opened anew
//!   drop      +-- closed                                                   +-- closed there, a moment later
//! ```
//! [decision 41]: ../../../docs/decisions/0041-shelves.md

mod place;
mod table;

use crate::quota::{Kind, Ledger, SHELF_OWN, SHELVES, here_of};
use crosslane_shm::Segment;
use crosslane_wire::{MemoryKind, SegmentInfo};
use place::{Shelf, State};
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

/// How many go to a shelf at a time: a packet has room for 253.
const BATCH: usize = 128;

/// All that is kept for streams.
#[derive(Clone, Debug)]
pub struct Shelves(Rc<RefCell<Store>>);

/// A descriptor that is kept, here or on a shelf; closed when it is dropped.
#[derive(Debug)]
pub struct Kept {
    id: u64,
    shelves: Shelves,
}

/// A descriptor for the moment.
#[derive(Debug)]
pub enum Loan {
    /// The one that is kept.
    Here(Rc<OwnedFd>),
    /// Another one, of the same memory.
    Anew(OwnedFd),
}

/// A segment whose descriptor is kept.
#[derive(Debug)]
pub struct KeptSegment {
    memory: Kept,
    /// What its port says of the memory.
    pub info: SegmentInfo,
}

#[derive(Debug)]
struct Store {
    /// How many may lie here.
    most: usize,
    /// How many a shelf has room for.
    room: usize,
    /// The name of what was kept last; older ones have lesser names.
    last: u64,
    here: BTreeMap<u64, Rc<OwnedFd>>,
    /// Descriptors that cannot be opened anew: devices.
    fixed: HashMap<u64, Rc<OwnedFd>>,
    /// On which shelf the others lie.
    away: HashMap<u64, usize>,
    shelves: Vec<Shelf>,
    /// There are no shelves on this machine.
    without: bool,
    ledger: Ledger,
}

impl Shelves {
    /// For a daemon that may have so many descriptors.
    pub fn new(descriptors: u64, ledger: Ledger) -> Self {
        let size = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        Self(Rc::new(RefCell::new(Store {
            most: size(here_of(descriptors)),
            room: size(descriptors.saturating_sub(SHELF_OWN)),
            last: 0,
            here: BTreeMap::new(),
            fixed: HashMap::new(),
            away: HashMap::new(),
            shelves: Vec::new(),
            without: false,
            ledger,
        })))
    }

    /// Keeps the descriptor of a memory file.
    pub fn keep(&self, memory: OwnedFd) -> Kept {
        let mut store = self.0.borrow_mut();
        let id = store.name();
        store.here.insert(id, Rc::new(memory));
        store.put_away();
        Kept { id, shelves: self.clone() }
    }

    /// Keeps a segment.
    pub fn keep_segment(&self, segment: Segment) -> KeptSegment {
        let info = segment.info;
        let memory = match info.memory {
            MemoryKind::Sealed | MemoryKind::Queue => self.keep(segment.fd),
            MemoryKind::Device => self.fix(segment.fd),
        };
        KeptSegment { memory, info }
    }

    /// Keeps a descriptor that never goes to a shelf.
    fn fix(&self, fd: OwnedFd) -> Kept {
        let mut store = self.0.borrow_mut();
        let id = store.name();
        store.fixed.insert(id, Rc::new(fd));
        Kept { id, shelves: self.clone() }
    }

    /// How many descriptors lie in the daemon's table, and how many on shelves.
    pub fn counts(&self) -> (usize, usize) {
        let store = self.0.borrow();
        (store.here.len() + store.fixed.len(), store.away.len())
    }
}

impl Kept {
    /// The descriptor, or another one of the same memory.
    ///
    /// # Errors
    /// There is no number for another one, or who gave it does not let us open it again.
    pub fn lend(&self) -> Result<Loan, Errno> {
        let store = self.shelves.0.borrow();
        if let Some(here) = store.here.get(&self.id).or_else(|| store.fixed.get(&self.id)) {
            return Ok(Loan::Here(here.clone()));
        }
        let shelf = store.away.get(&self.id).and_then(|index| store.shelves.get(*index));
        shelf.ok_or(Errno::BADF)?.open(self.id).map(Loan::Anew)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut store = self.shelves.0.borrow_mut();
        if store.here.remove(&self.id).is_some() || store.fixed.remove(&self.id).is_some() {
            return;
        }
        if let Some(index) = store.away.remove(&self.id)
            && let Some(shelf) = store.shelves.get_mut(index)
        {
            shelf.drop(self.id);
        }
    }
}

impl Loan {
    /// A descriptor that outlives the loan.
    ///
    /// # Errors
    /// There is no number for it.
    fn into_owned(self) -> Result<OwnedFd, Errno> {
        match self {
            Self::Here(fd) => rustix::io::fcntl_dupfd_cloexec(&*fd, 0),
            Self::Anew(fd) => Ok(fd),
        }
    }
}

impl AsFd for Loan {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Here(fd) => fd.as_fd(),
            Self::Anew(fd) => fd.as_fd(),
        }
    }
}

impl KeptSegment {
    /// The segment, to be mapped.
    ///
    /// # Errors
    /// Those of [`Kept::lend`].
    pub fn open(&self) -> Result<Segment, Errno> {
        Ok(Segment { fd: self.lend()?.into_owned()?, info: self.info })
    }

    /// Its descriptor, to be handed on.
    ///
    /// # Errors
    /// Those of [`Kept::lend`].
    pub fn lend(&self) -> Result<Loan, Errno> {
        self.memory.lend()
    }
}

impl Store {
    fn name(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Takes the oldest to a shelf, if too many lie here. What cannot go now goes with one of the next.
    fn put_away(&mut self) {
        if self.here.len() <= self.most || self.without {
            return;
        }
        let batch: Vec<(u64, Rc<OwnedFd>)> =
            self.here.iter().take(BATCH).map(|(id, fd)| (*id, fd.clone())).collect();
        let room = self.room;
        let takes = |shelf: &mut Shelf| {
            shelf.state() == State::Ready && shelf.len() + BATCH <= room && shelf.put(&batch)
        };
        match self.shelves.iter_mut().position(takes) {
            Some(index) => {
                for (id, _) in batch {
                    self.here.remove(&id);
                    self.away.insert(id, index);
                }
            }
            // A thread that is only late is not helped by another one.
            None if self.here.len() <= 2 * self.most && self.has_room() => {}
            None => self.add_shelf(),
        }
    }

    fn has_room(&self) -> bool {
        self.shelves.iter().any(|shelf| shelf.state() == State::Ready && shelf.len() + BATCH <= self.room)
    }

    /// One more shelf, unless one begins just now.
    fn add_shelf(&mut self) {
        let begins = |shelf: &Shelf| shelf.state() != State::Failed && shelf.len() == 0;
        if self.shelves.iter().any(|shelf| shelf.state() == State::Failed) {
            return self.do_without();
        }
        if self.shelves.len() >= SHELVES || self.shelves.last().is_some_and(begins) {
            return;
        }
        match Shelf::start() {
            Ok(shelf) => self.shelves.push(shelf),
            Err(error) => {
                tracing::debug!(%error, "no thread for a shelf");
                self.do_without();
            }
        }
    }

    /// Streams have no more than lies here from now on; who has more keeps it.
    fn do_without(&mut self) {
        let hint =
            "Linux 5.9 and later can, if system calls are not filtered; or raise the limit of open files";
        tracing::warn!(
            hint,
            "no table of descriptors besides the daemon's own can be made: it has fewer streams"
        );
        self.without = true;
        self.ledger.bound(Kind::Stored, u64::try_from(self.most).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::Settings;
    use crosslane_shm::mem::new_segment;
    use rustix::fs::fstat;
    use std::time::{Duration, Instant};

    fn shelves(descriptors: u64) -> Shelves {
        Shelves::new(descriptors, Ledger::new(Settings::default(), descriptors, []))
    }

    fn memory() -> OwnedFd {
        new_segment("kept", 4096).unwrap()
    }

    fn inode(fd: impl AsFd) -> u64 {
        fstat(fd).unwrap().st_ino
    }

    /// Keeps more until there are so many on shelves.
    fn fill(shelves: &Shelves, away: usize) -> Vec<(Kept, u64)> {
        let until = Instant::now() + Duration::from_secs(20);
        let mut all = Vec::new();
        while shelves.counts().1 < away {
            assert!(Instant::now() < until, "{:?}", shelves.counts());
            let memory = memory();
            let inode = inode(&memory);
            all.push((shelves.keep(memory), inode));
            std::thread::yield_now();
        }
        all
    }

    #[test]
    fn shelf_takes_the_oldest_and_lends_the_same_memory() {
        let shelves = shelves(400);
        let first: Vec<_> = (0..100).map(|_| shelves.keep(memory())).collect();
        assert_eq!(shelves.counts(), (100, 0), "a quarter stays here");
        let all = fill(&shelves, 3 * BATCH);
        assert!(first.iter().all(|kept| matches!(kept.lend(), Ok(Loan::Anew(_)))));
        for (kept, expected) in &all {
            assert_eq!(inode(kept.lend().unwrap()), *expected);
        }
        let seals = rustix::fs::fcntl_get_seals(all[0].0.lend().unwrap()).unwrap();
        assert!(seals.contains(rustix::fs::SealFlags::SHRINK));
        drop((first, all));
        assert_eq!(shelves.counts(), (0, 0));
    }

    #[test]
    fn shelf_closes_what_is_dropped() {
        use std::io::{Read, pipe};
        let shelves = shelves(400);
        let _others = fill(&shelves, BATCH);
        // Of a pipe the other end tells when the last descriptor is closed.
        let (mut read, write) = pipe().unwrap();
        let kept = shelves.keep(write.into());
        let _more = fill(&shelves, shelves.counts().1 + 4 * BATCH);
        assert!(kept.lend().is_err(), "no memory: it is not opened anew");
        drop(kept);
        assert_eq!(read.read(&mut [0; 1]).unwrap(), 0);
    }

    #[test]
    fn shelves_are_no_more_when_their_daemon_is_not() {
        use std::io::{Read, pipe};
        let shelves = shelves(400);
        let (mut read, write) = pipe().unwrap();
        let kept = shelves.keep(write.into());
        let all = fill(&shelves, 4 * BATCH);
        drop((kept, all, shelves));
        assert_eq!(read.read(&mut [0; 1]).unwrap(), 0);
    }

    #[test]
    fn shelf_opens_for_reading_what_was_given_for_reading() {
        use std::os::fd::AsRawFd;
        let shelves = shelves(400);
        let whole = memory();
        let path = format!("/proc/self/fd/{}", whole.as_raw_fd());
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
        let kept = shelves.keep(rustix::fs::open(path, flags, rustix::fs::Mode::empty()).unwrap());
        let _all = fill(&shelves, 4 * BATCH);
        let lent = kept.lend().unwrap();
        assert!(matches!(lent, Loan::Anew(_)));
        assert_eq!(rustix::io::write(&lent, &[1]), Err(Errno::BADF));
        assert_eq!(inode(&lent), inode(&whole));
    }

    #[test]
    fn devices_stay_here() {
        let shelves = shelves(400);
        let device =
            rustix::fs::open("/dev/zero", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty()).unwrap();
        let info = SegmentInfo { memory: MemoryKind::Device, ..SegmentInfo::sealed(4096) };
        let kept = shelves.keep_segment(Segment { fd: device, info });
        let _all = fill(&shelves, 4 * BATCH);
        assert!(matches!(kept.lend(), Ok(Loan::Here(_))));
    }
}

//! Waking the far side's sleepers, and the wakers that are kept for it.

use crate::CircuitEnd;
use core::sync::atomic::Ordering::Relaxed;
use crosslane_shm::wake::{FarWaker, Waker};
use crosslane_wire::WaiterId;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// The owner of a wake event: the far host, by its address, or, where the circuit is longer than one cable, a host between, which
/// only the circuit and its generation tell, as they do what a queue of stores leads to; the waiter's number there; and the session in which the waker was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    host: IpAddr,
    between: Option<(u64, u32)>,
    waiter: u32,
    session: u32,
}

/// Wakers of far waiters; if there are too many, the one that was not rung for the longest time is forgotten.
#[derive(Debug)]
pub struct Wakers<W> {
    /// With the number of the last ring.
    known: BTreeMap<Owner, (Known<W>, u64)>,
    rings: u64,
    most: usize,
}

/// A waker that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known<W> {
    /// As the program keeps it.
    Own(W),
    /// The number by which a queue of stores wakes.
    Queued(u64),
}

/// Where a program keeps wakers, and what it rings them by.
pub trait Waking {
    /// A waker as this program keeps it.
    type Waker: Clone;

    /// Calls `work` with the wakers that are kept; `None` if they cannot be reached now.
    fn with<T>(&self, work: impl FnOnce(&mut Wakers<Self::Waker>) -> T) -> Option<T>;

    /// Prepares a waker that is new, to be kept.
    fn keep(&self, waker: Waker) -> Self::Waker;

    /// Wakes the sleeper for the stream of this name; `false` if it is gone. Never blocks.
    fn ring(&self, waker: &Self::Waker, name: u32) -> bool;

    /// A waker was forgotten; another thread may be about to ring it.
    fn retire(&self, waker: Self::Waker) {
        drop(waker);
    }

    /// Number of the present session with the daemon: wakers of earlier ones are not rung.
    fn session(&self) -> u32 {
        0
    }

    /// Wakes a sleeper of this very process for the stream of this name; `false` if it is none.
    fn wake_own(&self, waiter: WaiterId, name: u32) -> bool {
        let _ = (waiter, name);
        false
    }
}

/// Wakes the far side's `waiter`: by a waker that is known, else by one that the daemon gives, else through the daemon.
#[cold]
pub fn wake(waking: &impl Waking, end: &CircuitEnd, waiter: WaiterId) {
    end.shared().counters.wakes.fetch_add(1, Relaxed);
    // Both ends inside one host count the same waiters, so it may be one of ours: then nobody needs to be asked.
    if end.peer().ip() == end.local().ip() && waking.wake_own(waiter, end.name()) {
        return;
    }
    let owner = Owner {
        host: end.peer().ip().to_canonical(),
        between: end.queued().or_else(|| end.relayed()).map(|generation| (end.circuit().0, generation)),
        waiter: waiter.0,
        session: waking.session(),
    };
    let find = || {
        let queued = end.queued();
        let waker = match end.find_waker(waiter)? {
            FarWaker::Own(waker) => Known::Own(waking.keep(waker)),
            // A stream that has moved meanwhile has another queue, or none.
            FarWaker::Queued(_) if queued.is_none() || end.queued() != queued => return None,
            FarWaker::Queued(number) => Known::Queued(number),
        };
        let before = waking.with(|wakers| wakers.keep(owner, waker.clone()));
        before.into_iter().flatten().flatten().for_each(|waker| waking.retire(waker));
        Some(waker)
    };
    let known = waking.with(|wakers| wakers.known(&owner)).flatten();
    match known.or_else(find) {
        Some(Known::Queued(number)) => return end.wake_queued(number),
        Some(Known::Own(waker)) if waking.ring(&waker, end.name()) => return,
        Some(Known::Own(_)) => {
            // Its sleeper is gone.
            let known = waking.with(|wakers| wakers.forget(&owner)).flatten();
            known.into_iter().for_each(|waker| waking.retire(waker));
        }
        None => {}
    }
    end.wake_by_daemon(Some(waiter));
}

impl<W: Clone> Wakers<W> {
    /// None; at most `most` are kept.
    pub const fn new(most: usize) -> Self {
        Self { known: BTreeMap::new(), rings: 0, most }
    }

    /// Removes all of them.
    pub fn drain(&mut self) -> impl Iterator<Item = W> + use<W> {
        core::mem::take(&mut self.known).into_values().filter_map(|(waker, _)| waker.own())
    }

    /// The one of `owner`, which is rung now.
    fn known(&mut self, owner: &Owner) -> Option<Known<W>> {
        let (waker, rung) = self.known.get_mut(owner)?;
        self.rings += 1;
        *rung = self.rings;
        Some(waker.clone())
    }

    /// Keeps a waker that is rung now, and returns those that are kept no more.
    fn keep(&mut self, owner: Owner, waker: Known<W>) -> [Option<W>; 2] {
        self.rings += 1;
        let oldest = || self.known.iter().min_by_key(|(_, (_, rung))| *rung).map(|(owner, _)| *owner);
        let oldest = if self.known.len() >= self.most { oldest() } else { None };
        let oldest = oldest.and_then(|oldest| self.forget(&oldest));
        [oldest, self.known.insert(owner, (waker, self.rings)).and_then(|(waker, _)| waker.own())]
    }

    fn forget(&mut self, owner: &Owner) -> Option<W> {
        self.known.remove(owner).and_then(|(waker, _)| waker.own())
    }
}

impl<W> Known<W> {
    fn own(self) -> Option<W> {
        match self {
            Self::Own(waker) => Some(waker),
            Self::Queued(_) => None,
        }
    }
}

/// The wakers of one stream, for programs that own their descriptors: a few, those of the far side's reader and writer, or of the
/// next host on the path, which is another one when the stream has moved.
impl Waking for Mutex<Wakers<Arc<Waker>>> {
    type Waker = Arc<Waker>;

    fn with<T>(&self, work: impl FnOnce(&mut Wakers<Arc<Waker>>) -> T) -> Option<T> {
        Some(work(&mut self.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    fn keep(&self, waker: Waker) -> Arc<Waker> {
        Arc::new(waker)
    }

    fn ring(&self, waker: &Arc<Waker>, name: u32) -> bool {
        waker.wake_for(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn waker_that_was_not_rung_for_longest_is_forgotten_first() {
        let owner = |waiter| Owner { host: Ipv4Addr::LOCALHOST.into(), between: None, waiter, session: 1 };
        let mut wakers = Wakers::new(2);
        assert_eq!(wakers.keep(owner(1), Known::Own("one")), [None, None]);
        assert_eq!(wakers.keep(owner(2), Known::Own("two")), [None, None]);
        assert_eq!(wakers.known(&owner(1)), Some(Known::Own("one")));
        assert_eq!(wakers.keep(owner(3), Known::Own("three")), [Some("two"), None]);
        assert_eq!((wakers.known(&owner(2)), wakers.forget(&owner(1))), (None, Some("one")));
        assert_eq!(wakers.keep(owner(3), Known::Own("another")), [None, Some("three")]);
        assert_eq!(wakers.known(&Owner { session: 2, ..owner(3) }), None);
        assert_eq!(wakers.keep(owner(4), Known::Queued(7)), [None, None]);
        assert_eq!(wakers.known(&owner(4)), Some(Known::Queued(7)));
        assert_eq!(wakers.drain().collect::<Vec<_>>(), ["another"]);
    }
}

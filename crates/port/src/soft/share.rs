//! The limit on the descriptors that a cable may keep for its peer.

use crosslane_passing::Foreign;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A cable's share of this process's descriptor limit: a quarter.
#[derive(Debug)]
pub(super) struct Share {
    used: Arc<AtomicUsize>,
    most: usize,
}

/// A descriptor that is kept for the peer. Frees its place in the share when it is dropped or given out.
#[derive(Debug)]
pub(super) struct Kept {
    fd: Foreign,
    _place: Place,
}

#[derive(Debug)]
struct Place(Arc<AtomicUsize>);

impl Share {
    pub(super) fn new() -> Self {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let most = limit.map_or(usize::MAX, |limit| usize::try_from(limit / 4).unwrap_or(usize::MAX));
        Self { used: Arc::default(), most }
    }

    /// Number of descriptors that are kept.
    pub(super) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// Keeps a descriptor; `None`, and it is closed, if the share is used up.
    pub(super) fn keep(&self, fd: Foreign) -> Option<Kept> {
        if self.used.load(Relaxed) >= self.most {
            return None;
        }
        self.used.fetch_add(1, Relaxed);
        Some(Kept { fd, _place: Place(self.used.clone()) })
    }
}

impl Kept {
    pub(super) fn fd(&self) -> &Foreign {
        &self.fd
    }

    /// Gives the descriptor to a caller that accounts for it separately.
    pub(super) fn give_out(self) -> Foreign {
        self.fd
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_share_has_room_after_drop_or_give_out() {
        let share = Share { used: Arc::default(), most: 2 };
        let fd = || Foreign::new(rustix::pipe::pipe().unwrap().0, crosslane_passing::Owner::NOBODY);
        for _ in 0..5 {
            let (one, two) = (share.keep(fd()).unwrap(), share.keep(fd()).unwrap());
            assert!(share.keep(fd()).is_none());
            drop(one);
            let three = share.keep(fd()).unwrap();
            drop((two.give_out(), three));
        }
        assert_eq!(share.used.load(Relaxed), 0);
    }
}

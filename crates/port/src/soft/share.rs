//! The limit on the descriptors that a cable may keep for its peer.

use crosslane_passing::Foreign;
use std::sync::Arc;

/// A cable's share of this process's descriptor limit: a quarter.
#[derive(Debug)]
pub(super) struct Share {
    /// Whoever has a place in it has a copy.
    place: Arc<()>,
    most: usize,
}

/// A descriptor that is kept for the peer. Frees its place in the share when it is dropped or given out.
#[derive(Debug)]
pub(super) struct Kept {
    fd: Foreign,
    _place: Arc<()>,
}

impl Share {
    pub(super) fn new() -> Self {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let most = limit.map_or(usize::MAX, |limit| usize::try_from(limit / 4).unwrap_or(usize::MAX));
        Self { place: Arc::default(), most }
    }

    /// Number of descriptors that are kept.
    pub(super) fn used(&self) -> usize {
        Arc::strong_count(&self.place) - 1
    }

    /// Keeps a descriptor; `None`, and it is closed, if the share is used up.
    pub(super) fn keep(&self, fd: Foreign) -> Option<Kept> {
        (self.used() < self.most).then(|| Kept { fd, _place: self.place.clone() })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_share_has_room_after_drop_or_give_out() {
        let share = Share { place: Arc::default(), most: 2 };
        let fd = || Foreign::new(rustix::pipe::pipe().unwrap().0, crosslane_passing::Owner::NOBODY);
        for _ in 0..5 {
            let (one, two) = (share.keep(fd()).unwrap(), share.keep(fd()).unwrap());
            assert!(share.keep(fd()).is_none());
            drop(one);
            let three = share.keep(fd()).unwrap();
            drop((two.give_out(), three));
        }
        assert_eq!(share.used(), 0);
    }
}

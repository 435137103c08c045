//! What a caller waits for at an end, and whether it has come.

use crate::End;
use crate::end::zcopy::announce::Announcement;
use core::sync::atomic::Ordering::Relaxed;
use crosslane_shm::wait::Budget;
use crosslane_stream::Direction;
use crosslane_wire::WaiterId;

/// What a caller waits for at an end; the end of the direction and an error end the wait as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// Data, or end of file.
    Data,
    /// Room in the ring, or that it may grow.
    Room,
    /// Credit for a quarter of the ring.
    Credit,
    /// [`Self::Data`] or [`Self::Room`].
    Either,
    /// An announcement is fetched in full, or must be withdrawn.
    Answer(Announcement),
    /// The same for one of several announcements: the sink is asked to wake for this one.
    Posted(Announcement),
}

/// From this many announced bytes on, fetching takes longer than waking up.
const LONG: u32 = 256 * 1024;

impl WaitFor {
    /// Data, room or both; `None` for neither.
    pub fn of(data: bool, room: bool) -> Option<Self> {
        match (data, room) {
            (true, true) => Some(Self::Either),
            (true, false) => Some(Self::Data),
            (false, true) => Some(Self::Room),
            (false, false) => None,
        }
    }

    /// Whether the wait takes so long that the thread should not spin.
    pub(super) fn is_long(self) -> bool {
        match self {
            Self::Posted(_) => true,
            Self::Answer(open) => open.len() > LONG,
            _ => false,
        }
    }
}

impl End {
    /// Whether a thread that waits for `what` must look: the condition of its spin.
    #[inline]
    pub fn has_news(&self, tid: u32, what: WaitFor) -> bool {
        match what {
            WaitFor::Data => self.maybe_readable(),
            WaitFor::Room => self.has_room(tid) || self.is_nobodys(),
            WaitFor::Credit => (self.has_credit() && self.has_room(tid)) || self.is_nobodys(),
            WaitFor::Either => self.maybe_readable() || self.has_room(tid) || self.is_nobodys(),
            WaitFor::Answer(open) | WaitFor::Posted(open) => self.is_answered(&open) || self.is_nobodys(),
        }
    }

    /// Whether nothing more is to be waited for, since the direction is over.
    pub fn is_over(&self, what: WaitFor) -> bool {
        self.shared().status.reset.load(Relaxed) != 0
            || match what {
                WaitFor::Data => self.is_read_over(),
                WaitFor::Either => self.is_read_over() || self.is_write_over(),
                _ => self.is_write_over(),
            }
    }

    /// Whether a thread that waits for `what` must look: it has come, or never will.
    #[inline]
    pub fn is_ready(&self, tid: u32, what: WaitFor) -> bool {
        self.has_news(tid, what) || self.is_over(what)
    }

    /// Asks the far side to wake `waiter` for `what`; `false` if another waiter is registered already: then sleep for a
    /// short time only. Look once more before the sleep, and see `crosslane_shm::arm`.
    pub fn want(&self, what: WaitFor, waiter: WaiterId) -> bool {
        match what {
            WaitFor::Data => self.want_data(waiter),
            WaitFor::Either => self.want_data(waiter) & self.want_room(waiter),
            WaitFor::Room | WaitFor::Credit | WaitFor::Answer(_) => self.want_room(waiter),
            WaitFor::Posted(open) => {
                self.want_fetched(&open);
                self.want_room(waiter)
            }
        }
    }

    /// Withdraws the request of `waiter`, which is awake again.
    pub fn unwant(&self, what: WaitFor, waiter: WaiterId) {
        match what {
            WaitFor::Data | WaitFor::Either => self.unwant_data(waiter),
            _ => self.unwant_room(waiter),
        }
    }

    /// The spin time for `what`, from how long waits took lately.
    #[inline]
    pub fn budget(&self, what: WaitFor) -> &Budget {
        match what {
            WaitFor::Data | WaitFor::Either => &self.shared().receiving.budget,
            _ => &self.shared().sending.budget,
        }
    }

    /// Whether no far program is left that could make room.
    fn is_nobodys(&self) -> bool {
        self.dead().is_some() || self.gone()
    }

    fn is_read_over(&self) -> bool {
        (self.has_fin() && !self.is_moving())
            || self.shared().status.read_shut.load(Relaxed) != 0
            || !matches!(self.rx(), Direction::Open | Direction::Handshake)
    }

    fn is_write_over(&self) -> bool {
        self.tx() != Direction::Open || self.is_nobodys()
    }
}

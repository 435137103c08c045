//! Notifications that other programs have sent to this one.

use super::Error;
use core::sync::atomic::{AtomicU32, Ordering};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The region that it names: [`super::Region::id`].
    pub region: u32,
    /// The number that was sent.
    pub value: u64,
    /// Address of the sender.
    pub from: SocketAddr,
}

/// The notifications that wait for this program. A notification arrives after all operations that the same peer posted
/// before it are executed. Each peer may have [`Notices::MOST`] of them waiting, all peers together
/// [`Notices::MOST_IN_ALL`]; commands posted after that are delayed.
#[derive(Debug)]
pub struct Notices {
    state: Mutex<State>,
    /// Number of waiting notifications.
    waiting: AtomicU32,
    arrived: Condvar,
    event: OwnedFd,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<(Notice, Arc<AtomicU32>)>,
    /// The agent has ended.
    over: bool,
    /// A peer has as many notifications waiting as allowed: the agent that must be woken when the program takes one.
    held: Option<super::Handle>,
}

impl Notices {
    /// Most waiting notifications of one peer.
    pub const MOST: u32 = 1024;
    /// Most waiting notifications of all peers, also of those that have closed.
    pub const MOST_IN_ALL: u32 = 64 * Self::MOST;

    pub(super) fn new() -> Result<Self, Error> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        let event = event.map_err(crate::error::Error::System)?;
        Ok(Self { state: Mutex::default(), waiting: AtomicU32::new(0), arrived: Condvar::new(), event })
    }

    /// The next notification, if one is waiting.
    pub fn next(&self) -> Option<Notice> {
        self.take(&mut self.state())
    }

    /// Waits for the next notification, for `patience` at most (`None`: for ever). `Ok(None)`: none came in time.
    ///
    /// # Errors
    /// [`Error::NoAgent`]: no more can come.
    pub fn wait(&self, patience: Option<Duration>) -> Result<Option<Notice>, Error> {
        let end = patience.and_then(|patience| Instant::now().checked_add(patience));
        let mut state = self.state();
        loop {
            if let Some(notice) = self.take(&mut state) {
                return Ok(Some(notice));
            }
            if state.over {
                return Err(Error::NoAgent);
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            state = match left {
                Some(Duration::ZERO) => return Ok(None),
                Some(left) => {
                    self.arrived.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Called by the agent to add a notification; `count` is how many of the same peer wait.
    pub(super) fn push(&self, notice: Notice, count: &Arc<AtomicU32>) {
        count.fetch_add(1, Ordering::Relaxed);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state();
        state.queue.push_back((notice, Arc::clone(count)));
        if state.queue.len() == 1 {
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
        drop(state);
        self.arrived.notify_one();
    }

    /// Whether the agent must delay a peer, of which `count` notifications wait; if so, `agent` is woken when one is taken.
    pub(super) fn holds(&self, count: &AtomicU32, agent: &super::Handle) -> bool {
        if !self.is_full(count) {
            return false;
        }
        let mut state = self.state();
        let full = self.is_full(count);
        if full && state.held.is_none() {
            state.held = Some(agent.clone());
        }
        full
    }

    fn is_full(&self, count: &AtomicU32) -> bool {
        count.load(Ordering::Relaxed) >= Self::MOST
            || self.waiting.load(Ordering::Relaxed) >= Self::MOST_IN_ALL
    }

    /// Called when no more can come.
    pub(super) fn end(&self) {
        self.state().over = true;
        self.arrived.notify_all();
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    fn take(&self, state: &mut State) -> Option<Notice> {
        let (notice, count) = state.queue.pop_front()?;
        let full = count.fetch_sub(1, Ordering::Relaxed) >= Self::MOST;
        let full_in_all = self.waiting.fetch_sub(1, Ordering::Relaxed) >= Self::MOST_IN_ALL;
        if (full || full_in_all)
            && let Some(agent) = state.held.take()
        {
            agent.wake();
        }
        if state.queue.is_empty() && !state.over {
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
        }
        Some(notice)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Notices {
    /// Readable while a notification waits, or when no more can come; to be polled, not read.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::handle::Handle;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn is_readable(notices: &Notices) -> bool {
        let mut fds = [PollFd::new(notices, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    #[test]
    fn notices_that_wait_are_bounded_for_each_peer_and_in_all() {
        let (notices, agent) = (Notices::new().unwrap(), Handle::new().unwrap());
        let notice = Notice { region: 1, value: 7, from: ([10, 86, 0, 2], 3).into() };
        let (last, new) = (Arc::default(), Arc::default());
        for peer in 1..=Notices::MOST_IN_ALL / Notices::MOST {
            assert!(!notices.holds(&new, &agent));
            let count = if peer == 1 { Arc::clone(&last) } else { Arc::default() };
            (0..Notices::MOST).for_each(|_| notices.push(notice, &count));
            assert!(notices.holds(&count, &agent));
        }
        assert!(notices.holds(&new, &agent));
        notices.next();
        assert!(!notices.holds(&new, &agent) && !notices.holds(&last, &agent));
    }

    #[test]
    fn event_is_readable_while_a_notice_waits() {
        let (notices, count) = (Notices::new().unwrap(), Arc::default());
        let notice = |value| Notice { region: 1, value, from: ([10, 86, 0, 2], 3).into() };
        assert!(!is_readable(&notices) && notices.next().is_none());
        notices.push(notice(1), &count);
        notices.push(notice(2), &count);
        assert_eq!(notices.next(), Some(notice(1)));
        assert!(is_readable(&notices));
        assert_eq!(notices.wait(None).unwrap(), Some(notice(2)));
        assert!(!is_readable(&notices));
        assert_eq!(count.load(Ordering::Relaxed), 0);
        assert_eq!(notices.wait(Some(Duration::from_millis(1))).unwrap(), None);
        notices.end();
        assert!(is_readable(&notices));
        assert!(matches!(notices.wait(None), Err(Error::NoAgent)));
    }
}

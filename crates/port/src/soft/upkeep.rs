//! How a soft port finds its peer, keeps the link and loses it.

use super::SoftPort;
use super::link::{Link, Step};
use super::rendezvous::{self, BackOff};
use crate::translation::Translation;
use crate::{DownReason, Event, PortError};
use crosslane_passing::Foreign;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use std::time::{Duration, Instant};

/// How long a carve waits for the peer's announcement.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_millis(5);
/// How long a new connection may take to send its Hello.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(1);
/// A life shorter than this that ended by a fault lengthens the next wait.
const GOOD_LIFE: Duration = Duration::from_secs(1);
/// Most frames that one look at the socket handles, so that a flood does not delay the other ports.
const FRAMES_AT_ONCE: usize = 256;

impl SoftPort {
    /// Makes the event descriptor readable until the next `poll_event`.
    pub(super) fn draw_attention(&self) {
        if !self.attentive.replace(true) {
            // Can fail only if the counter is full, and then the descriptor is readable.
            let _ = rustix::io::write(&self.attention, &1u64.to_ne_bytes());
        }
    }

    pub(super) fn clear_attention(&self) {
        if self.attentive.replace(false) {
            let _ = rustix::io::read(&self.attention, &mut [0; 8]);
        }
    }

    /// Polls the listener only while a peer is wanted, and the connection for room only while frames wait to be sent.
    pub(super) fn watch_listener(&self, wanted: bool) {
        if let Some(listener) = &self.listener {
            let flags = if wanted { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
            let _ = epoll::modify(&self.epoll, listener.socket(), epoll::EventData::new_u64(0), flags);
        }
    }

    pub(super) fn watch_link(&self) {
        if let Some(link) = &self.link {
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, link.waits_for_room());
            let _ = epoll::modify(&self.epoll, link.socket(), epoll::EventData::new_u64(0), flags);
        }
    }

    /// Ends this life of the link.
    pub(super) fn fail(&mut self, reason: DownReason) {
        let Some(link) = self.link.take() else { return };
        self.own.iter_mut().for_each(Translation::clear);
        let orderly = matches!(reason, DownReason::PeerGone);
        if link.up() && (orderly || link.since.elapsed() >= GOOD_LIFE) {
            self.back_off = BackOff::new();
        }
        if self.listener.is_none() || !orderly {
            self.retry_at = Some(Instant::now() + self.back_off.next());
        }
        self.watch_listener(self.retry_at.is_none());
        if link.up() {
            self.events.push_back(Event::LinkDown(reason.clone()));
            self.draw_attention();
        } else if !self.off && self.reason.as_ref() != Some(&reason) {
            tracing::warn!(path = %self.config.path.display(), %reason, "a peer came but no link");
        }
        self.reason = Some(reason);
    }

    /// Looks for a peer, if there is none and the wait is over.
    pub(super) fn find_peer(&mut self) {
        if self.off || self.link.is_some() || self.retry_at.is_some_and(|at| at > Instant::now()) {
            return;
        }
        if self.retry_at.take().is_some() {
            self.watch_listener(true);
        }
        let found = match &self.listener {
            Some(listener) => listener.accept(),
            None => rendezvous::connect_to(&self.config.path).map(Some),
        };
        let outcome = match found {
            Ok(None) => return,
            Ok(Some(socket)) => self.greet(socket),
            Err(reason) => Err(reason),
        };
        if let Err(reason) = outcome {
            self.retry_at = Some(Instant::now() + self.back_off.next());
            self.watch_listener(false);
            self.reason = Some(reason);
        }
    }

    pub(super) fn greet(&mut self, socket: Foreign) -> Result<(), DownReason> {
        let link = Link::new(socket, self.own.iter().map(Translation::len).collect())?;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&self.epoll, link.socket(), data, epoll::EventFlags::IN)
            .map_err(|errno| DownReason::System { what: "epoll_ctl", errno })?;
        self.watch_listener(false);
        self.link = Some(link);
        Ok(())
    }

    /// Receives frames that wait, and sends those for which there is room. Returns whether more may wait to be received.
    pub(super) fn pump(&mut self) -> bool {
        let mut more = true;
        for _ in 0..FRAMES_AT_ONCE {
            let Some(link) = &mut self.link else { return false };
            match link.step(self.mask) {
                Ok(Step::Idle) => {
                    more = false;
                    break;
                }
                Ok(Step::Handled) => {}
                Ok(Step::Up) => {
                    self.reason = None;
                    self.events.push_back(Event::LinkUp);
                    break;
                }
                Err(reason) => {
                    self.fail(reason);
                    return false;
                }
            }
        }
        self.tend();
        more
    }

    /// Sends waiting frames; ends a connection that never became a link.
    pub(super) fn tend(&mut self) {
        let Some(link) = &mut self.link else { return };
        if !link.up() && link.since.elapsed() >= HANDSHAKE_TIMEOUT && self.listener.is_some() {
            return self.fail(DownReason::Stuck);
        }
        if link.waits_for_room() {
            if let Err(reason) = link.flush() {
                return self.fail(reason);
            }
            self.watch_link();
        }
    }

    /// The link, if it is up and its end has not been seen yet.
    pub(super) fn live(&mut self) -> Result<&mut Link, PortError> {
        if !self.reported_up {
            return Err(PortError::Down);
        }
        self.link.as_mut().filter(|link| link.up()).ok_or(PortError::Down)
    }

    /// Ends the link if sending failed.
    pub(super) fn sent<T>(&mut self, outcome: Result<T, DownReason>) -> Result<T, PortError> {
        match outcome {
            Ok(value) => {
                if self.link.as_ref().is_some_and(Link::waits_for_room) {
                    self.watch_link();
                }
                Ok(value)
            }
            Err(reason) => {
                self.fail(reason);
                Err(PortError::Down)
            }
        }
    }

    /// The result of `look` at the link once all that the peer has sent is read, since it may have freed and carved the
    /// range again. Waits a few milliseconds for it.
    pub(super) fn await_announced<T>(&mut self, look: impl Fn(&Link) -> Option<T>) -> Result<T, PortError> {
        let deadline = Instant::now() + ANNOUNCE_TIMEOUT;
        loop {
            let more = self.live().is_ok() && self.pump();
            // A wake-up frame may just have been read from the socket.
            self.draw_attention();
            let link = self.live()?;
            let left = deadline.saturating_duration_since(Instant::now());
            if more && !left.is_zero() {
                continue;
            }
            match look(link).filter(|_| !more) {
                Some(found) => return Ok(found),
                None if left.is_zero() => return Err(PortError::NotThere),
                None => {}
            }
            let timeout = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
            let _ = poll(&mut [PollFd::new(&link.socket(), PollFlags::IN)], Some(&timeout));
        }
    }

    pub(super) fn window(&self, window: usize) -> Result<&Translation<()>, PortError> {
        self.own.get(window).ok_or(PortError::NoWindow(window))
    }
}

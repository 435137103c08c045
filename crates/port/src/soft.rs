//! A port between two processes of one machine: a Unix socket takes the place of the cable.
//!
//! One side listens at a path; the other connects, and tries again whenever the link is down. The socket carries descriptors: each
//! side's register page ([`frame::Frame::Hello`]) and every carved segment, which is a sealed memfd of its own, so that a process which
//! maps it maps only that segment. Data never passes through the socket, and a doorbell does so only when the other side may be asleep.
//!
//! Everything that the peer sends is checked; a violation of the rules ends the link with [`DownReason::Violation`]. Both
//! sides may run as different users, and in different network namespaces.
//!
//! Each segment of the peer, and each waker or buffer that is not taken yet, costs this process a descriptor: for one cable
//! up to a quarter of its limit (`RLIMIT_NOFILE`). What exceeds that cannot be carved or imported, and affects nothing else.

pub mod frame;

mod descriptor;
mod link;
mod registers;
mod rendezvous;
mod share;
mod socket;
mod upkeep;

pub(crate) use registers::Carried;

use crate::port::{DOORBELLS, SCRATCHPADS};
use crate::translation::{Translation, check_len};
use crate::{DownReason, Event, Info, Port, PortError};
use crosslane_passing::Foreign;
use crosslane_shm::mem::new_segment;
use crosslane_shm::wake::{FarWaker, Waker};
use crosslane_shm::{Inbound, Outbound, Segment};
use crosslane_wire::{Caching, Reach, SegmentInfo, SegmentRange};
use link::{Link, MAX_ANNOUNCED};
use rendezvous::{BackOff, Listener};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;
use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use upkeep::HANDSHAKE_TIMEOUT;

/// Where a soft cable runs and what its ports have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SoftConfig {
    /// Path of the socket, at most 108 bytes.
    pub path: PathBuf,
    /// Permission bits of the socket: which users may plug into the cable. For the listening side.
    pub mode: u32,
    /// Windows, 1 to [`frame::MAX_WINDOWS`].
    pub windows: usize,
    /// Largest translation of each window, bytes; a multiple of the page size.
    pub window_bytes: u64,
}

impl SoftConfig {
    /// A cable at `path` that only this user may plug into (mode 0600), with two windows of 64 GB. Memory is taken
    /// only for segments, and only once it is written.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), mode: 0o600, windows: 2, window_bytes: 64 << 30 }
    }
}

/// A soft port.
#[derive(Debug)]
pub struct SoftPort {
    config: SoftConfig,
    listener: Option<Listener>,
    epoll: OwnedFd,
    attention: OwnedFd,
    attentive: Cell<bool>,
    events: VecDeque<Event>,
    reported_up: bool,
    link: Option<Link>,
    own: Vec<Translation<()>>,
    mask: u32,
    back_off: BackOff,
    retry_at: Option<Instant>,
    off: bool,
    reason: Option<DownReason>,
}

impl SoftPort {
    /// The side that listens at the path. It replaces a socket file without a listener; the file is removed when the port
    /// is dropped. It serves one peer at a time, and the next one when that is gone.
    ///
    /// # Errors
    /// [`PortError::InUse`] if another process listens there, [`PortError::Range`] for a bad configuration, system errors.
    pub fn listen(config: SoftConfig) -> Result<Self, PortError> {
        let listener = Listener::new(&config.path, config.mode)?;
        Self::new(config, Some(listener))
    }

    /// The side that connects to the path, at once and whenever the link is down: after 50 ms, then twice as long each time, up to 1 s.
    ///
    /// # Errors
    /// [`PortError::Range`] for a bad configuration, system errors. A missing listener is no error.
    pub fn connect(config: SoftConfig) -> Result<Self, PortError> {
        rendezvous::address(&config.path)?;
        Self::new(config, None)
    }

    /// Takes the waker that the peer exported under this handle; `None` if there was no room for its descriptor, or it is of another kind.
    ///
    /// # Errors
    /// [`PortError::NotThere`], [`PortError::Down`].
    pub(crate) fn take_waker(&mut self, handle: u64, word: u64) -> Result<Option<Waker>, PortError> {
        self.await_announced(|link| link.has_waker(handle).then_some(()))?;
        let taken = self.live()?.take_waker(handle).ok_or(PortError::NotThere)?;
        Ok(taken.and_then(|socket| Waker::of(socket.into_owned(), word).ok()))
    }

    /// How much has landed in either direction, as both sides tell each other, of the link that is up.
    pub(crate) fn carried(&self) -> Option<Carried> {
        self.link.as_ref()?.carried()
    }

    /// Ranges that the peer has freed since the last call in this life.
    pub(crate) fn take_freed(&mut self) -> Vec<(usize, SegmentRange)> {
        self.link.as_mut().map(Link::take_freed).unwrap_or_default()
    }

    fn new(config: SoftConfig, listener: Option<Listener>) -> Result<Self, PortError> {
        check_len(config.window_bytes, u64::MAX)?;
        if config.windows == 0 || config.windows > frame::MAX_WINDOWS {
            return Err(PortError::NoWindow(config.windows));
        }
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let attention = eventfd(1, flags).map_err(PortError::system("eventfd"))?;
        let epoll = poller([attention.as_fd()].into_iter().chain(listener.as_ref().map(Listener::socket)))?;
        Ok(Self {
            own: (0..config.windows).map(|_| Translation::new(0)).collect(),
            config,
            listener,
            epoll,
            attention,
            attentive: Cell::new(true),
            events: VecDeque::new(),
            reported_up: false,
            link: None,
            mask: 0,
            back_off: BackOff::new(),
            retry_at: None,
            off: false,
            reason: None,
        })
    }
}

impl SoftPort {
    /// Checks whether a segment may be put behind a range; returns the window's number in frames.
    fn may_announce(&mut self, window: usize, range: SegmentRange) -> Result<u32, PortError> {
        self.window(window)?.check(range)?;
        if self.own.iter().map(Translation::count).sum::<usize>() >= MAX_ANNOUNCED {
            return Err(PortError::Full("segments"));
        }
        self.live()?;
        u32::try_from(window).map_err(|_| PortError::NoWindow(window))
    }

    /// Announces the memory behind a range that is not in use to the peer, and sends its descriptor.
    fn announce_segment(
        &mut self,
        number: u32,
        range: SegmentRange,
        memory: BorrowedFd<'_>,
    ) -> Result<(), PortError> {
        let outcome = self.live()?.announce(&frame::Frame::Segment { window: number, range }, memory);
        if !self.sent(outcome)? {
            return Err(PortError::Full("frames to a peer that does not read"));
        }
        self.own[number as usize].insert(range, ())
    }
}

impl Port for SoftPort {
    type Inbound = Inbound;
    type Outbound = Outbound;

    fn info(&self) -> Info {
        Info {
            windows: self.config.windows,
            window_bytes: self.config.window_bytes,
            scratchpads: SCRATCHPADS,
            doorbells: DOORBELLS,
            descriptors: true,
            caching: Caching::WriteBack,
            posted_ns: 0,
            lossy: false,
        }
    }

    fn held(&self) -> usize {
        self.link.as_ref().map_or(0, Link::held)
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.clear_attention();
        if self.events.is_empty() {
            self.find_peer();
            self.pump();
        }
        if let Some(event) = self.events.pop_front() {
            self.reported_up = event == Event::LinkUp;
            return Some(event);
        }
        let bits = self.link.as_mut().filter(|link| link.up())?.take_doorbells(self.mask);
        (bits != 0).then_some(Event::Doorbell(bits))
    }

    fn timeout(&self) -> Option<Duration> {
        let until = |at: Instant| at.saturating_duration_since(Instant::now());
        match &self.link {
            _ if !self.events.is_empty() => Some(Duration::ZERO),
            _ if self.off => None,
            Some(link) if !link.up() && self.listener.is_some() => {
                Some(until(link.since + HANDSHAKE_TIMEOUT))
            }
            Some(_) => None,
            None => match self.retry_at {
                Some(at) => Some(until(at)),
                None => self.listener.is_none().then_some(Duration::ZERO),
            },
        }
    }

    fn is_up(&self) -> bool {
        self.reported_up
    }

    fn set_link(&mut self, on: bool) {
        self.off = !on;
        if !on {
            self.fail(DownReason::Off);
            self.reason = Some(DownReason::Off);
        }
        (self.retry_at, self.back_off) = (None, BackOff::new());
        self.watch_listener(on && self.link.is_none());
        self.draw_attention();
    }

    fn down_reason(&self) -> Option<DownReason> {
        match &self.link {
            Some(link) if link.up() => None,
            Some(_) => Some(self.reason.clone().unwrap_or(DownReason::Stuck)),
            None => self.reason.clone(),
        }
    }

    fn write_peer_scratchpad(&self, index: usize, value: u32) {
        assert!(index < SCRATCHPADS, "no scratchpad {index}");
        if let Some(link) = &self.link {
            link.set_peer_scratchpad(index, value);
        }
    }

    fn read_scratchpad(&self, index: usize) -> u32 {
        assert!(index < SCRATCHPADS, "no scratchpad {index}");
        self.link.as_ref().map_or(0, |link| link.own().scratchpad(index))
    }

    fn ring_peer_doorbell(&self, bits: u32) {
        if let Some(link) = &self.link {
            link.ring(bits);
        }
    }

    fn mask_doorbells(&mut self, bits: u32) {
        self.mask |= bits;
        if let Some(link) = &self.link {
            link.set_mask(self.mask);
        }
    }

    fn unmask_doorbells(&mut self, bits: u32) {
        self.mask &= !bits;
        if let Some(link) = &self.link {
            link.set_mask(self.mask);
            if link.own().pending() & !self.mask != 0 {
                self.draw_attention();
            }
        }
    }

    fn set_inbound(&mut self, window: usize, len: u64) -> Result<(), PortError> {
        check_len(len, self.config.window_bytes)?;
        if self.window(window)?.count() != 0 {
            return Err(PortError::Busy(window));
        }
        self.own[window] = Translation::new(len);
        if let Some(link) = &mut self.link {
            let number = u32::try_from(window).map_err(|_| PortError::NoWindow(window))?;
            let outcome = link.send(frame::Frame::Translation { window: number, len });
            // Without a peer nothing need be sent: the next one gets all in the Hello.
            let _ = self.sent(outcome);
        }
        Ok(())
    }

    fn carve_inbound(&mut self, window: usize, range: SegmentRange) -> Result<Segment, PortError> {
        let number = self.may_announce(window, range)?;
        let segment = new_segment("crosslane-segment", range.len)?;
        self.announce_segment(number, range, segment.as_fd())?;
        Ok(Segment::sealed(segment, range.len))
    }

    fn pass_inbound(
        &mut self,
        window: usize,
        range: SegmentRange,
        segment: &Segment,
    ) -> Result<(), PortError> {
        if segment.info != SegmentInfo::sealed(range.len) {
            return Err(PortError::Range {
                offset: segment.info.offset,
                len: segment.info.len,
                window: range.len,
            });
        }
        let number = self.may_announce(window, range)?;
        self.announce_segment(number, range, segment.as_fd())
    }

    fn free_inbound(&mut self, window: usize, range: SegmentRange) {
        let Ok(number) = u32::try_from(window) else { return };
        let carved = self.own.get_mut(window).and_then(|window| window.remove(range));
        if let (Some(()), Some(link)) = (carved, &mut self.link) {
            let outcome = link.send(frame::Frame::Freed { window: number, range });
            let _ = self.sent(outcome);
        }
    }

    fn carve_outbound(&mut self, window: usize, range: SegmentRange) -> Result<Segment, PortError> {
        if window >= self.config.windows {
            return Err(PortError::NoWindow(window));
        }
        self.await_announced(|link| link.segment(window, range).map(drop))?;
        let taken = self.live()?.take_segment(window, range).ok_or_else(no_room)?;
        Ok(Segment::sealed(taken.into_owned(), range.len))
    }

    fn map_inbound(&mut self, window: usize, range: SegmentRange) -> Result<Inbound, PortError> {
        let segment = self.carve_inbound(window, range)?;
        Inbound::map(&segment).map_err(|error| {
            self.free_inbound(window, range);
            error.into()
        })
    }

    fn map_outbound(&mut self, window: usize, range: SegmentRange) -> Result<Outbound, PortError> {
        if window >= self.config.windows {
            return Err(PortError::NoWindow(window));
        }
        let map = |fd: &Foreign| Outbound::sealed(fd, range.len);
        let view = self.await_announced(|link| link.segment(window, range).map(|fd| fd.map(map)))?;
        Ok(view.ok_or_else(no_room)??)
    }

    fn export_waker(&mut self, waker: BorrowedFd<'_>, _word: u64) -> Result<u64, PortError> {
        let outcome = self.live()?.export_waker(waker);
        self.sent(outcome)?.ok_or(PortError::Full("frames to a peer that does not read"))
    }

    fn import_waker(&mut self, handle: u64, word: u64) -> Result<Option<FarWaker>, PortError> {
        Ok(self.take_waker(handle, word)?.map(FarWaker::Own))
    }

    fn hand_over(&mut self, buffer: BorrowedFd<'_>, len: u64, reach: Reach) -> Result<u64, PortError> {
        let outcome = self.live()?.hand_over(buffer, len, reach);
        self.sent(outcome)?.ok_or(PortError::Full("frames to a peer that does not read"))
    }

    fn take_over(&mut self, handle: u64, len: u64, reach: Reach) -> Result<OwnedFd, PortError> {
        self.await_announced(|link| link.has_buffer(handle).then_some(()))?;
        let taken =
            self.live()?.take_over(handle).filter(|buffer| (buffer.len, buffer.reach) == (len, reach));
        let memory = taken.ok_or(PortError::NotThere)?.memory.ok_or_else(no_room)?;
        Ok(memory.give_out().into_owned())
    }
}

/// The peer's memory was given out before, or its descriptor was dropped, since this process, or this cable's share of it, had no room.
fn no_room() -> PortError {
    PortError::system("descriptor of the peer's memory")(Errno::MFILE)
}

/// A descriptor that is readable when one of `fds` is.
pub(crate) fn poller<'a>(fds: impl IntoIterator<Item = BorrowedFd<'a>>) -> Result<OwnedFd, PortError> {
    let poller = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(PortError::system("epoll_create"))?;
    for fd in fds {
        let data = epoll::EventData::new_u64(0);
        epoll::add(&poller, fd, data, epoll::EventFlags::IN).map_err(PortError::system("epoll_ctl"))?;
    }
    Ok(poller)
}

//! A port on a real bridge, by the kernel module `crosslane_ntb`.
//!
//! The module gives out ranges of windows as descriptors, which it takes back from whoever maps them. What it does not do is tell one side
//! what the other has carved: the first bytes behind window 0 are a lane of frames for that. A range that was freed is used again when
//! the peer has said that nobody of its host maps it any more.

mod lane;

use crate::port::{DOORBELLS, SCRATCHPADS};
use crate::soft::poller;
use crate::translation::{Translation, check_len};
use crate::{DownReason, Event, Info, Port, PortError};
use crosslane_ntb::{Device, Event as DeviceEvent, Side};
use crosslane_shm::wake::{FarWaker, Waker};
use crosslane_shm::{Inbound, Outbound, Segment};
use crosslane_wire::{Caching, MemoryKind, SegmentInfo, SegmentRange};
use lane::{Frame, LANE, Lane, Nonsense};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The module's doorbell that says that there are frames.
const FRAMES: u64 = 1 << 63;
/// The module's scratchpad that says that the writer's lane has memory.
const LANE_PAD: u32 = 31;
/// How long a carve waits for what the peer has announced or must release, beside what stores may be under way.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_millis(20);
/// How long the link stays off after the peer broke the rules.
const PENANCE: Duration = Duration::from_millis(100);
/// Most segments of each side.
const MAX_SEGMENTS: usize = 64 * 1024;
/// Most frames that wait for a peer that does not read.
const MAX_QUEUED: usize = 4 * MAX_SEGMENTS;
/// Most events, and most frames, that one look at the device takes: a neighbour that rings and stores without end keeps nobody.
const EVENTS_AT_ONCE: usize = 64;
const FRAMES_AT_ONCE: usize = 1024;
/// How long a posted store may be under way if nobody knows better, ns: many times what a switch or two take.
pub const POSTED_NS: u32 = 100_000;

/// Which bridge, and how much memory of this host its peer may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelConfig {
    /// The module's device.
    pub path: PathBuf,
    /// Memory behind each window, bytes, whole pages; less where the bridge's windows are shorter. It is allocated when the link comes up.
    pub window_bytes: u64,
    /// How long a posted store may be under way, ns: what ends of a connection wait for, beside a life's end.
    pub posted_ns: u32,
}

/// A port of the kernel module.
#[derive(Debug)]
pub struct KernelPort {
    device: Device,
    poller: OwnedFd,
    attention: OwnedFd,
    window_bytes: u64,
    posted_ns: u32,
    own: Vec<Translation<()>>,
    /// Ranges that were freed, and that the peer has not released.
    quarantine: BTreeSet<(usize, u64, u64)>,
    life: Option<Life>,
    events: VecDeque<Event>,
    /// Whether the lane may have more frames than the last look took.
    more_frames: bool,
    bells: u32,
    mask: u32,
    reported_up: bool,
    off: bool,
    on_again_at: Option<Instant>,
    reason: Option<DownReason>,
}

/// What belongs to one life of the link.
#[derive(Debug)]
struct Life {
    lane: Lane,
    greeted: bool,
    ready: bool,
    queue: VecDeque<Frame>,
    /// The peer's segments: whether each can be given out still.
    peer: Vec<Translation<bool>>,
    /// The module's handles of this host's wake events, by the words of their wakes.
    wakers: HashMap<u64, u32>,
}

impl KernelPort {
    /// Opens the device and switches its link on.
    ///
    /// # Errors
    /// [`PortError::Range`]: no whole pages; or a system error: `EBUSY`, another daemon has the device.
    pub fn open(config: &KernelConfig) -> Result<Self, PortError> {
        let path = config.path.display();
        let device = Device::open(&config.path).map_err(PortError::system(format!("open {path}")))?;
        let windows = device.info().windows as usize;
        // Both ends' windows are as long as each other's, as a rule; how long those of this end can be is known with the link up.
        let shortest = device.info().window[..windows].iter().map(|window| window.outbound_len).min();
        let window_bytes = config.window_bytes.min(shortest.unwrap_or(0).saturating_sub(LANE));
        check_len(window_bytes, window_bytes)?;
        for window in 0..windows {
            let len = window_bytes + lane_len(window);
            device.translate(number(window), len).map_err(PortError::system("memory for a window"))?;
        }
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let attention = eventfd(0, flags).map_err(PortError::system("eventfd"))?;
        let poller = poller([device.as_fd(), attention.as_fd()])?;
        device.link(true).map_err(PortError::system("switch the link on"))?;
        Ok(Self {
            device,
            poller,
            attention,
            window_bytes,
            posted_ns: config.posted_ns,
            own: (0..windows).map(|_| Translation::new(0)).collect(),
            quarantine: BTreeSet::new(),
            life: None,
            events: VecDeque::new(),
            more_frames: false,
            bells: 0,
            mask: 0,
            reported_up: false,
            off: false,
            on_again_at: None,
            reason: None,
        })
    }

    /// The life of the link, if it is up.
    fn live(&mut self) -> Result<&mut Life, PortError> {
        self.life.as_mut().filter(|life| life.ready).ok_or(PortError::Down)
    }

    /// Takes what the device reports. What is left makes the device readable again.
    fn pump(&mut self) {
        if std::mem::take(&mut self.more_frames) {
            self.take_frames();
        }
        for _ in 0..EVENTS_AT_ONCE {
            match self.device.event() {
                Ok(Some(DeviceEvent::Up)) => self.begin(),
                Ok(Some(DeviceEvent::Down)) => self.end(DownReason::Cable),
                Ok(Some(DeviceEvent::Doorbells(bits))) => {
                    self.bells |= u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(0);
                    if bits & FRAMES != 0 {
                        self.take_frames();
                    }
                }
                Ok(None) => return,
                Err(errno) => {
                    // It stays readable for ever, and never has anything again.
                    let _ = epoll::delete(&self.poller, &self.device);
                    return self.end(DownReason::System { what: "read the device", errno });
                }
            }
        }
    }

    /// A life begins: the lanes get memory, and the peer is told.
    fn begin(&mut self) {
        self.end(DownReason::Cable);
        match self.lane() {
            Ok(lane) => {
                let peer = self.own.iter().map(|_| Translation::new(0)).collect();
                let queue = VecDeque::new();
                self.life =
                    Some(Life { lane, greeted: false, ready: false, queue, peer, wakers: HashMap::new() });
                let _ = self.device.write_peer_pad(LANE_PAD, 1).and_then(|()| self.device.ring(FRAMES));
                self.take_frames();
            }
            Err(error) => self.fail(DownReason::Violation(format!("no lane: {error}"))),
        }
    }

    fn lane(&self) -> Result<Lane, PortError> {
        let range = SegmentRange { offset: 0, len: LANE };
        let carve = |side| {
            let fd = self.device.carve(side, 0, 0, LANE).map_err(PortError::system("carve the lane"))?;
            Ok::<_, PortError>(self.segment(fd, side, range))
        };
        let (inbound, outbound) = (carve(Side::Inbound)?, carve(Side::Outbound)?);
        Ok(Lane::new(Inbound::map(&inbound)?, Outbound::map(&outbound)?))
    }

    /// The life is over.
    fn end(&mut self, reason: DownReason) {
        let Some(life) = self.life.take() else { return };
        self.own.iter_mut().for_each(Translation::clear);
        self.quarantine.clear();
        self.bells = 0;
        self.reason = Some(reason.clone());
        if life.ready {
            // A life that was not reported yet has never been.
            match self.events.pop_back() {
                Some(Event::LinkUp) => {}
                last => {
                    self.events.extend(last);
                    self.events.push_back(Event::LinkDown(reason));
                }
            }
        }
        self.draw_attention();
    }

    /// Ends the life on this side's part, for a while.
    fn fail(&mut self, reason: DownReason) {
        let _ = self.device.link(false);
        self.reason = Some(reason.clone());
        self.end(reason);
        self.on_again_at = Some(Instant::now() + PENANCE);
    }

    /// Reads the peer's frames, and greets it once it has a lane.
    fn take_frames(&mut self) {
        let Some(life) = &mut self.life else { return };
        if !life.greeted && self.device.read_pad(LANE_PAD) == Ok(1) {
            life.greeted = true;
            let windows: Vec<_> = self.own.iter().map(Translation::len).enumerate().collect();
            windows.into_iter().for_each(|(window, len)| self.send(Frame::Window(window, len)));
            self.send(Frame::Ready);
        }
        let mut taken = 0;
        while taken < FRAMES_AT_ONCE
            && let Some(life) = &mut self.life
        {
            let handled = match life.lane.receive() {
                Ok(None) => break,
                Ok(Some(frame)) => self.handle(frame),
                Err(nonsense) => Err(nonsense),
            };
            taken += 1;
            if let Err(Nonsense(what)) = handled {
                return self.fail(DownReason::Violation(what.to_owned()));
            }
        }
        if taken == FRAMES_AT_ONCE {
            self.more_frames = true;
            self.draw_attention();
        }
        if let Some(life) = &mut self.life {
            if taken > 0 {
                life.lane.acknowledge();
            }
            self.flush(taken > 0);
        }
    }

    fn handle(&mut self, frame: Frame) -> Result<(), Nonsense> {
        let Some(life) = &mut self.life else { return Ok(()) };
        let window = match frame {
            Frame::Window(window, _)
            | Frame::Segment(window, _)
            | Frame::Freed(window, _)
            | Frame::Released(window, _) => window,
            Frame::Ready => {
                if !life.ready {
                    life.ready = true;
                    self.reason = None;
                    self.events.push_back(Event::LinkUp);
                    self.draw_attention();
                }
                return Ok(());
            }
        };
        let theirs = life.peer.get_mut(window).ok_or(Nonsense("a window that is not there"))?;
        match frame {
            Frame::Window(_, len) => {
                if theirs.count() != 0
                    || len > self.window_bytes.max(self.device.info().window[window].outbound_len)
                {
                    return Err(Nonsense("a window's length that cannot be"));
                }
                *theirs = Translation::new(len);
            }
            Frame::Segment(_, range) => {
                if theirs.count() >= MAX_SEGMENTS || theirs.insert(range, true).is_err() {
                    return Err(Nonsense("a segment that cannot be"));
                }
            }
            Frame::Freed(_, range) => {
                let given_out = theirs.remove(range).ok_or(Nonsense("a segment freed that was none"))?;
                if !given_out {
                    let _ = self.take_back(Side::Outbound, window, range);
                }
                self.send(Frame::Released(window, range));
            }
            Frame::Released(_, range) => {
                if !self.quarantine.remove(&(window, range.offset, range.len)) {
                    return Err(Nonsense("a range released that was not freed"));
                }
            }
            Frame::Ready => {}
        }
        Ok(())
    }

    fn take_back(&self, side: Side, window: usize, range: SegmentRange) -> Result<(), Errno> {
        self.device.take_back(side, number(window), range.offset + lane_len(window), range.len)
    }

    fn carve(&self, side: Side, window: usize, range: SegmentRange) -> Result<Segment, PortError> {
        let fd = self.device.carve(side, number(window), range.offset + lane_len(window), range.len);
        match fd {
            Ok(fd) => Ok(self.segment(fd, side, range)),
            Err(Errno::NOTCONN) => Err(PortError::Down),
            Err(errno) => Err(PortError::system("carve a segment")(errno)),
        }
    }

    fn segment(&self, fd: OwnedFd, side: Side, range: SegmentRange) -> Segment {
        let caching = if side == Side::Outbound { Caching::WriteCombining } else { Caching::WriteBack };
        let (memory, len, posted_ns) = (MemoryKind::Device, range.len, self.posted_ns);
        Segment { fd, info: SegmentInfo { offset: 0, len, memory, caching, posted_ns, lossy: true } }
    }

    /// Sends a frame, now or when there is room.
    fn send(&mut self, frame: Frame) {
        if let Some(life) = &mut self.life {
            life.queue.push_back(frame);
            self.flush(false);
        }
    }

    /// Sends what waits; `ring`: the peer is to look in any case.
    fn flush(&mut self, ring: bool) {
        let Some(life) = &mut self.life else { return };
        let mut sent = ring;
        while let Some(frame) = life.queue.front() {
            if !life.lane.send(*frame) {
                break;
            }
            life.queue.pop_front();
            sent = true;
        }
        if life.queue.len() > MAX_QUEUED {
            return self.fail(DownReason::Stuck);
        }
        if sent {
            let _ = self.device.ring(FRAMES);
        }
    }

    /// Waits until `look` finds something, or the peer has had time to say it.
    fn wait_for<T>(&mut self, look: impl Fn(&Self) -> Option<T>) -> Result<T, PortError> {
        let under_way = Duration::from_nanos(self.posted_ns.into());
        let deadline = Instant::now() + ANNOUNCE_TIMEOUT + 2 * under_way;
        loop {
            self.pump();
            // What is waited for was stored before what made the caller look; the doorbell behind it may be late.
            self.take_frames();
            self.live()?;
            if let Some(found) = look(self) {
                return Ok(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(PortError::NotThere);
            }
            let timeout = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
            let _ = poll(&mut [PollFd::new(&self.device, PollFlags::IN)], Some(&timeout));
        }
    }

    fn draw_attention(&self) {
        let _ = rustix::io::write(&self.attention, &1u64.to_ne_bytes());
    }

    fn clear_attention(&self) {
        let _ = rustix::io::read(&self.attention, &mut [0; 8]);
    }
}

impl Port for KernelPort {
    type Inbound = Inbound;
    type Outbound = Outbound;

    fn info(&self) -> Info {
        Info {
            windows: self.own.len(),
            window_bytes: self.window_bytes,
            scratchpads: SCRATCHPADS,
            doorbells: DOORBELLS,
            descriptors: true,
            caching: Caching::WriteCombining,
            posted_ns: self.posted_ns,
            lossy: true,
        }
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.clear_attention();
        if self.on_again_at.is_some_and(|at| at <= Instant::now()) && !self.off {
            self.on_again_at = None;
            let _ = self.device.link(true);
        }
        if self.events.is_empty() {
            self.pump();
        }
        if let Some(event) = self.events.pop_front() {
            self.reported_up = event == Event::LinkUp;
            return Some(event);
        }
        let bits = self.bells & !self.mask;
        self.bells &= self.mask;
        (self.reported_up && bits != 0).then_some(Event::Doorbell(bits))
    }

    fn timeout(&self) -> Option<Duration> {
        if !self.events.is_empty() || self.bells & !self.mask != 0 {
            return Some(Duration::ZERO);
        }
        self.on_again_at.map(|at| at.saturating_duration_since(Instant::now()))
    }

    fn is_up(&self) -> bool {
        self.reported_up
    }

    fn set_link(&mut self, on: bool) {
        self.off = !on;
        self.on_again_at = None;
        let _ = self.device.link(on);
        if !on {
            self.end(DownReason::Off);
            self.reason = Some(DownReason::Off);
        }
    }

    fn down_reason(&self) -> Option<DownReason> {
        if self.life.as_ref().is_some_and(|life| life.ready) { None } else { self.reason.clone() }
    }

    fn write_peer_scratchpad(&self, index: usize, value: u32) {
        assert!(index < SCRATCHPADS, "no scratchpad {index}");
        let _ = self.device.write_peer_pad(number(index), value);
    }

    fn read_scratchpad(&self, index: usize) -> u32 {
        assert!(index < SCRATCHPADS, "no scratchpad {index}");
        self.device.read_pad(number(index)).unwrap_or(0)
    }

    fn ring_peer_doorbell(&self, bits: u32) {
        let _ = self.device.ring(bits.into());
    }

    fn mask_doorbells(&mut self, bits: u32) {
        self.mask |= bits;
        let _ = self.device.mask(self.mask.into());
    }

    fn unmask_doorbells(&mut self, bits: u32) {
        self.mask &= !bits;
        let _ = self.device.mask(self.mask.into());
        self.draw_attention();
    }

    fn set_inbound(&mut self, window: usize, len: u64) -> Result<(), PortError> {
        check_len(len, self.window_bytes)?;
        let own = self.own.get_mut(window).ok_or(PortError::NoWindow(window))?;
        if own.count() != 0 {
            return Err(PortError::Busy(window));
        }
        *own = Translation::new(len);
        if self.life.as_ref().is_some_and(|life| life.greeted) {
            self.send(Frame::Window(window, len));
        }
        Ok(())
    }

    fn carve_inbound(&mut self, window: usize, range: SegmentRange) -> Result<Segment, PortError> {
        self.own.get(window).ok_or(PortError::NoWindow(window))?.check(range)?;
        if self.own.iter().map(Translation::count).sum::<usize>() >= MAX_SEGMENTS {
            return Err(PortError::Full("segments"));
        }
        self.live()?;
        self.pump();
        self.live()?;
        if !self.is_free(window, range) {
            return Err(PortError::Full("ranges that the peer has released"));
        }
        let segment = self.carve(Side::Inbound, window, range)?;
        self.own[window].insert(range, ())?;
        self.send(Frame::Segment(window, range));
        Ok(segment)
    }

    fn free_inbound(&mut self, window: usize, range: SegmentRange) {
        if self.own.get_mut(window).and_then(|own| own.remove(range)).is_none() {
            return;
        }
        let _ = self.take_back(Side::Inbound, window, range);
        self.quarantine.insert((window, range.offset, range.len));
        self.send(Frame::Freed(window, range));
    }

    /// As long as the peer has not released a range, programs of its host could still store into it.
    fn is_free(&self, window: usize, range: SegmentRange) -> bool {
        let end = range.offset.saturating_add(range.len);
        !self
            .quarantine
            .iter()
            .any(|(at, offset, len)| *at == window && *offset < end && range.offset < offset + len)
    }

    fn carve_outbound(&mut self, window: usize, range: SegmentRange) -> Result<Segment, PortError> {
        if window >= self.own.len() {
            return Err(PortError::NoWindow(window));
        }
        self.live()?;
        let there = |port: &Self| port.life.as_ref()?.peer[window].get(range).copied();
        if !self.wait_for(there)? {
            return Err(PortError::system("a segment that was given out before")(Errno::BUSY));
        }
        let segment = self.carve(Side::Outbound, window, range)?;
        if let Some(unused) = self.live()?.peer[window].get_mut(range) {
            *unused = false;
        }
        Ok(segment)
    }

    /// Waits for a range that the peer has not released: what a daemon maps for itself has a fixed place.
    fn map_inbound(&mut self, window: usize, range: SegmentRange) -> Result<Inbound, PortError> {
        // Without one, carving says what is wrong.
        let _ = self.wait_for(|port| port.is_free(window, range).then_some(()));
        let segment = self.carve_inbound(window, range)?;
        Inbound::map(&segment).map_err(|error| {
            self.free_inbound(window, range);
            error.into()
        })
    }

    fn map_outbound(&mut self, window: usize, range: SegmentRange) -> Result<Outbound, PortError> {
        Ok(Outbound::map(&self.carve_outbound(window, range)?)?)
    }

    /// All programs of the peer that may wake one sleeper do it by one handle: it gives none of them anything that is another's.
    fn export_waker(&mut self, waker: BorrowedFd<'_>, word: u64) -> Result<u64, PortError> {
        if let Some(handle) = self.live()?.wakers.get(&word) {
            return Ok((*handle).into());
        }
        let handle = match self.device.waker(waker, word) {
            Err(Errno::NOTCONN) => return Err(PortError::Down),
            Err(Errno::NOSPC) => return Err(PortError::Full("wakers")),
            made => made.map_err(PortError::system("a waker"))?,
        };
        self.live()?.wakers.insert(word, handle);
        Ok(handle.into())
    }

    fn forget_wakers(&mut self, word: u64) {
        if let Some(handle) = self.life.as_mut().and_then(|life| life.wakers.remove(&word)) {
            // A life that has just ended has none any more.
            let _ = self.device.drop_waker(handle);
        }
    }

    /// A bell: its writer wakes the sleeper by way of the modules of both hosts.
    fn import_waker(&mut self, handle: u64, word: u64) -> Result<Option<FarWaker>, PortError> {
        self.live()?;
        let Ok(handle) = u32::try_from(handle) else { return Ok(None) };
        match self.device.bell(handle) {
            Err(Errno::NOTCONN) => Err(PortError::Down),
            bell => Ok(bell.and_then(|bell| Waker::of(bell, word)).ok().map(FarWaker::Own)),
        }
    }
}

/// Bytes at a window's start that are not the daemon's.
fn lane_len(window: usize) -> u64 {
    if window == 0 { LANE } else { 0 }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

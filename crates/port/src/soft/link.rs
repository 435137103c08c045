//! One life of a soft cable: the connection, both register pages, and what the peer has announced.

use super::descriptor::check_segment;
use super::frame::{Frame, MAX_WINDOWS, VERSION};
use super::registers::{Carried, OwnPage, PeerPage};
use super::share::{Kept, Share};
use super::socket::{self, Received};
use crate::DownReason;
use crate::translation::{Translation, check_len};
use crosslane_passing::Foreign;
use crosslane_shm::far::check_buffer;
use crosslane_shm::wake;
use crosslane_wire::{Reach, SegmentRange};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

/// Most segments, and most wakers that were not imported yet, that a peer may have announced at one time.
pub(super) const MAX_ANNOUNCED: usize = 64 * 1024;
/// Most buffers that a peer may have exported and that were not imported yet: it exports them only on request, and no
/// more are requested at a time.
pub(super) const MAX_HANDED: usize = 64;
/// Most frames that wait for a peer that does not read: all segments that can be freed and carved again, twice.
const MAX_QUEUED: usize = 4 * MAX_ANNOUNCED;
/// Largest window that a peer may claim, bytes.
const MAX_WINDOW: u64 = 1 << 46;

/// Result of a look at the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing waits.
    Idle,
    /// A frame was handled.
    Handled,
    /// The frame was the peer's Hello: the link is up.
    Up,
}

/// A buffer that the peer exported and that was not imported yet.
#[derive(Debug)]
pub(super) struct Handed {
    /// Its memory; `None` if there was no room for its descriptor.
    pub(super) memory: Option<Kept>,
    /// Its length, bytes.
    pub(super) len: u64,
    /// What may be done with it.
    pub(super) reach: Reach,
}

/// A connection to a peer.
#[derive(Debug)]
pub(super) struct Link {
    /// The socket; its queue contains what the peer has sent and this side has not read.
    socket: Foreign,
    own: OwnPage,
    peer: Option<PeerPage>,
    windows: Vec<Translation<Option<Kept>>>,
    announced: usize,
    /// Share for the peer's descriptors; descriptors beyond it are dropped, so that no peer can use up those that other cables need.
    share: Share,
    /// Wakers that the peer exported and that were not imported yet; `None` if there was no room for one.
    wakers: BTreeMap<u64, Option<Kept>>,
    buffers: BTreeMap<u64, Handed>,
    queue: VecDeque<Frame>,
    next_waker: u64,
    next_buffer: u64,
    /// Ranges that the peer has freed, recorded from the first [`Self::take_freed`] on.
    freed: Option<Vec<(usize, SegmentRange)>>,
    /// When the connection was made.
    pub(super) since: Instant,
}

impl Link {
    /// Sends this side's Hello on a new connection.
    pub(super) fn new(socket: Foreign, translations: Vec<u64>) -> Result<Self, DownReason> {
        let (own, page) = OwnPage::new()
            .map_err(|error| DownReason::System { what: "register page", errno: system_error(&error) })?;
        let mut link = Self {
            socket,
            own,
            peer: None,
            windows: Vec::new(),
            announced: 0,
            share: Share::new(),
            wakers: BTreeMap::new(),
            buffers: BTreeMap::new(),
            queue: VecDeque::new(),
            next_waker: 1,
            next_buffer: 1,
            freed: None,
            since: Instant::now(),
        };
        // A fresh socket has room.
        match link.announce(&Frame::Hello { version: VERSION, translations }, page.as_fd())? {
            true => Ok(link),
            false => Err(DownReason::Stuck),
        }
    }

    /// The connection, for polling.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Number of the peer's descriptors that are held.
    pub(super) fn held(&self) -> usize {
        self.share.used()
    }

    /// Whether the peer's Hello has come.
    pub(super) fn up(&self) -> bool {
        self.peer.is_some()
    }

    /// The register page that this side reads.
    pub(super) fn own(&self) -> &OwnPage {
        &self.own
    }

    /// What stores have carried, if there is a peer.
    pub(super) fn carried(&self) -> Option<Carried> {
        self.peer.as_ref().map(|peer| Carried::new(&self.own, peer))
    }

    /// Whether frames wait for room in the socket.
    pub(super) fn waits_for_room(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Takes pending doorbells.
    pub(super) fn take_doorbells(&mut self, mask: u32) -> u32 {
        self.own.take(mask)
    }

    /// Stores into a scratchpad of the peer, if there is a peer.
    pub(super) fn set_peer_scratchpad(&self, index: usize, value: u32) {
        if let Some(peer) = &self.peer {
            peer.set_scratchpad(index, value);
        }
    }

    /// Stores this side's mask of doorbells into the peer's page.
    pub(super) fn set_mask(&self, mask: u32) {
        if let Some(peer) = &self.peer {
            peer.set_mask(mask);
        }
    }

    /// Rings doorbells, and wakes the peer if it may sleep. If the socket has no room no wake-up is needed: the peer must
    /// still read what lies there, and checks the doorbells after that. [`Self::step`] notices a broken socket.
    pub(super) fn ring(&self, bits: u32) {
        let Some(peer) = &self.peer else { return };
        peer.ring(bits);
        let number = peer.wakes().wrapping_add(1);
        if bits & !self.own.peer_mask() == 0 || self.own.peer_saw() != peer.wakes() {
            return;
        }
        if let Ok(true) = socket::send(&self.socket, &Frame::Wake { number }.encode(), None) {
            peer.woke(number);
        }
    }

    /// Sends a frame with a descriptor, behind all others. `Ok(false)` if there is no room: such a frame cannot be
    /// queued, since the peer must find it in the socket before its daemon is told of it.
    pub(super) fn announce(&mut self, frame: &Frame, descriptor: BorrowedFd<'_>) -> Result<bool, DownReason> {
        self.flush()?;
        Ok(self.queue.is_empty() && socket::send(&self.socket, &frame.encode(), Some(descriptor))?)
    }

    /// Sends a frame, or keeps it until there is room.
    pub(super) fn send(&mut self, frame: Frame) -> Result<(), DownReason> {
        if self.queue.is_empty() && socket::send(&self.socket, &frame.encode(), None)? {
            return Ok(());
        }
        if self.queue.len() >= MAX_QUEUED {
            return Err(DownReason::Stuck);
        }
        self.queue.push_back(frame);
        Ok(())
    }

    /// Sends waiting frames, as far as there is room.
    pub(super) fn flush(&mut self) -> Result<(), DownReason> {
        while let Some(frame) = self.queue.front() {
            if !socket::send(&self.socket, &frame.encode(), None)? {
                break;
            }
            self.queue.pop_front();
        }
        Ok(())
    }

    /// Exports a waker and returns its handle; `None` if there is no room.
    pub(super) fn export_waker(&mut self, waker: BorrowedFd<'_>) -> Result<Option<u64>, DownReason> {
        let handle = self.next_waker;
        if !self.announce(&Frame::Waker { handle }, waker)? {
            return Ok(None);
        }
        self.next_waker += 1;
        Ok(Some(handle))
    }

    /// The peer's segment of exactly this range; `Some(None)` if it was given out, or there was no room for its descriptor.
    pub(super) fn segment(&self, window: usize, range: SegmentRange) -> Option<Option<&Foreign>> {
        self.windows.get(window)?.get(range).map(|kept| kept.as_ref().map(Kept::fd))
    }

    /// Takes the descriptor of the peer's segment of exactly this range, which stays carved.
    pub(super) fn take_segment(&mut self, window: usize, range: SegmentRange) -> Option<Foreign> {
        let kept = self.windows.get_mut(window)?.get_mut(range)?;
        kept.take().map(Kept::give_out)
    }

    /// Ranges that the peer has freed since the last call; those before the first call are not recorded.
    pub(super) fn take_freed(&mut self) -> Vec<(usize, SegmentRange)> {
        self.freed.replace(Vec::new()).unwrap_or_default()
    }

    /// Whether the peer has exported this waker.
    pub(super) fn has_waker(&self, handle: u64) -> bool {
        self.wakers.contains_key(&handle)
    }

    /// Takes a waker that the peer exported; `Some(None)` if there was no room for it.
    pub(super) fn take_waker(&mut self, handle: u64) -> Option<Option<Foreign>> {
        self.wakers.remove(&handle).map(|kept| kept.map(Kept::give_out))
    }

    /// Exports a buffer and returns its handle; `None` if there is no room.
    pub(super) fn hand_over(
        &mut self,
        memory: BorrowedFd<'_>,
        len: u64,
        reach: Reach,
    ) -> Result<Option<u64>, DownReason> {
        let handle = self.next_buffer;
        if !self.announce(&Frame::Buffer { handle, len, reach }, memory)? {
            return Ok(None);
        }
        self.next_buffer += 1;
        Ok(Some(handle))
    }

    /// Whether the peer has exported this buffer.
    pub(super) fn has_buffer(&self, handle: u64) -> bool {
        self.buffers.contains_key(&handle)
    }

    /// Takes a buffer that the peer exported.
    pub(super) fn take_over(&mut self, handle: u64) -> Option<Handed> {
        self.buffers.remove(&handle)
    }

    /// Receives and handles at most one frame.
    pub(super) fn step(&mut self, mask: u32) -> Result<Step, DownReason> {
        let (bytes, mut descriptors, lost) = match socket::receive(&self.socket)? {
            Received::Nothing => return Ok(Step::Idle),
            Received::Packet { bytes, descriptors, lost } => (bytes, descriptors, lost),
        };
        let outcome = Frame::decode(&bytes).map_err(|error| error.to_string()).and_then(|frame| {
            if frame.descriptors() != descriptors.len() + usize::from(lost) {
                return Err(format!("{} descriptors with {frame:?}", descriptors.len()));
            }
            Ok(frame)
        });
        self.handle(outcome.map_err(DownReason::Violation)?, &mut descriptors, mask)
    }

    /// Checks each field of `frame` before it is used. Takes the descriptors that are kept out of `descriptors`.
    fn handle(
        &mut self,
        frame: Frame,
        descriptors: &mut Vec<Foreign>,
        mask: u32,
    ) -> Result<Step, DownReason> {
        if let Frame::Hello { version, translations } = frame {
            return self.greeted(version, &translations, descriptors, mask);
        }
        let Some(peer) = &self.peer else { return Err(violation(format!("{frame:?} before hello"))) };
        match frame {
            Frame::Hello { .. } => {}
            Frame::Wake { number } => peer.saw(number),
            Frame::Translation { window, len } => self.translated(window, len)?,
            Frame::Segment { window, range } => self.carved(window, range, descriptors)?,
            Frame::Freed { window, range } => self.gone(window, range)?,
            Frame::Waker { handle } => self.announced_waker(handle, descriptors)?,
            Frame::Buffer { handle, len, reach } => self.handed_over(handle, len, reach, descriptors)?,
        }
        Ok(Step::Handled)
    }

    fn greeted(
        &mut self,
        version: u32,
        translations: &[u64],
        descriptors: &[Foreign],
        mask: u32,
    ) -> Result<Step, DownReason> {
        if version != VERSION {
            return Err(DownReason::Version { ours: VERSION, theirs: version });
        }
        if self.peer.is_some() {
            return Err(violation("second hello".into()));
        }
        if translations.len() > MAX_WINDOWS {
            return Err(violation(format!("{} windows", translations.len())));
        }
        for len in translations {
            check_len(*len, MAX_WINDOW).map_err(|error| violation(error.to_string()))?;
        }
        let fd = descriptors
            .first()
            .ok_or(DownReason::System { what: "register page", errno: rustix::io::Errno::MFILE })?;
        let peer = PeerPage::map(fd).map_err(violation)?;
        peer.set_mask(mask);
        self.windows = translations.iter().map(|len| Translation::new(*len)).collect();
        self.peer = Some(peer);
        Ok(Step::Up)
    }

    fn translated(&mut self, window: u32, len: u64) -> Result<(), DownReason> {
        check_len(len, MAX_WINDOW).map_err(|error| violation(error.to_string()))?;
        let place = self.window(window)?;
        if place.count() != 0 {
            return Err(violation(format!("new translation of window {window} with segments")));
        }
        *place = Translation::new(len);
        Ok(())
    }

    fn carved(
        &mut self,
        window: u32,
        range: SegmentRange,
        descriptors: &mut Vec<Foreign>,
    ) -> Result<(), DownReason> {
        if self.announced >= MAX_ANNOUNCED {
            return Err(violation("too many segments".into()));
        }
        self.window(window)?.check(range).map_err(|error| violation(error.to_string()))?;
        if let Some(fd) = descriptors.last() {
            check_segment(fd, range.len).map_err(violation)?;
        }
        let kept = self.hold(descriptors);
        self.window(window)?.insert(range, kept).map_err(|error| violation(error.to_string()))?;
        self.announced += 1;
        Ok(())
    }

    fn gone(&mut self, window: u32, range: SegmentRange) -> Result<(), DownReason> {
        let gone = self.window(window)?.remove(range);
        drop(gone.ok_or_else(|| violation(format!("freed {range:?}, which was not carved")))?);
        self.announced -= 1;
        if let (Some(freed), Ok(window)) = (&mut self.freed, usize::try_from(window)) {
            freed.push((window, range));
        }
        Ok(())
    }

    fn announced_waker(&mut self, handle: u64, descriptors: &mut Vec<Foreign>) -> Result<(), DownReason> {
        if self.wakers.len() >= MAX_ANNOUNCED {
            return Err(violation("too many wakers".into()));
        }
        if self.wakers.contains_key(&handle) {
            return Err(violation(format!("waker {handle} twice")));
        }
        if let Some(fd) = descriptors.last() {
            wake::check(fd).map_err(|_| violation("this is not a waker's socket".into()))?;
        }
        let kept = self.hold(descriptors);
        self.wakers.insert(handle, kept);
        Ok(())
    }

    fn handed_over(
        &mut self,
        handle: u64,
        len: u64,
        reach: Reach,
        descriptors: &mut Vec<Foreign>,
    ) -> Result<(), DownReason> {
        if self.buffers.len() >= MAX_HANDED {
            return Err(violation("too many buffers".into()));
        }
        if self.buffers.contains_key(&handle) {
            return Err(violation(format!("buffer {handle} twice")));
        }
        if let Some(fd) = descriptors.last() {
            check_buffer(fd, len, reach).map_err(|error| violation(error.to_string()))?;
        }
        let memory = self.hold(descriptors);
        self.buffers.insert(handle, Handed { memory, len, reach });
        Ok(())
    }

    /// The descriptor, if there is one, it passes its check, and there is room for it.
    fn hold(&self, descriptors: &mut Vec<Foreign>) -> Option<Kept> {
        self.share.keep(descriptors.pop()?)
    }

    fn window(&mut self, window: u32) -> Result<&mut Translation<Option<Kept>>, DownReason> {
        let place = usize::try_from(window).ok().and_then(|window| self.windows.get_mut(window));
        place.ok_or_else(|| violation(format!("no window {window}")))
    }
}

fn violation(what: String) -> DownReason {
    DownReason::Violation(what)
}

fn system_error(error: &crosslane_shm::MapError) -> rustix::io::Errno {
    match error {
        crosslane_shm::MapError::System(errno) => *errno,
        _ => rustix::io::Errno::INVAL,
    }
}

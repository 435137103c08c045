//! The trait.

use crosslane_shm::{Load, MapError, Segment, Store};
use crosslane_wire::{Caching, Reach, SegmentRange};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;
use thiserror::Error;

/// Scratchpads of every port.
pub const SCRATCHPADS: usize = 16;
/// Doorbells of every port.
pub const DOORBELLS: u32 = 32;

/// The object type of ports whose memory is mapped into the daemon.
pub type Mapped = dyn Port<Inbound = crosslane_shm::Inbound, Outbound = crosslane_shm::Outbound>;

/// One end of a cable.
///
/// No call blocks, but for [`Self::carve_outbound`], [`Self::map_outbound`], [`Self::import_waker`] and
/// [`Self::take_over`], which may wait a few milliseconds for what the peer has announced. Nothing that a peer does makes a call panic.
///
/// **Lives.** Everything that was carved, mapped or handed over belongs to one life of the link, from
/// [`Event::LinkUp`] to [`Event::LinkDown`]. At the end of it the port forgets all of it: ranges are free again,
/// handles are void. Views and descriptors that were given out stay mapped but lead to memory that nobody else uses.
/// Translations ([`Self::set_inbound`]) and masks stay.
pub trait Port: Send {
    /// A view of our own memory, into which the peer stores.
    type Inbound: Load + Send + 'static;
    /// A view of the peer's memory: stores only.
    type Outbound: Store + Send + 'static;

    /// What this port has.
    fn info(&self) -> Info;

    /// Descriptors that the peer has this port hold.
    fn held(&self) -> usize {
        0
    }

    /// Readable when [`Self::poll_event`] may have something: for poll or epoll, level-triggered.
    fn event_fd(&self) -> BorrowedFd<'_>;

    /// The next event, if any. Never blocks. To be called until it returns `None` whenever [`Self::event_fd`] is
    /// readable or [`Self::timeout`] has passed.
    fn poll_event(&mut self) -> Option<Event>;

    /// How long from now until [`Self::poll_event`] wants to be called even if nothing happens; `None` = not at all.
    fn timeout(&self) -> Option<Duration>;

    /// Whether the link is up. Turns true when [`Event::LinkUp`] is *returned* and false when [`Event::LinkDown`] is.
    fn is_up(&self) -> bool;

    /// Switches the link off, and on again, as a bridge's registers do. While it is off no link comes up, whatever the
    /// peer does; the peer sees the cable go. On at first.
    fn set_link(&mut self, on: bool);

    /// Why the link is not up, for people; `None` if it is, or if no peer has ever been there.
    fn down_reason(&self) -> Option<DownReason>;

    /// Stores into a scratchpad of the peer's. Lost if the link is down. Panics if there is no such scratchpad.
    fn write_peer_scratchpad(&self, index: usize, value: u32);

    /// Loads one of our own scratchpads, which the peer writes; 0 until it has. May hold a word of an earlier life on
    /// ports whose hardware keeps it. Panics if there is no such scratchpad.
    fn read_scratchpad(&self, index: usize) -> u32;

    /// Sets doorbell bits at the peer. Everything stored before, in scratchpads, and in windows up to the last store
    /// fence, is visible to the peer when it sees the bits. Lost if the link is down. Bits that must wait for stores may go
    /// on their way in a later [`Self::poll_event`] of this port.
    fn ring_peer_doorbell(&self, bits: u32);

    /// Masks doorbells: a masked one makes no [`Event::Doorbell`], and stays pending. None is masked at first.
    fn mask_doorbells(&mut self, bits: u32);

    /// Unmasks doorbells; pending ones make an event now.
    fn unmask_doorbells(&mut self, bits: u32);

    /// Gives an inbound window its memory of `len` bytes (the NTB's "translation"); 0 takes it away. Allowed at any
    /// time, and kept over all lives of the link.
    ///
    /// # Errors
    /// [`PortError::NoWindow`]; [`PortError::Range`] if `len` is not page-aligned or over the window's size;
    /// [`PortError::Busy`] while segments are carved from the window.
    fn set_inbound(&mut self, window: usize, len: u64) -> Result<(), PortError>;

    /// Puts fresh zeroed memory, which no peer has ever seen, behind a range of an inbound window, and returns it as a
    /// segment of exactly that length, for loads. Which ranges to use is the caller's choice.
    ///
    /// # Errors
    /// [`PortError::Down`], [`PortError::NoWindow`], [`PortError::Range`], [`PortError::Overlap`] with a range carved
    /// before and not freed, [`PortError::Full`] (also while the peer does not read: it must know of the segment before
    /// it hears of it by another way), [`PortError::Unsupported`] if `info().descriptors` is false, or a
    /// system error.
    fn carve_inbound(&mut self, window: usize, range: SegmentRange) -> Result<Segment, PortError>;

    /// As [`Self::carve_inbound`], with memory that another port of this host gave out in place of fresh memory: what the peer
    /// stores there goes to whoever has that one, and this host holds no copy. Only between ports that are memory of this
    /// machine ([`Info::is_shared_memory`]).
    ///
    /// # Errors
    /// As there, and [`PortError::Range`] if the segment is not a whole one of the range's length.
    fn pass_inbound(
        &mut self,
        _window: usize,
        _range: SegmentRange,
        _segment: &Segment,
    ) -> Result<(), PortError> {
        Err(PortError::Unsupported("pass a segment on"))
    }

    /// Takes the memory behind a carved range away from the peer; later stores through it reach nobody. The very
    /// range that was carved, or nothing happens.
    fn free_inbound(&mut self, window: usize, range: SegmentRange);

    /// The peer's memory behind a range of the outbound window, as a segment that a program can map: that range and no
    /// more, for stores. The peer must have carved exactly this range. Once for each time that it does: the port keeps nothing
    /// of what it gave out, so that a stream costs the daemon no descriptor more than those it holds itself.
    ///
    /// # Errors
    /// [`PortError::NotThere`] if the peer has not carved it, within a few milliseconds; [`PortError::Down`],
    /// [`PortError::NoWindow`], [`PortError::Unsupported`], or a system error, also if it was given out before.
    fn carve_outbound(&mut self, window: usize, range: SegmentRange) -> Result<Segment, PortError>;

    /// As a segment that was given out by [`Self::carve_outbound`] and is queued stores
    /// ([`MemoryKind::Queue`](crosslane_wire::MemoryKind::Queue)), with a queue that nobody else has: for a
    /// daemon that stores where a program did, which may keep the queue's lock.
    ///
    /// # Errors
    /// [`PortError::Unsupported`] where stores are not queued.
    fn queue_beside(&mut self, _window: usize, _range: SegmentRange) -> Result<Segment, PortError> {
        Err(PortError::Unsupported("give out a queue of stores"))
    }

    /// As [`Self::carve_inbound`], mapped for the daemon itself. Same errors, but never `Unsupported`.
    fn map_inbound(&mut self, window: usize, range: SegmentRange) -> Result<Self::Inbound, PortError>;

    /// As [`Self::carve_outbound`], mapped for the daemon itself. Same errors, but never `Unsupported`.
    fn map_outbound(&mut self, window: usize, range: SegmentRange) -> Result<Self::Outbound, PortError>;

    /// Hands a waker of one of our programs' wake events to the peer, and returns the handle under which it takes it, once.
    ///
    /// # Errors
    /// [`PortError::Down`], [`PortError::Unsupported`] on ports that cannot (then the daemons ring for the
    /// programs), [`PortError::Full`], or a system error.
    fn export_waker(&mut self, waker: BorrowedFd<'_>) -> Result<u64, PortError>;

    /// Takes the socket of a waker under a handle of the peer's ([`crosslane_shm::wake::Waker`]); `None` if this port has
    /// no descriptors to give, or no room for one: ring by way of the daemons then. A wake by it never blocks.
    ///
    /// # Errors
    /// [`PortError::NotThere`] if the peer handed over no such waker, within a few milliseconds; [`PortError::Down`].
    fn import_waker(&mut self, handle: u64) -> Result<Option<OwnedFd>, PortError>;

    /// Lets the peer have a program's buffer of `len` bytes ([`crosslane_wire::buffer`]), and returns the handle under which
    /// it takes it, once.
    ///
    /// # Errors
    /// [`PortError::Down`], [`PortError::Unsupported`] where both sides do not share memory, [`PortError::Full`], or a
    /// system error.
    fn hand_over(&mut self, buffer: BorrowedFd<'_>, len: u64, reach: Reach) -> Result<u64, PortError>;

    /// Takes the buffer under a handle of the peer's. It has been checked to be one: of this length, never resized, and to
    /// be reached so.
    ///
    /// # Errors
    /// [`PortError::NotThere`] if the peer handed over no such buffer, within a few milliseconds; [`PortError::Down`], or a
    /// system error.
    fn take_over(&mut self, handle: u64, len: u64, reach: Reach) -> Result<OwnedFd, PortError>;
}

/// What a port has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Windows in each direction, 2 or more.
    pub windows: usize,
    /// Size of each window: the most that a translation can have, bytes.
    pub window_bytes: u64,
    /// Scratchpads, 16 or more.
    pub scratchpads: usize,
    /// Doorbells, 16 or more.
    pub doorbells: u32,
    /// Whether segments and wakers can be had as descriptors.
    pub descriptors: bool,
    /// How the processor treats stores to a window.
    pub caching: Caching,
    /// How long a posted write may be under way, ns; 0 where memory is coherent.
    pub posted_ns: u32,
    /// Whether what is under way is lost when the link goes down.
    pub lossy: bool,
}

impl Info {
    /// Whether what this port gives out is ordinary memory of this machine, which any of its processes can share.
    pub const fn is_shared_memory(&self) -> bool {
        self.descriptors && matches!(self.caching, Caching::WriteBack) && self.posted_ns == 0 && !self.lossy
    }
}

/// What happens on a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A peer is there, a new life of the link begins. Doorbells of before are forgotten.
    LinkUp,
    /// The peer is gone, or was thrown out. Always after a `LinkUp`.
    LinkDown(DownReason),
    /// These doorbells, none of them masked, were rung since they were last reported; never 0.
    Doorbell(u32),
}

/// Why a link is down.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DownReason {
    /// The peer's process ended, closed its port, or switched the link off.
    #[error("the peer is gone")]
    PeerGone,
    /// The cable carries nothing any more.
    #[error("the cable is lost")]
    Cable,
    /// We switched it off ([`Port::set_link`]).
    #[error("the link is switched off")]
    Off,
    /// The peer speaks another version of the port's own protocol.
    #[error("the peer speaks version {theirs} of the port protocol, we speak {ours}")]
    Version {
        /// Our version.
        ours: u32,
        /// The peer's.
        theirs: u32,
    },
    /// The peer did what it must not.
    #[error("the peer broke the rules: {0}")]
    Violation(String),
    /// The peer no longer takes what it is sent.
    #[error("the peer does not answer")]
    Stuck,
    /// There is nobody at the other end of the cable yet.
    #[error("nobody at {0}")]
    Nobody(String),
    /// A system call failed.
    #[error("{what}: {errno}")]
    System {
        /// What was tried.
        what: &'static str,
        /// How it failed.
        errno: rustix::io::Errno,
    },
}

/// Why a port refused.
#[derive(Debug, Error)]
pub enum PortError {
    /// The link is down.
    #[error("the link is down")]
    Down,
    /// The peer has put nothing there (yet).
    #[error("the peer has put nothing there")]
    NotThere,
    /// There is no window of this number.
    #[error("no window {0}")]
    NoWindow(usize),
    /// The range is empty, not page-aligned, or leaves the window.
    #[error("range {offset:#x}+{len:#x} does not fit the window's {window:#x} bytes")]
    Range {
        /// Distance from the window's start, bytes.
        offset: u64,
        /// Length, bytes.
        len: u64,
        /// What the window has, bytes.
        window: u64,
    },
    /// The range overlaps one that was carved and not freed.
    #[error("range {offset:#x}+{len:#x} overlaps one that is in use")]
    Overlap {
        /// Distance from the window's start, bytes.
        offset: u64,
        /// Length, bytes.
        len: u64,
    },
    /// The window still has segments.
    #[error("window {0} still has segments")]
    Busy(usize),
    /// The port has no more room for segments or wakers.
    #[error("no room for more {0}")]
    Full(&'static str),
    /// This back end cannot do that.
    #[error("this port cannot {0}")]
    Unsupported(&'static str),
    /// A delay is out of bounds.
    #[error("a delay of {0} to {1} ns: the first is at most the second, and that is at most {max}", max = crate::posted::DELAY_MAX)]
    Delay(u32, u32),
    /// Another process listens at the cable's path.
    #[error(
        "another daemon already listens at {0}: of the two ends of a cable one has side `a`, the other side `b`"
    )]
    InUse(String),
    /// A segment could not be made or mapped.
    #[error(transparent)]
    Map(#[from] MapError),
    /// A system call failed.
    #[error("{what}: {errno}")]
    System {
        /// What was tried.
        what: String,
        /// How it failed.
        errno: rustix::io::Errno,
    },
}

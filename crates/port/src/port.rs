//! The trait.

use crosslane_pcie::Cable;
use crosslane_shm::wake::FarWaker;
use crosslane_shm::{Load, MapError, Segment, Store};
use crosslane_wire::{Caching, Reach, SegmentRange};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;
use thiserror::Error;

/// Number of scratchpads of every port.
pub const SCRATCHPADS: usize = 16;
/// Number of doorbells of every port.
pub const DOORBELLS: u32 = 32;

/// The object type of ports whose memory is mapped into the daemon.
pub type Mapped = dyn Port<Inbound = crosslane_shm::Inbound, Outbound = crosslane_shm::Outbound>;

/// One end of a cable.
///
/// No call blocks, except [`Self::carve_outbound`], [`Self::map_outbound`], [`Self::import_waker`] and [`Self::take_over`],
/// which may wait a few milliseconds for what the peer has announced. Nothing that a peer does makes a call panic.
///
/// **Lives.** Everything that was carved, mapped or exported belongs to one life of the link, from [`Event::LinkUp`] to
/// [`Event::LinkDown`]. At its end the port forgets all of it: ranges are free again, handles are invalid. Views and descriptors that
/// were given out stay mapped, but lead to memory that no other process uses. Translations ([`Self::set_inbound`]) and masks stay.
pub trait Port: Send {
    /// A view of this host's memory, into which the peer stores.
    type Inbound: Load + Send + 'static;
    /// A view of the peer's memory: stores only.
    type Outbound: Store + Send + 'static;

    /// Properties of this port.
    fn info(&self) -> Info;

    /// Number of descriptors that this port holds for the peer.
    fn held(&self) -> usize {
        0
    }

    /// Readable when [`Self::poll_event`] may have an event: for poll or epoll, level-triggered.
    fn event_fd(&self) -> BorrowedFd<'_>;

    /// The next event, if any. Never blocks. To be called until it returns `None` whenever [`Self::event_fd`] is
    /// readable or [`Self::timeout`] has passed.
    fn poll_event(&mut self) -> Option<Event>;

    /// Time until [`Self::poll_event`] must be called even if nothing happens; `None` = never.
    fn timeout(&self) -> Option<Duration>;

    /// Whether the link is up. Turns true when [`Event::LinkUp`] is *returned* and false when [`Event::LinkDown`] is.
    fn is_up(&self) -> bool;

    /// Switches the link off or on, as a bridge's registers do. While it is off no link comes up, whatever the peer does;
    /// the peer sees the cable go down. Initially on.
    fn set_link(&mut self, on: bool);

    /// Why the link is not up, for display; `None` if it is up, or no peer has ever been there.
    fn down_reason(&self) -> Option<DownReason>;

    /// Stores into a scratchpad of the peer. Lost if the link is down. Panics if there is no such scratchpad.
    fn write_peer_scratchpad(&self, index: usize, value: u32);

    /// Loads one of this port's scratchpads, which the peer writes; 0 until then. On ports whose hardware keeps
    /// scratchpads it may contain a word of an earlier life. Panics if there is no such scratchpad.
    fn read_scratchpad(&self, index: usize) -> u32;

    /// Sets doorbell bits at the peer. When the peer sees the bits, it can see all earlier stores to scratchpads, and all
    /// stores to windows up to the last store fence. Lost if the link is down. Bits that must wait for stores may be sent
    /// in a later [`Self::poll_event`] of this port.
    fn ring_peer_doorbell(&self, bits: u32);

    /// Masks doorbells: a masked one makes no [`Event::Doorbell`], and stays pending. Initially none is masked.
    fn mask_doorbells(&mut self, bits: u32);

    /// Unmasks doorbells; pending ones make an event now.
    fn unmask_doorbells(&mut self, bits: u32);

    /// Gives an inbound window memory of `len` bytes (the NTB's "translation"); 0 takes it away. Allowed at any time, and
    /// kept over all lives of the link.
    ///
    /// # Errors
    /// [`PortError::NoWindow`]; [`PortError::Range`] if `len` is not page-aligned or over the window's size;
    /// [`PortError::Busy`] while segments are carved from the window.
    fn set_inbound(&mut self, window: usize, len: u64) -> Result<(), PortError>;

    /// Puts fresh zeroed memory, which no peer has ever seen, behind a range of an inbound window, and returns it as a
    /// segment of exactly that length, for loads. The caller chooses the range.
    ///
    /// # Errors
    /// [`PortError::Down`], [`PortError::NoWindow`], [`PortError::Range`], [`PortError::Overlap`] with a range that is
    /// carved and not freed, [`PortError::Full`] (also while the peer does not read: the port must tell it of the segment
    /// before a daemon does), [`PortError::Unsupported`] if `info().descriptors` is false, or a system error.
    fn carve_inbound(&mut self, window: usize, range: SegmentRange) -> Result<Segment, PortError>;

    /// As [`Self::carve_inbound`], with memory that another port of this host gave out, in place of fresh memory: the
    /// peer's stores go to the owner of that memory, and this host has no copy. Only between ports whose memory is memory
    /// of this machine ([`Info::is_shared_memory`]).
    ///
    /// # Errors
    /// As for [`Self::carve_inbound`], and [`PortError::Range`] if the segment is not a whole one of the range's length.
    fn pass_inbound(
        &mut self,
        _window: usize,
        _range: SegmentRange,
        _segment: &Segment,
    ) -> Result<(), PortError> {
        Err(PortError::Unsupported("pass a segment on"))
    }

    /// Takes the memory behind a carved range away from the peer; later stores through it have no effect. The range must
    /// be exactly the carved one, otherwise nothing happens.
    fn free_inbound(&mut self, window: usize, range: SegmentRange);

    /// Whether a range that was freed can be carved again. Not yet on ports on which the peer has to let go of it first, as far as
    /// [`Self::poll_event`] has seen; how long that takes is the peer's affair.
    fn is_free(&self, _window: usize, _range: SegmentRange) -> bool {
        true
    }

    /// The peer's memory behind a range of the outbound window, as a segment that a program can map: exactly that range,
    /// for stores. The peer must have carved exactly this range. Works once for each time that the peer carves it: the
    /// port keeps nothing of what it gave out, so a stream costs the daemon only the descriptors that it holds itself.
    ///
    /// # Errors
    /// [`PortError::NotThere`] if the peer has not carved it within a few milliseconds; [`PortError::Down`],
    /// [`PortError::NoWindow`], [`PortError::Unsupported`], or a system error, also if it was given out before.
    fn carve_outbound(&mut self, window: usize, range: SegmentRange) -> Result<Segment, PortError>;

    /// A further queue for a segment of queued stores ([`MemoryKind::Queue`](crosslane_wire::MemoryKind::Queue)) that
    /// [`Self::carve_outbound`] gave out. No other process has this queue: for a daemon that stores in place of a
    /// program, which may have kept the lock of its own queue.
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

    /// How well the port keeps the times of the cable that it behaves like; `None` where stores land when they land.
    fn pacing(&self) -> Option<Pacing> {
        None
    }

    /// Exports a waker of one of this host's wake events, whose wakes contain `word`, to the peer, and returns the handle under which the
    /// peer imports it.
    ///
    /// # Errors
    /// [`PortError::Down`], [`PortError::Unsupported`] on ports that cannot (then the daemons wake for the programs),
    /// [`PortError::Full`], or a system error.
    fn export_waker(&mut self, waker: BorrowedFd<'_>, word: u64) -> Result<u64, PortError>;

    /// The wake event whose wakes contain `word` is no more: nothing needs to be kept for wakers of it.
    fn forget_wakers(&mut self, _word: u64) {}

    /// Imports a waker under a handle of the peer, of a wake event whose wakes contain `word`; `None` if this port has
    /// no wakers, or no room for one: then the daemons forward wakes. A wake by a descriptor never blocks; one
    /// by a queue waits for room as a store does.
    ///
    /// # Errors
    /// [`PortError::NotThere`] if the peer exported no such waker within a few milliseconds; [`PortError::Down`].
    fn import_waker(&mut self, handle: u64, word: u64) -> Result<Option<FarWaker>, PortError>;

    /// Exports a program's buffer of `len` bytes ([`crosslane_wire::buffer`]) to the peer, and returns the handle under
    /// which the peer imports it, once.
    ///
    /// # Errors
    /// [`PortError::Down`], [`PortError::Unsupported`] where both sides do not share memory, [`PortError::Full`], or a
    /// system error.
    fn hand_over(&mut self, _buffer: BorrowedFd<'_>, _len: u64, _reach: Reach) -> Result<u64, PortError> {
        Err(PortError::Unsupported("share buffers"))
    }

    /// Imports the buffer under a handle of the peer, after a check that it is one: of this length, with seals against
    /// resizing, and with this reach.
    ///
    /// # Errors
    /// [`PortError::NotThere`] if the peer exported no such buffer within a few milliseconds; [`PortError::Down`], or a system error.
    fn take_over(&mut self, _handle: u64, _len: u64, _reach: Reach) -> Result<OwnedFd, PortError> {
        Err(PortError::Unsupported("share buffers"))
    }
}

/// Properties of a port.
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
    /// Whether segments and wakers are available as descriptors.
    pub descriptors: bool,
    /// How the processor treats stores to a window.
    pub caching: Caching,
    /// How long a posted write may be under way, ns; 0 where memory is coherent.
    pub posted_ns: u32,
    /// Whether stores that are under way are lost when the link goes down.
    pub lossy: bool,
}

impl Info {
    /// Whether the port's memory is ordinary memory of this machine, which any of its processes can share.
    pub const fn is_shared_memory(&self) -> bool {
        self.descriptors && matches!(self.caching, Caching::WriteBack) && self.posted_ns == 0 && !self.lossy
    }
}

/// How well a port keeps the times of the cable that it behaves like: what it has sent since it was made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pacing {
    /// The cable.
    pub cable: Cable,
    /// Bytes that have landed.
    pub landed_bytes: u64,
    /// Those of them that landed more than [`Pacing::LATE`] behind their time: this machine did not keep up.
    pub late_bytes: u64,
    /// The most that any of them was behind its time, ns.
    pub worst_ns: u64,
    /// Bytes of the other direction whose acknowledgements went in between.
    pub acknowledged_bytes: u64,
}

impl Pacing {
    /// How far behind its time a store may land before it counts as late, ns: a sleep of the lander ends up to some 100 us late.
    pub const LATE: u64 = 250_000;

    /// The part of the bytes that landed late.
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    pub fn late(&self) -> f64 {
        self.late_bytes as f64 / self.landed_bytes.max(1) as f64
    }
}

/// An event of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A peer is there, and a new life of the link begins. Earlier doorbells are dropped.
    LinkUp,
    /// The peer is gone, or this port has dropped it. Always after a `LinkUp`.
    LinkDown(DownReason),
    /// These doorbells, none of them masked, were rung since the last report; never 0.
    Doorbell(u32),
}

/// Why a link is down.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DownReason {
    /// The peer's process ended, closed its port, or switched the link off.
    #[error("the peer is gone")]
    PeerGone,
    /// The cable is interrupted.
    #[error("the cable is lost")]
    Cable,
    /// This host switched the link off ([`Port::set_link`]).
    #[error("the link is switched off")]
    Off,
    /// The peer speaks another version of the port's own protocol.
    #[error("the peer speaks version {theirs} of the port protocol, we speak {ours}")]
    Version {
        /// This side's version.
        ours: u32,
        /// The peer's.
        theirs: u32,
    },
    /// The peer broke the port's protocol.
    #[error("the peer broke the rules: {0}")]
    Violation(String),
    /// The peer does not read the frames that it is sent any more.
    #[error("the peer does not answer")]
    Stuck,
    /// No process is at the other end of the cable yet.
    #[error("nobody at {0}")]
    Nobody(String),
    /// A system call failed.
    #[error("{what}: {errno}")]
    System {
        /// The call.
        what: &'static str,
        /// Its errno.
        errno: rustix::io::Errno,
    },
}

/// Why a port refused a call.
#[derive(Debug, Error)]
pub enum PortError {
    /// The link is down.
    #[error("the link is down")]
    Down,
    /// The peer has announced nothing there (yet).
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
        /// Length of the window, bytes.
        window: u64,
    },
    /// The window has less memory than what uses it needs.
    #[error("a window of {window} bytes is too short: at least {least} are needed")]
    WindowTooShort {
        /// Length of the window, bytes.
        window: u64,
        /// The shortest that will do, bytes.
        least: u64,
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
    /// This back end does not support the call.
    #[error("this port cannot {0}")]
    Unsupported(&'static str),
    /// A delay is outside its bounds.
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
        /// The call.
        what: String,
        /// Its errno.
        errno: rustix::io::Errno,
    },
}

impl PortError {
    /// What a failed call `what` is.
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(rustix::io::Errno) -> Self {
        let what = what.into();
        move |errno| Self::System { what, errno }
    }
}

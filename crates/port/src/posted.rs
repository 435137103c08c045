//! A soft port whose stores land later, as posted writes of hardware do: for tests of all code that depends on that.
//!
//! ```text
//!   daemon, programs --stores--> queue of each segment --lander, after a delay--> the peer's memory
//!   daemon --doorbells, scratchpads--> ticket behind all earlier stores --lander--> daemon --> the soft port
//!   programs, pumps --wakes--> entry of their queue --lander, behind all earlier stores--> the sleeper's socket
//! ```
//! A process that maps a segment of the peer stores into a queue ([`crosslane_shm::queue`]), from which a thread of this
//! port, the *lander*, makes stores visible. A store that has not landed is visible to no process, and lost when the link
//! goes down. Each end delays its own stores: so both ends of a cable should be of this kind. [`Inside`] is the same for
//! segments between programs of one host, without a cable.

mod inside;
mod lander;
mod pace;
mod schedule;
mod wakers;

use crate::port::SCRATCHPADS;
use crate::soft::{SoftConfig, SoftPort, poller};
use crate::{DownReason, Event, Info, Pacing, Port, PortError};
use crosslane_pcie::{Cable, Direction, Limits, NANOSECOND};
use crosslane_shm::wake::FarWaker;
use crosslane_shm::{Inbound, Outbound, Segment, queue};
use crosslane_wire::{Caching, MemoryKind, SegmentInfo, SegmentRange};
pub use inside::{Inside, Lane};
use lander::Lander;
use pace::{Drawn, Pace, Timed};
use schedule::Ticket;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Longest delay, ns: far less than a store waits for room.
pub const DELAY_MAX: u32 = 100_000_000;
/// How late the lander may be on a busy machine, ns.
pub const LATE: u32 = 20_000_000;

/// How long stores of a saturating writer may be under way on a cable with a rate: as long as a lander that sleeps may be late.
const DEPTH: Duration = Duration::from_micros(250);

/// A posted cable: a soft cable, and how stores land on it.
#[derive(Clone, Debug, PartialEq)]
pub struct PostedConfig {
    /// The cable underneath.
    pub soft: SoftConfig,
    /// How stores land.
    pub stores: Stores,
}

/// How long stores are under way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Timing {
    /// Between these bounds, ns, drawn for each, unless the order of stores makes it longer; at most [`DELAY_MAX`].
    Drawn(u32, u32),
    /// As long as on this cable, as far as the lander keeps up with it.
    Cable(Cable),
}

/// How stores land on a posted cable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stores {
    /// How long they are under way.
    pub timing: Timing,
    /// Seed of the random delays, or of the cable's errors.
    pub seed: u64,
    /// Whether stores are combined, and land in any order between two store fences.
    pub combine: bool,
}

impl Stores {
    /// Upper bound of the time that a store is under way, ns: the lander is a thread, and may have to wait for a processor.
    fn longest(&self) -> u32 {
        let own = match self.timing {
            Timing::Drawn(_, most) => most,
            // Behind all that a queue may hold.
            Timing::Cable(cable) => {
                let landed = Direction::new(cable, self.seed).send_all(0, queue::LEN).landed;
                u32::try_from(landed / NANOSECOND).unwrap_or(u32::MAX)
            }
        };
        own.saturating_add(LATE)
    }

    /// Starts the thread that makes stores land.
    fn lander(&self) -> Result<Lander, PortError> {
        let pace: Box<dyn Pace> = match self.timing {
            Timing::Drawn(least, most) if least > most || most > DELAY_MAX => {
                return Err(PortError::Delay(least, most));
            }
            Timing::Drawn(least, most) => Box::new(Drawn::new(self.seed, (least, most))),
            Timing::Cable(cable) => Box::new(Timed::new(cable, self.seed)),
        };
        Lander::new(pace, self.combine)
    }

    /// A queue of stores to the peer. On a cable with a rate, what is behind the first stores of the last quarter of a millisecond waits in its writer,
    /// as a processor waits for a link's credit: else a word behind 256 KB, such as that its writer sleeps, would be as late as they.
    fn queue(&self) -> Result<OwnedFd, PortError> {
        Ok(match self.timing {
            Timing::Drawn(..) => queue::create()?,
            Timing::Cable(cable) => {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "it is cut to what a queue has"
                )]
                let depth = (Limits(&cable).payload(false) * DEPTH.as_secs_f64()) as u32;
                queue::create_with(depth)?
            }
        })
    }

    fn caching(&self) -> Caching {
        if self.combine { Caching::WriteCombining } else { Caching::WriteBack }
    }

    /// The segment of `len` bytes that is stored to through this queue. `lossy`: stores under way are lost when the cable goes down.
    fn queued(&self, fd: OwnedFd, len: u64, lossy: bool) -> Segment {
        let (memory, caching, posted_ns) = (MemoryKind::Queue, self.caching(), self.longest());
        Segment { fd, info: SegmentInfo { memory, caching, posted_ns, lossy, ..SegmentInfo::sealed(len) } }
    }
}

/// A posted port.
#[derive(Debug)]
pub struct PostedPort {
    inner: SoftPort,
    stores: Stores,
    epoll: OwnedFd,
    lander: Lander,
}

impl PostedPort {
    /// The side that listens: see [`SoftPort::listen`].
    ///
    /// # Errors
    /// As there, and [`PortError::Delay`].
    pub fn listen(config: PostedConfig) -> Result<Self, PortError> {
        Self::new(SoftPort::listen(config.soft)?, config.stores)
    }

    /// The side that connects: see [`SoftPort::connect`].
    ///
    /// # Errors
    /// As there, and [`PortError::Delay`].
    pub fn connect(config: PostedConfig) -> Result<Self, PortError> {
        Self::new(SoftPort::connect(config.soft)?, config.stores)
    }

    fn new(inner: SoftPort, stores: Stores) -> Result<Self, PortError> {
        let lander = stores.lander()?;
        let epoll = poller([inner.event_fd(), lander.report()])?;
        Ok(Self { inner, stores, epoll, lander })
    }

    /// The description of a segment that is stored to through a queue.
    fn posted(&self, info: SegmentInfo) -> SegmentInfo {
        SegmentInfo { posted_ns: self.stores.longest(), lossy: true, ..info }
    }

    /// Executes the tickets behind stores that have landed by now.
    fn deliver(&self) {
        for ticket in self.lander.landed() {
            match ticket {
                Ticket::Doorbell(bits) => self.inner.ring_peer_doorbell(bits),
                Ticket::Scratchpad { index, value } => self.inner.write_peer_scratchpad(index, value),
            }
        }
    }

    /// Stores to ranges that the peer has freed do not land any more.
    fn forget_freed(&mut self) {
        self.inner.take_freed().into_iter().for_each(|place| self.lander.remove(place));
    }
}

impl Port for PostedPort {
    type Inbound = Inbound;
    type Outbound = Outbound;

    fn info(&self) -> Info {
        Info {
            caching: self.stores.caching(),
            posted_ns: self.stores.longest(),
            lossy: true,
            ..self.inner.info()
        }
    }

    fn pacing(&self) -> Option<Pacing> {
        match self.stores.timing {
            Timing::Drawn(..) => None,
            Timing::Cable(cable) => Some(self.lander.pacing(cable)),
        }
    }

    fn held(&self) -> usize {
        self.inner.held()
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.deliver();
        let event = self.inner.poll_event();
        self.forget_freed();
        match (&event, self.stores.timing) {
            (Some(Event::LinkDown(_)), _) => self.lander.reset(),
            (Some(Event::LinkUp), Timing::Cable(_)) => {
                self.inner.carried().into_iter().for_each(|carried| self.lander.link(carried));
            }
            _ => {}
        }
        event
    }

    fn timeout(&self) -> Option<Duration> {
        self.inner.timeout()
    }

    fn is_up(&self) -> bool {
        self.inner.is_up()
    }

    fn set_link(&mut self, on: bool) {
        if !on {
            self.lander.reset();
        }
        self.inner.set_link(on);
    }

    fn down_reason(&self) -> Option<DownReason> {
        self.inner.down_reason()
    }

    fn write_peer_scratchpad(&self, index: usize, value: u32) {
        assert!(index < SCRATCHPADS, "no scratchpad {index}");
        if self.is_up() {
            self.lander.put(Ticket::Scratchpad { index, value });
        }
    }

    fn read_scratchpad(&self, index: usize) -> u32 {
        self.inner.read_scratchpad(index)
    }

    fn ring_peer_doorbell(&self, bits: u32) {
        if self.is_up() {
            self.lander.put(Ticket::Doorbell(bits));
        }
    }

    fn mask_doorbells(&mut self, bits: u32) {
        self.inner.mask_doorbells(bits);
    }

    fn unmask_doorbells(&mut self, bits: u32) {
        self.inner.unmask_doorbells(bits);
    }

    fn set_inbound(&mut self, window: usize, len: u64) -> Result<(), PortError> {
        self.inner.set_inbound(window, len)
    }

    fn carve_inbound(&mut self, window: usize, range: SegmentRange) -> Result<Segment, PortError> {
        let segment = self.inner.carve_inbound(window, range)?;
        let info = self.posted(segment.info);
        Ok(Segment { info, ..segment })
    }

    fn free_inbound(&mut self, window: usize, range: SegmentRange) {
        self.inner.free_inbound(window, range);
    }

    fn carve_outbound(&mut self, window: usize, range: SegmentRange) -> Result<Segment, PortError> {
        let memory = self.inner.carve_outbound(window, range)?;
        // Before the new queue is added: the range may have been freed and carved again.
        self.forget_freed();
        let fd = self.stores.queue()?;
        self.lander.add((window, range), queue::Reader::new(&fd, &memory)?);
        Ok(self.stores.queued(fd, range.len, true))
    }

    fn queue_beside(&mut self, window: usize, range: SegmentRange) -> Result<Segment, PortError> {
        let fd = self.stores.queue()?;
        let copy = rustix::io::fcntl_dupfd_cloexec(&fd, 0);
        self.lander.add_beside((window, range), copy.map_err(PortError::system("duplicate a queue"))?);
        Ok(self.stores.queued(fd, range.len, true))
    }

    fn map_inbound(&mut self, window: usize, range: SegmentRange) -> Result<Inbound, PortError> {
        self.inner.map_inbound(window, range)
    }

    fn map_outbound(&mut self, window: usize, range: SegmentRange) -> Result<Outbound, PortError> {
        let queue = self.carve_outbound(window, range)?;
        Ok(Outbound::map(&queue)?)
    }

    fn export_waker(&mut self, waker: BorrowedFd<'_>, word: u64) -> Result<u64, PortError> {
        self.inner.export_waker(waker, word)
    }

    /// The lander keeps the descriptor, and wakes behind the stores before which a program asked for it.
    fn import_waker(&mut self, handle: u64, word: u64) -> Result<Option<FarWaker>, PortError> {
        let waker = self.inner.take_waker(handle, word)?;
        Ok(waker.and_then(|waker| self.lander.wakers().keep(waker)).map(FarWaker::Queued))
    }
}

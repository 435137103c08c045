//! Two ports inside one process, under virtual time, with faults drawn from a seed.
//!
//! A [`SimCable`] is the cable and the clock; [`SimCable::plug`] returns a port of one side. Everything happens inside calls: time passes
//! only in [`SimCable::advance`]. Posted writes (to windows, scratchpads, doorbells) of one side arrive in the order in which they left,
//! each after a delay; with `combine` stores to windows leave in any order between two store fences, so that a missing fence shows.
//!
//! There are no descriptors: only the daemon maps segments, and the daemons forward wakes of programs.

mod memory;
mod posted;
mod world;

use crate::port::{DOORBELLS, SCRATCHPADS};
use crate::translation::{Translation, check_len};
use crate::{DownReason, Event, Info, Port, PortError};
use crosslane_shm::wake::FarWaker;
use crosslane_shm::{Load, Segment, Store};
use crosslane_wire::{Caching, SegmentRange};
use memory::Memory;
use posted::Write;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use world::World;

/// How a simulated cable behaves. The default has no faults and no delay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimConfig {
    /// Windows of each port.
    pub windows: usize,
    /// Largest translation, bytes.
    pub window_bytes: u64,
    /// Shortest time that a posted write is under way, ns.
    pub delay_ns: u64,
    /// Longest random addition to that time, ns.
    pub jitter_ns: u64,
    /// Whether stores to windows are combined, and leave in any order between two store fences.
    pub combine: bool,
    /// Time from the presence of both ends to link-up, ns.
    pub train_ns: u64,
    /// Whether scratchpads keep their words over the link's lives, as on real bridges.
    pub stale_scratchpads: bool,
    /// Whether doorbells that were under way when the link went down arrive in the next life.
    pub stale_doorbells: bool,
    /// Mean time between random cuts of the cable, ns.
    pub mean_ns_between_cuts: Option<u64>,
    /// Longest random cut, ns.
    pub longest_cut_ns: u64,
    /// Mean time between random doorbells without a cause, ns.
    pub mean_ns_between_false_doorbells: Option<u64>,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            windows: 2,
            window_bytes: 64 << 30,
            delay_ns: 0,
            jitter_ns: 0,
            combine: false,
            train_ns: 0,
            stale_scratchpads: false,
            stale_doorbells: false,
            mean_ns_between_cuts: None,
            longest_cut_ns: 0,
            mean_ns_between_false_doorbells: None,
        }
    }
}

/// One of the two sides of the cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// One.
    A,
    /// The other.
    B,
}

impl Side {
    /// The opposite side.
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    fn index(self) -> usize {
        match self {
            Self::A => 0,
            Self::B => 1,
        }
    }
}

/// The cable and its clock.
#[derive(Clone, Debug)]
pub struct SimCable(Arc<Mutex<World>>);

impl SimCable {
    /// A cable without ports, at time 0. The same seed and the same calls give the same course of events.
    pub fn new(seed: u64, config: SimConfig) -> Self {
        Self(Arc::new(Mutex::new(World::new(seed, config))))
    }

    /// Plugs a fresh port in, as when a daemon starts. An earlier port on this side is dead.
    ///
    /// # Errors
    /// No descriptor for [`Port::event_fd`].
    pub fn plug(&self, side: Side) -> Result<SimPort, PortError> {
        let notify = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(PortError::system("eventfd"))?;
        let notify = Arc::new(notify);
        let number = lock(&self.0).plug(side, notify.clone());
        Ok(SimPort { world: self.0.clone(), side, number, notify })
    }

    /// Lets `ns` of time pass.
    pub fn advance(&self, ns: u64) {
        lock(&self.0).advance(ns);
    }

    /// The time, ns.
    pub fn now(&self) -> u64 {
        lock(&self.0).now
    }

    /// When the next event happens by itself, ns; `None` if nothing is under way.
    pub fn next_due(&self) -> Option<u64> {
        lock(&self.0).next_due()
    }

    /// Cuts the cable until [`Self::mend`]; all writes under way are lost.
    pub fn cut(&self) {
        lock(&self.0).cut(None);
    }

    /// The cable is whole again.
    pub fn mend(&self) {
        lock(&self.0).mend();
    }

    /// Rings doorbells of `side` without a cause.
    pub fn stale_doorbell(&self, side: Side, bits: u32) {
        lock(&self.0).ring(side, bits);
    }

    /// The side opposite of `side` writes rubbish into all of `side`'s scratchpads, doorbells and segments.
    pub fn rubbish(&self, side: Side) {
        lock(&self.0).rubbish(side);
    }
}

/// A simulated port. Dropping it acts as its daemon's death.
#[derive(Debug)]
pub struct SimPort {
    world: Arc<Mutex<World>>,
    side: Side,
    number: u64,
    notify: Arc<OwnedFd>,
}

/// A segment of this port's memory, for loads.
#[derive(Debug)]
pub struct SimInbound(Arc<Memory>);

/// A segment of the peer's memory: stores only.
#[derive(Debug)]
pub struct SimOutbound {
    world: Arc<Mutex<World>>,
    side: Side,
    memory: Arc<Memory>,
}

impl SimPort {
    /// The world, if this port is the one that is plugged in.
    fn world(&self) -> Option<MutexGuard<'_, World>> {
        let world = lock(&self.world);
        (world.ends[self.side.index()].plugged == self.number).then_some(world)
    }

    fn live(&self) -> Result<MutexGuard<'_, World>, PortError> {
        let up = |world: &MutexGuard<'_, World>| world.up && world.ends[self.side.index()].reported_up;
        self.world().filter(up).ok_or(PortError::Down)
    }
}

impl Drop for SimPort {
    fn drop(&mut self) {
        if let Some(mut world) = self.world() {
            world.unplug(self.side);
        }
    }
}

impl Port for SimPort {
    type Inbound = SimInbound;
    type Outbound = SimOutbound;

    fn info(&self) -> Info {
        let config = &lock(&self.world).config;
        let posted = config.delay_ns.saturating_add(config.jitter_ns);
        Info {
            windows: config.windows,
            window_bytes: config.window_bytes,
            scratchpads: SCRATCHPADS,
            doorbells: DOORBELLS,
            descriptors: false,
            caching: if config.combine { Caching::WriteCombining } else { Caching::WriteBack },
            posted_ns: u32::try_from(posted).unwrap_or(u32::MAX),
            lossy: posted > 0,
        }
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.notify.as_fd()
    }

    fn poll_event(&mut self) -> Option<Event> {
        let mut world = self.world()?;
        let end = &mut world.ends[self.side.index()];
        if let Some(event) = end.events.pop_front() {
            end.reported_up = event == Event::LinkUp;
            return Some(event);
        }
        let bits = end.pending & !end.mask;
        end.pending &= end.mask;
        if bits == 0 {
            let _ = rustix::io::read(&self.notify, &mut [0; 8]);
        }
        (bits != 0).then_some(Event::Doorbell(bits))
    }

    fn timeout(&self) -> Option<Duration> {
        None
    }

    fn is_up(&self) -> bool {
        self.world().is_some_and(|world| world.ends[self.side.index()].reported_up)
    }

    fn set_link(&mut self, on: bool) {
        if let Some(mut world) = self.world() {
            world.set_link(self.side, on);
        }
    }

    fn down_reason(&self) -> Option<DownReason> {
        self.world()?.ends[self.side.index()].reason.clone()
    }

    fn write_peer_scratchpad(&self, index: usize, value: u32) {
        assert!(index < SCRATCHPADS, "no scratchpad {index}");
        if let Some(mut world) = self.world() {
            world.post(self.side, Write::Scratchpad { index, value });
        }
    }

    fn read_scratchpad(&self, index: usize) -> u32 {
        assert!(index < SCRATCHPADS, "no scratchpad {index}");
        self.world().map_or(0, |world| world.ends[self.side.index()].scratchpads[index])
    }

    fn ring_peer_doorbell(&self, bits: u32) {
        if let Some(mut world) = self.world().filter(|_| bits != 0) {
            world.post(self.side, Write::Doorbell(bits));
        }
    }

    fn mask_doorbells(&mut self, bits: u32) {
        if let Some(mut world) = self.world() {
            world.ends[self.side.index()].mask |= bits;
        }
    }

    fn unmask_doorbells(&mut self, bits: u32) {
        if let Some(mut world) = self.world() {
            world.ends[self.side.index()].mask &= !bits;
            world.ring(self.side, 0);
        }
    }

    fn set_inbound(&mut self, window: usize, len: u64) -> Result<(), PortError> {
        let Some(mut world) = self.world() else { return Err(PortError::Down) };
        check_len(len, world.config.window_bytes)?;
        let windows = &mut world.ends[self.side.index()].windows;
        let place = windows.get_mut(window).ok_or(PortError::NoWindow(window))?;
        if place.count() != 0 {
            return Err(PortError::Busy(window));
        }
        *place = Translation::new(len);
        Ok(())
    }

    fn carve_inbound(&mut self, _window: usize, _range: SegmentRange) -> Result<Segment, PortError> {
        Err(PortError::Unsupported("carve descriptors"))
    }

    fn free_inbound(&mut self, window: usize, range: SegmentRange) {
        if let Some(mut world) = self.world() {
            let windows = &mut world.ends[self.side.index()].windows;
            if let Some(memory) = windows.get_mut(window).and_then(|window| window.remove(range)) {
                memory.free();
            }
        }
    }

    fn carve_outbound(&mut self, _window: usize, _range: SegmentRange) -> Result<Segment, PortError> {
        Err(PortError::Unsupported("carve descriptors"))
    }

    fn map_inbound(&mut self, window: usize, range: SegmentRange) -> Result<SimInbound, PortError> {
        let mut world = self.live()?;
        let windows = &mut world.ends[self.side.index()].windows;
        let place = windows.get_mut(window).ok_or(PortError::NoWindow(window))?;
        place.check(range)?;
        let memory = Arc::new(Memory::new(range.len));
        place.insert(range, memory.clone())?;
        Ok(SimInbound(memory))
    }

    fn map_outbound(&mut self, window: usize, range: SegmentRange) -> Result<SimOutbound, PortError> {
        let world = self.live()?;
        let windows = &world.ends[self.side.other().index()].windows;
        let place = windows.get(window).ok_or(PortError::NoWindow(window))?;
        let memory = place.get(range).ok_or(PortError::NotThere)?.clone();
        Ok(SimOutbound { world: self.world.clone(), side: self.side, memory })
    }

    fn export_waker(&mut self, _waker: BorrowedFd<'_>, _word: u64) -> Result<u64, PortError> {
        Err(PortError::Unsupported("export wakers"))
    }

    fn import_waker(&mut self, _handle: u64, _word: u64) -> Result<Option<FarWaker>, PortError> {
        self.live().map(|_| None)
    }
}

impl Load for SimInbound {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn load_u32(&self, offset: usize) -> u32 {
        assert_eq!(offset % 4, 0);
        let [a, b, c, d, e, f, g, h] = self.0.load(offset).to_le_bytes();
        u32::from_le_bytes(if offset.is_multiple_of(8) { [a, b, c, d] } else { [e, f, g, h] })
    }

    fn load_u64(&self, offset: usize) -> u64 {
        assert_eq!(offset % 8, 0);
        self.0.load(offset)
    }

    fn read(&self, offset: usize, target: &mut [u8]) {
        self.0.read(offset, target);
    }
}

impl SimOutbound {
    fn store(&self, offset: usize, bytes: &[u8]) {
        let inside = offset <= self.memory.len() && bytes.len() <= self.memory.len() - offset;
        assert!(inside, "offset outside the segment");
        lock(&self.world).store(self.side, &self.memory, offset, bytes);
    }
}

impl Store for SimOutbound {
    fn len(&self) -> usize {
        self.memory.len()
    }

    fn store_u32(&self, offset: usize, value: u32) {
        assert_eq!(offset % 4, 0);
        self.store(offset, &value.to_le_bytes());
    }

    fn store_u64(&self, offset: usize, value: u64) {
        assert_eq!(offset % 8, 0);
        self.store(offset, &value.to_le_bytes());
    }

    fn write(&self, offset: usize, source: &[u8]) {
        self.store(offset, source);
    }

    fn store_fence(&self) {
        lock(&self.world).fence(self.side);
    }

    fn fence(&self) {
        self.store_fence();
    }
}

/// A panic elsewhere in a test does not make the world unusable.
fn lock(world: &Arc<Mutex<World>>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

//! A soft port whose holder also reaches what a daemon's port keeps to itself: the memory that it stores into, the
//! neighbour's scratchpads and doorbells.

use crosslane_port::soft::SoftPort;
use crosslane_port::{DownReason, Event, Info, Port, PortError};
use crosslane_shm::wake::FarWaker;
use crosslane_shm::{Inbound, Outbound, Segment};
use crosslane_wire::{Reach, SegmentRange};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The port of a cable, shared with the test.
pub(crate) struct Tap {
    port: Arc<Mutex<SoftPort>>,
    events: OwnedFd,
    mapped: Arc<Mutex<Vec<Outbound>>>,
}

/// The test's hold on it.
#[derive(Clone)]
pub(crate) struct Grip {
    port: Arc<Mutex<SoftPort>>,
    mapped: Arc<Mutex<Vec<Outbound>>>,
}

/// A port and the test's hold on it.
pub(crate) fn tap(port: SoftPort) -> (Tap, Grip) {
    let events = port.event_fd().try_clone_to_owned().unwrap();
    let (port, mapped) = (Arc::new(Mutex::new(port)), Arc::default());
    let grip = Grip { port: Arc::clone(&port), mapped: Arc::clone(&mapped) };
    (Tap { port, events, mapped }, grip)
}

impl Grip {
    /// What this life's channels are stored into, in the order in which they were mapped.
    pub(crate) fn mapped(&self) -> MutexGuard<'_, Vec<Outbound>> {
        self.mapped.lock().unwrap()
    }

    /// The port.
    pub(crate) fn port(&self) -> MutexGuard<'_, SoftPort> {
        self.port.lock().unwrap()
    }
}

impl Tap {
    fn port(&self) -> MutexGuard<'_, SoftPort> {
        self.port.lock().unwrap()
    }
}

impl Port for Tap {
    type Inbound = Inbound;
    type Outbound = Outbound;

    fn info(&self) -> Info {
        self.port().info()
    }
    fn event_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
    fn poll_event(&mut self) -> Option<Event> {
        let event = self.port().poll_event();
        if matches!(event, Some(Event::LinkDown(_))) {
            self.mapped.lock().unwrap().clear();
        }
        event
    }
    fn timeout(&self) -> Option<Duration> {
        self.port().timeout()
    }
    fn is_up(&self) -> bool {
        self.port().is_up()
    }
    fn set_link(&mut self, on: bool) {
        self.port().set_link(on);
    }
    fn down_reason(&self) -> Option<DownReason> {
        self.port().down_reason()
    }
    fn write_peer_scratchpad(&self, index: usize, value: u32) {
        self.port().write_peer_scratchpad(index, value);
    }
    fn read_scratchpad(&self, index: usize) -> u32 {
        self.port().read_scratchpad(index)
    }
    fn ring_peer_doorbell(&self, bits: u32) {
        self.port().ring_peer_doorbell(bits);
    }
    fn mask_doorbells(&mut self, bits: u32) {
        self.port().mask_doorbells(bits);
    }
    fn unmask_doorbells(&mut self, bits: u32) {
        self.port().unmask_doorbells(bits);
    }
    fn set_inbound(&mut self, window: usize, len: u64) -> Result<(), PortError> {
        self.port().set_inbound(window, len)
    }
    fn pass_inbound(
        &mut self,
        window: usize,
        range: SegmentRange,
        segment: &Segment,
    ) -> Result<(), PortError> {
        self.port().pass_inbound(window, range, segment)
    }

    fn carve_inbound(&mut self, window: usize, range: SegmentRange) -> Result<Segment, PortError> {
        self.port().carve_inbound(window, range)
    }
    fn free_inbound(&mut self, window: usize, range: SegmentRange) {
        self.port().free_inbound(window, range);
    }
    fn is_free(&self, window: usize, range: SegmentRange) -> bool {
        self.port().is_free(window, range)
    }
    fn carve_outbound(&mut self, window: usize, range: SegmentRange) -> Result<Segment, PortError> {
        self.port().carve_outbound(window, range)
    }
    fn map_inbound(&mut self, window: usize, range: SegmentRange) -> Result<Inbound, PortError> {
        self.port().map_inbound(window, range)
    }
    fn map_outbound(&mut self, window: usize, range: SegmentRange) -> Result<Outbound, PortError> {
        let ours = self.port().map_outbound(window, range)?;
        self.mapped.lock().unwrap().push(ours);
        self.port().map_outbound(window, range)
    }
    fn export_waker(&mut self, waker: BorrowedFd<'_>, word: u64) -> Result<u64, PortError> {
        self.port().export_waker(waker, word)
    }
    fn import_waker(&mut self, handle: u64, word: u64) -> Result<Option<FarWaker>, PortError> {
        self.port().import_waker(handle, word)
    }
    fn hand_over(&mut self, buffer: BorrowedFd<'_>, len: u64, reach: Reach) -> Result<u64, PortError> {
        self.port().hand_over(buffer, len, reach)
    }
    fn take_over(&mut self, handle: u64, len: u64, reach: Reach) -> Result<OwnedFd, PortError> {
        self.port().take_over(handle, len, reach)
    }
}

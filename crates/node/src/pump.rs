//! stub
use crosslane_shm::{Inbound, Outbound};
use crosslane_wire::{TransitId, WaiterId};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;
#[derive(Debug)]
pub struct Leg {
    pub inbound: Inbound,
    pub outbound: Outbound,
    pub ring_max: u64,
    pub rx_key: u64,
    pub tx_key: u64,
    pub is_end: bool,
    pub posted: bool,
}
pub enum Command {
    Add { transit: TransitId, waiter: WaiterId, legs: [Leg; 2] },
    Drain { transit: TransitId, leg: usize },
    Remove { transit: TransitId },
    Bell { transit: TransitId, leg: usize, waiter: WaiterId, bell: Option<OwnedFd> },
}
pub enum Report {
    Ring { transit: TransitId, leg: usize, waiter: WaiterId },
    Dry { transit: TransitId, leg: usize },
    Removed { transit: TransitId },
    Violated { transit: TransitId, leg: usize, why: String },
}
pub struct Pumps;
impl Pumps {
    pub fn new(_: usize, _: Duration) -> Self {
        Self
    }
    pub fn command(&mut self, _: Command) {}
    pub fn poll_report(&mut self) -> Option<Report> {
        None
    }
    pub fn bell_of(&self, _: TransitId, _: WaiterId) -> Option<BorrowedFd<'_>> {
        None
    }
    pub fn waiter_for(&self, _: TransitId) -> Option<WaiterId> {
        None
    }
    pub fn traffic(&self, _: TransitId) -> [u64; 2] {
        [0; 2]
    }
}

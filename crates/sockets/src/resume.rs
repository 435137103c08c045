//! What the ends of streams ask of the daemon: segments when their circuit has moved, and buffers.

use crate::{consent, process};
use crosslane_client::offload::Offload;
use crosslane_client::segments::Next;
use crosslane_client::{Daemon, NoBuffer, NoNext};
use crosslane_shm::FarBuffer;
use crosslane_shm::buffer::Located;
use crosslane_wire::local::Request;
use crosslane_wire::{BufferId, CircuitId, WaiterId};

/// The daemon, by this process's session.
#[derive(Debug)]
pub struct BySession;

/// The one that all ends ask.
pub static DAEMON: BySession = BySession;

impl Daemon for BySession {
    fn next(&self, circuit: CircuitId, token: u64, generation: u32) -> Result<Next, NoNext> {
        if process::is_reentered() {
            return Err(NoNext::Reentered);
        }
        let answer = process::with_any_session(|session, _| session.resume(circuit, token, generation));
        answer.flatten().ok_or(NoNext::Never)
    }

    fn ring(&self, circuit: CircuitId, token: u64, waiter: WaiterId) -> bool {
        process::tell(&Request::Ring { circuit, token, waiter })
    }

    fn broken_off(&self, circuit: CircuitId, token: u64, why: &str) {
        process::tell(&Request::Violated { circuit, token, text: why.to_owned() });
    }

    fn grow(&self, circuit: CircuitId, token: u64, generation: u32) {
        process::tell(&Request::Grow { circuit, token, generation });
    }

    fn share(&self, circuit: CircuitId, token: u64, located: &Located) -> Result<(), NoBuffer> {
        if process::is_reentered() {
            return Err(NoBuffer::Later);
        }
        process::with_session(|session, _| session.share(circuit, token, located)).ok_or(NoBuffer::Never)
    }

    fn far_buffer(&self, circuit: CircuitId, token: u64, buffer: BufferId) -> Result<FarBuffer, NoBuffer> {
        if process::is_reentered() {
            return Err(NoBuffer::Later);
        }
        let answer = process::with_session(|session, _| session.far_buffer(circuit, token, buffer));
        answer.flatten().ok_or(NoBuffer::Never)
    }

    fn offload(&self) -> Option<&'static Offload> {
        consent::present()
    }

    fn lend(&self, located: &Located) -> u32 {
        process::with_session(|session, _| session.lend(located)).unwrap_or(0)
    }

    fn engage(&self, circuit: CircuitId, token: u64, generation: u32) -> u32 {
        process::with_session(|session, _| session.engage(circuit, token, generation)).unwrap_or(0)
    }
}

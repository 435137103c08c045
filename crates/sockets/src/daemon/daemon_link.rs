//! What the ends of streams ask of the daemon: segments when their circuit has moved, and buffers.

use crate::daemon::{offload_session, process};
use crosslane_client::offload::Offload;
use crosslane_client::segments::Next;
use crosslane_client::{BufferError, Daemon, ResumeError};
use crosslane_shm::FarBuffer;
use crosslane_shm::buffer::Located;
use crosslane_shm::wake::Waker;
use crosslane_wire::local::Request;
use crosslane_wire::{BufferId, CircuitId, WaiterId};

/// The daemon, by this process's session.
#[derive(Debug)]
pub struct BySession;

/// The one that all ends ask.
pub static DAEMON: BySession = BySession;

impl Daemon for BySession {
    fn next(&self, circuit: CircuitId, token: u64, generation: u32) -> Result<Next, ResumeError> {
        if process::is_reentered() {
            return Err(ResumeError::Reentered);
        }
        let answer = process::with_any_session(|session, _| session.resume(circuit, token, generation));
        answer.flatten().ok_or(ResumeError::Never)
    }

    fn wake(&self, circuit: CircuitId, token: u64, waiter: WaiterId) -> bool {
        process::tell(&Request::Wake { circuit, token, waiter })
    }

    fn waker(&self, circuit: CircuitId, token: u64, waiter: WaiterId) -> Option<Waker> {
        process::with_session(|session, _| session.waker(circuit, token, waiter)).flatten()
    }

    fn broken_off(&self, circuit: CircuitId, token: u64, why: &str) {
        process::tell(&Request::Violated { circuit, token, text: why.to_owned() });
    }

    fn grow(&self, circuit: CircuitId, token: u64, generation: u32) {
        process::tell(&Request::Grow { circuit, token, generation });
    }

    fn export_buffer(&self, circuit: CircuitId, token: u64, located: &Located) -> Result<(), BufferError> {
        if process::is_reentered() {
            return Err(BufferError::Later);
        }
        process::with_session(|session, _| session.export_buffer(circuit, token, located))
            .ok_or(BufferError::Never)
    }

    fn far_buffer(&self, circuit: CircuitId, token: u64, buffer: BufferId) -> Result<FarBuffer, BufferError> {
        if process::is_reentered() {
            return Err(BufferError::Later);
        }
        let answer = process::with_session(|session, _| session.far_buffer(circuit, token, buffer));
        answer.flatten().ok_or(BufferError::Never)
    }

    fn offload(&self) -> Option<&'static Offload> {
        offload_session::present()
    }

    fn register_buffer(&self, located: &Located) -> u32 {
        process::with_session(|session, _| session.register_buffer(located)).unwrap_or(0)
    }

    fn register_rings(&self, circuit: CircuitId, token: u64, generation: u32) -> u32 {
        process::with_session(|session, _| session.register_rings(circuit, token, generation)).unwrap_or(0)
    }
}

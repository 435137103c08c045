//! Streams whose circuit has moved: what their ends ask of the daemon.

use crate::process;
use crosslane_client::slices::Next;
use crosslane_client::{Daemon, NoNext};
use crosslane_wire::local::Request;
use crosslane_wire::{CircuitId, WaiterId};

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
        let answer = process::with_session(|session, _| session.resume(circuit, token, generation));
        answer.flatten().ok_or(NoNext::Never)
    }

    fn ring(&self, circuit: CircuitId, waiter: WaiterId) -> bool {
        process::tell(&Request::Ring { circuit, waiter })
    }
}

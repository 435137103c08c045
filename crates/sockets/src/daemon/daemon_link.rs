//! How the ends of streams reach the daemon.

use crate::daemon::{offload_session, process, waiters};
use crosslane_client::link::Linked;
use crosslane_client::offload::Offload;
use crosslane_client::{CircuitEnd, Session, SessionError};
use crosslane_wire::WaiterId;
use crosslane_wire::local::Request;

/// The daemon, by this process's session.
#[derive(Debug)]
pub struct BySession;

/// The one that all ends ask.
pub static DAEMON: BySession = BySession;

impl Linked for BySession {
    fn ask<T>(&self, work: impl Fn(&Session) -> Result<T, SessionError>) -> Option<T> {
        process::with_session(work)
    }

    fn ask_surely<T>(&self, work: impl Fn(&Session) -> Result<T, SessionError>) -> Option<T> {
        process::with_any_session(work)
    }

    fn tell(&self, request: &Request) -> bool {
        process::tell(request)
    }

    fn is_reentered(&self) -> bool {
        process::is_reentered()
    }

    fn ring(&self, end: &CircuitEnd, waiter: WaiterId) {
        waiters::ring(end, waiter);
    }

    fn engine(&self) -> Option<&'static Offload> {
        offload_session::present()
    }
}

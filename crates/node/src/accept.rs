//! An `Accept` whose answer waits for its stream's handshake.

use crate::proof::Cookie;
use crosslane_fabric::circuit::Scope;
use crosslane_wire::Tuple;
use std::time::Duration;

/// Pauses between two looks for it.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(20)];

/// An `Accept` that was not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepting {
    /// The connection.
    pub tuple: Tuple,
    /// The accepted socket.
    pub socket: Cookie,
    /// Its network namespace.
    pub scope: Scope,
    /// When it was asked first.
    pub since: Duration,
    pause: Duration,
    /// When it is looked at again.
    pub until: Duration,
}

impl Accepting {
    /// Asked for now, and not looked at yet.
    pub(crate) fn new(tuple: Tuple, socket: Cookie, scope: Scope, now: Duration) -> Self {
        Self { tuple, socket, scope, since: now, pause: PAUSES[0], until: now }
    }

    /// Looked at again after a pause, which becomes longer.
    pub(crate) fn later(self, now: Duration) -> Self {
        Self { pause: (self.pause * 2).min(PAUSES[1]), until: now + self.pause, ..self }
    }
}

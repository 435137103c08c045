//! What the daemon charges, and what it says when somebody has had enough.

use super::{Charge, Denied, Kind, Payer, Purpose};
use crate::host::Host;
use crate::session::SessionId;

/// Descriptors of a session: its socket.
const SESSION_FDS: u64 = 1;

impl Host {
    /// Charges; that somebody may not have so much is logged once in a while.
    ///
    /// # Errors
    /// He may not.
    pub(crate) fn charge(
        &mut self,
        payer: Payer,
        kind: Kind,
        amount: u64,
        purpose: Purpose,
    ) -> Result<Charge, Denied> {
        let outcome = self.ledger.charge(payer, kind, amount, purpose);
        if let Err(denied) = &outcome {
            self.say_denied(*denied);
        }
        outcome
    }

    /// Charges something new to the user of a session; for the program why it cannot be.
    pub(crate) fn charge_session(
        &mut self,
        session: SessionId,
        kind: Kind,
        amount: u64,
    ) -> Result<Charge, String> {
        let uid = self.sessions.get(&session).ok_or_else(|| "no session".to_owned())?.uid;
        self.charge(Payer::User(uid), kind, amount, Purpose::New).map_err(|denied| denied.to_string())
    }

    /// What a new session of a user takes.
    pub(crate) fn admit_session(&mut self, uid: u32) -> Result<Vec<Charge>, Denied> {
        let user = Payer::User(uid);
        Ok(vec![
            self.charge(user, Kind::Sessions, 1, Purpose::New)?,
            self.charge(user, Kind::Descriptors, SESSION_FDS, Purpose::New)?,
        ])
    }

    fn say_denied(&mut self, denied: Denied) {
        if self.said.is_due(denied.payer, denied.kind, self.now) {
            tracing::warn!(%denied, "quota is used up");
        }
    }
}

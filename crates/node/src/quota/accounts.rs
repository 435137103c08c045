//! What this daemon's users and neighbours have, how much they ask for, and what was said of it.

use super::{Charge, Denied, Kind, Ledger, May, Payer, Purpose, Rates, Said, Settings};
use crate::session_id::SessionId;
use crosslane_wire::PortId;
use crosslane_wire::control::Refusal;
use std::time::Duration;

/// Descriptors of a session: its socket.
const SESSION_FDS: u64 = 1;
/// Mappings of a session: its status page, and its arena.
const SESSION_MAPPINGS: u64 = 2;
/// Descriptors of one circuit of an end: both segments.
const SEGMENTS_FDS: u64 = 2;

/// The ledger, the rates, and the log's share of both. Times are on the daemon's clock.
#[derive(Debug)]
pub struct Accounts {
    ledger: Ledger,
    /// Descriptors that each neighbour has this host hold, by port.
    neighbours: Vec<Charge>,
    rates: Rates,
    said: Said,
}

impl Accounts {
    /// Nobody has anything yet; there are neighbours at these ports, which are numbered from 0.
    pub fn new(ledger: Ledger, ports: impl IntoIterator<Item = PortId>) -> Self {
        let charge = |port| ledger.charge_always(Payer::Neighbour(port), Kind::Descriptors, 0);
        let neighbours = ports.into_iter().map(charge).collect();
        Self { neighbours, ledger, rates: Rates::default(), said: Said::default() }
    }

    /// The books, for those who charge by themselves.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Charges; that somebody may not have so much is logged once in a while.
    ///
    /// # Errors
    /// He may not.
    pub fn charge(
        &mut self,
        payer: Payer,
        kind: Kind,
        amount: u64,
        purpose: Purpose,
        now: Duration,
    ) -> Result<Charge, Denied> {
        let outcome = self.ledger.charge(payer, kind, amount, purpose);
        if let Err(denied) = &outcome
            && self.said.is_due(denied.payer, denied.kind, now)
        {
            tracing::warn!(uid = denied.payer.user(), port = denied.payer.port(), %denied, "quota is used up");
        }
        outcome
    }

    /// As [`Self::charge`], for those to whom a refusal is all the same.
    ///
    /// # Errors
    /// The payer may not have so much; of an operator, there is no more.
    pub fn charge_or_refuse(
        &mut self,
        payer: Payer,
        kind: Kind,
        amount: u64,
        purpose: Purpose,
        now: Duration,
    ) -> Result<Charge, Refusal> {
        let operator = self.ledger.settings().is_operator(payer);
        self.charge(payer, kind, amount, purpose, now).map_err(|_| match operator {
            // All that there is.
            true => Refusal::NoMemory,
            false => Refusal::Quota,
        })
    }

    /// What a new session of a user takes.
    ///
    /// # Errors
    /// He may have no more.
    pub fn charge_new_session(&mut self, uid: u32, now: Duration) -> Result<Vec<Charge>, Denied> {
        let parts =
            [(Kind::Sessions, 1), (Kind::Descriptors, SESSION_FDS), (Kind::Mappings, SESSION_MAPPINGS)];
        let charge = |(kind, amount)| self.charge(Payer::User(uid), kind, amount, Purpose::New, now);
        parts.into_iter().map(charge).collect()
    }

    /// An end that is asked for, which no program has accepted yet if `pending`.
    ///
    /// # Errors
    /// The payer may have no more.
    pub fn charge_end(&mut self, payer: Payer, pending: bool, now: Duration) -> Result<Vec<Charge>, Refusal> {
        let kinds = [Kind::Circuits].into_iter().chain(pending.then_some(Kind::Pending));
        kinds.map(|kind| self.charge_or_refuse(payer, kind, 1, Purpose::New, now)).collect()
    }

    /// The segments of one circuit of an end, of which the daemon makes one, of `len` bytes.
    ///
    /// # Errors
    /// The payer may have no more.
    pub fn charge_segments(
        &mut self,
        payer: Payer,
        len: u64,
        purpose: Purpose,
        now: Duration,
    ) -> Result<Vec<Charge>, Refusal> {
        let parts = [(Kind::Stored, SEGMENTS_FDS), (Kind::Memory, len)];
        let charge = |(kind, amount)| self.charge_or_refuse(payer, kind, amount, purpose, now);
        parts.into_iter().map(charge).collect()
    }

    /// Whether the user who would accept a connection may have one more.
    ///
    /// # Errors
    /// He may not.
    pub fn check_accepter(&mut self, uid: u32, now: Duration) -> Result<(), Refusal> {
        for (kind, amount) in [(Kind::Circuits, 1), (Kind::Stored, SEGMENTS_FDS)] {
            self.charge_or_refuse(Payer::User(uid), kind, amount, Purpose::New, now)?;
        }
        Ok(())
    }

    /// The neighbour at a port has this host hold so many descriptors besides its circuits' segments: it bounds that itself, and
    /// here it is counted.
    pub fn note_held(&mut self, port: PortId, descriptors: u64) {
        if let Some(charge) = self.neighbours.get_mut(usize::from(port.0)) {
            charge.set(descriptors);
        }
    }

    /// Whether a session of a user is served now. One that shall rest is named by [`Self::begin_turn`] later.
    pub fn may(&mut self, uid: u32, session: SessionId, now: Duration) -> May {
        self.rates.may(uid, session, now)
    }

    /// A user was served what costs so much, in requests of the smallest kind.
    pub fn spend(&mut self, uid: u32, cost: u64, now: Duration) {
        let rate = self.ledger.settings().requests(uid);
        self.rates.spend(uid, cost, rate, now);
    }

    /// A turn of the engine begins: sessions that have rested long enough.
    pub fn begin_turn(&mut self, now: Duration) -> Vec<SessionId> {
        self.rates.begin_turn(now);
        self.rates.wake(now)
    }

    /// When the first one has.
    pub fn deadline(&self) -> Option<Duration> {
        self.rates.deadline()
    }

    /// Charges by other settings from now on.
    pub fn use_settings(&self, settings: Settings) {
        self.ledger.use_settings(settings);
    }
}

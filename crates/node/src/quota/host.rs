//! What the daemon charges, and what it says when somebody has had enough.

use super::{Charge, Denied, Kind, May, Payer, Purpose};
use crate::cable::Cable;
use crate::host::Host;
use crate::session::SessionId;
use crosslane_port::PortError;
use crosslane_shm::Segment;
use crosslane_wire::control::Refusal;
use crosslane_wire::local::Plain;
use crosslane_wire::{CircuitId, PortId, SegmentRange};

/// Descriptors of a session: its socket.
const SESSION_FDS: u64 = 1;
/// Mappings of a session: its life page, and its arena.
const SESSION_MAPPINGS: u64 = 2;
/// Descriptors of one circuit of an end: both segments.
const SEGMENTS_FDS: u64 = 2;

/// Inbound memory of a port that was given out.
#[derive(Debug)]
pub(crate) struct Carved {
    /// Where it lies.
    pub(crate) range: SegmentRange,
    /// What is paid for it, as long as it is given out.
    pub(crate) window: Charge,
    /// The memory.
    pub(crate) memory: Segment,
}

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
            self.charge(user, Kind::Mappings, SESSION_MAPPINGS, Purpose::New)?,
        ])
    }

    /// Who pays for what a session asks for.
    pub(crate) fn payer_of(&self, session: SessionId) -> Option<Payer> {
        self.sessions.get(&session).map(|session| Payer::User(session.uid))
    }

    /// An end that is asked for, which no program has accepted yet if `pending`.
    pub(crate) fn charge_end(&mut self, payer: Payer, pending: bool) -> Result<Vec<Charge>, Refusal> {
        let mut charges = vec![self.charge_or_refuse(payer, Kind::Circuits, 1, Purpose::New)?];
        if pending {
            charges.push(self.charge_or_refuse(payer, Kind::Pending, 1, Purpose::New)?);
        }
        Ok(charges)
    }

    /// The segments of one circuit of an end, of which the daemon makes one, of `len` bytes.
    pub(crate) fn charge_segments(
        &mut self,
        payer: Payer,
        len: u64,
        purpose: Purpose,
    ) -> Result<Vec<Charge>, Refusal> {
        Ok(vec![
            self.charge_or_refuse(payer, Kind::Descriptors, SEGMENTS_FDS, purpose)?,
            self.charge_or_refuse(payer, Kind::Memory, len, purpose)?,
        ])
    }

    /// Whether the user who would accept a connection may have one more.
    pub(crate) fn check_accepter(&mut self, uid: u32) -> Result<(), Refusal> {
        let user = Payer::User(uid);
        for (kind, amount) in [(Kind::Circuits, 1), (Kind::Descriptors, SEGMENTS_FDS)] {
            self.charge_or_refuse(user, kind, amount, Purpose::New)?;
        }
        Ok(())
    }

    /// Inbound memory of a port.
    pub(crate) fn carve(
        &mut self,
        port: PortId,
        len: u64,
        payer: Payer,
        purpose: Purpose,
    ) -> Result<Carved, Plain> {
        let ((range, memory), window) =
            self.allot(port, len, (payer, purpose), |cable| cable.carve_inbound(len))?;
        Ok(Carved { range, window, memory })
    }

    /// A range of a port's inbound memory with a segment behind it that another neighbour gave.
    pub(crate) fn pass_segment(
        &mut self,
        port: PortId,
        segment: &Segment,
        payer: Payer,
        purpose: Purpose,
    ) -> Result<(SegmentRange, Charge), Plain> {
        self.allot(port, segment.info.len, (payer, purpose), |cable| cable.pass_inbound(segment))
    }

    /// `len` bytes of a port's window, which are charged before `give` gives them out.
    fn allot<T>(
        &mut self,
        port: PortId,
        len: u64,
        (payer, purpose): (Payer, Purpose),
        give: impl FnOnce(&mut Cable) -> Result<T, PortError>,
    ) -> Result<(T, Charge), Plain> {
        let known = self.counters.has_plain(Plain::Refused(Refusal::NoMemory));
        let window =
            self.charge_or_refuse(payer, Kind::Window(port), len, purpose).map_err(Plain::Refused)?;
        let cable = self.cable(port).ok_or(Plain::Refused(Refusal::NoRoute))?;
        let given = give(cable).map_err(|error| crate::dial::no_segment(&error, !known))?;
        Ok((given, window))
    }

    /// As [`Self::charge`], for those to whom a refusal is all the same.
    pub(crate) fn charge_or_refuse(
        &mut self,
        payer: Payer,
        kind: Kind,
        amount: u64,
        purpose: Purpose,
    ) -> Result<Charge, Refusal> {
        let operator = self.ledger.settings().is_operator(payer);
        self.charge(payer, kind, amount, purpose).map_err(|_| match operator {
            // All that there is.
            true => Refusal::NoMemory,
            false => Refusal::Quota,
        })
    }

    /// The user of a session has the end from now on: he pays for it, and it is pending no longer.
    pub(crate) fn pay_for(&mut self, session: SessionId, circuit: CircuitId) {
        let Some(payer) = self.payer_of(session) else { return };
        let Some(resources) = self.resources.get_mut(&circuit) else { return };
        resources.charges.retain(|charge| charge.kind() != Kind::Pending);
        resources.payer = payer;
        let segments = resources
            .segments
            .iter_mut()
            .chain(&mut resources.attempt)
            .flat_map(|segments| &mut segments.charges);
        resources.charges.iter_mut().chain(segments).for_each(|charge| charge.pass_to(payer));
    }

    /// What neighbours have this host hold besides their circuits' segments: they bound it themselves, port by port, and it is
    /// counted.
    pub(crate) fn charge_neighbours(&mut self) {
        for cable in &self.cables {
            let index = usize::from(cable.id.0);
            if let Some(charge) = self.held.get_mut(index) {
                charge.set(cable.held());
            }
        }
    }

    /// Whether a session is served now; if not, it is later.
    pub(crate) fn may_serve(&mut self, id: SessionId) -> bool {
        let Some(session) = self.sessions.get_mut(&id) else { return false };
        let may = self.rates.may(session.uid, id, self.now);
        session.resting = may == May::Rest;
        may == May::Serve
    }

    /// A request of a session was served that cost so much.
    pub(crate) fn spend(&mut self, id: SessionId, cost: u64) {
        if let Some(uid) = self.sessions.get(&id).map(|session| session.uid) {
            self.spend_of(uid, cost);
        }
    }

    /// The same by the session's user.
    pub(crate) fn spend_of(&mut self, uid: u32, cost: u64) {
        let rate = self.ledger.settings().requests(uid);
        self.rates.spend(uid, cost, rate, self.now);
    }

    /// Sessions are read from again that have rested.
    pub(crate) fn wake_rested(&mut self) {
        self.rates.begin_turn(self.now);
        for id in self.rates.wake(self.now) {
            if let Some(session) = self.sessions.get_mut(&id) {
                session.resting = false;
                self.touched.insert(id);
            }
        }
    }

    fn say_denied(&mut self, denied: Denied) {
        if self.said.is_due(denied.payer, denied.kind, self.now) {
            tracing::warn!(uid = denied.payer.user(), port = denied.payer.port(), %denied, "quota is used up");
        }
    }
}

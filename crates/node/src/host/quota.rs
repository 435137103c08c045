//! What the daemon charges to whom.

use super::{Host, Provider};
use crate::cable::Cable;
use crate::quota::{Charge, Denied, Kind, May, Payer, Purpose};
use crate::session::SessionId;
use crosslane_port::PortError;
use crosslane_shm::Segment;
use crosslane_wire::control::Refusal;
use crosslane_wire::local::Plain;
use crosslane_wire::{CircuitId, PortId, SegmentRange};

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
        self.accounts.charge(payer, kind, amount, purpose, self.now)
    }

    /// Charges something new to the user of a session; for the program why it cannot be.
    pub(crate) fn charge_session(
        &mut self,
        session: SessionId,
        kind: Kind,
        amount: u64,
    ) -> Result<Charge, String> {
        let uid = self.sessions.get(session).ok_or_else(|| "no session".to_owned())?.uid;
        self.charge(Payer::User(uid), kind, amount, Purpose::New).map_err(|denied| denied.to_string())
    }

    /// Who pays for what a session asks for.
    pub(crate) fn payer_of(&self, session: SessionId) -> Option<Payer> {
        self.sessions.get(session).map(|session| Payer::User(session.uid))
    }

    /// An end that is asked for, which no program has accepted yet if `pending`.
    pub(crate) fn charge_end(&mut self, payer: Payer, pending: bool) -> Result<Vec<Charge>, Refusal> {
        self.accounts.charge_end(payer, pending, self.now)
    }

    /// The segments of one circuit of an end, of which the daemon makes one, of `len` bytes.
    pub(crate) fn charge_segments(
        &mut self,
        payer: Payer,
        len: u64,
        purpose: Purpose,
    ) -> Result<Vec<Charge>, Refusal> {
        self.accounts.charge_segments(payer, len, purpose, self.now)
    }

    /// Whether the user who would accept a connection may have one more.
    pub(crate) fn check_accepter(&mut self, uid: u32) -> Result<(), Refusal> {
        self.accounts.check_accepter(uid, self.now)
    }

    /// The user of a session has the end from now on: he pays for it, and it is pending no longer.
    pub(crate) fn pay_for(&mut self, session: SessionId, circuit: CircuitId) {
        let Some(payer) = self.payer_of(session) else { return };
        if let Some(resources) = self.ends.get_mut(circuit) {
            resources.pass_to(payer);
        }
    }

    /// What neighbours have this host hold besides their circuits' segments: they bound it themselves, port by port, and it is
    /// counted.
    pub(crate) fn charge_neighbours(&mut self) {
        for cable in self.cables.iter() {
            self.accounts.note_held(cable.id, cable.held());
        }
    }

    /// Whether a session is served now; if not, it is later.
    pub(crate) fn may_serve(&mut self, id: SessionId) -> bool {
        let Some(session) = self.sessions.get_mut(id) else { return false };
        let may = self.accounts.may(session.uid, id, self.now);
        session.resting = may == May::Rest;
        may == May::Serve
    }

    /// A request of a session was served that cost so much.
    pub(crate) fn spend(&mut self, id: SessionId, cost: u64) {
        if let Some(uid) = self.sessions.get(id).map(|session| session.uid) {
            self.spend_of(uid, cost);
        }
    }

    /// The same by the session's user.
    pub(crate) fn spend_of(&mut self, uid: u32, cost: u64) {
        self.accounts.spend(uid, cost, self.now);
    }

    /// Sessions are read from again that have rested.
    pub(crate) fn wake_rested(&mut self) {
        for id in self.accounts.begin_turn(self.now) {
            if let Some(session) = self.sessions.get_mut(id) {
                session.resting = false;
                self.sessions.touch(id);
            }
        }
    }
}

impl Provider<'_> {
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
        let cable = self.cables.get_mut(port).ok_or(Plain::Refused(Refusal::NoRoute))?;
        let given = give(cable).map_err(|error| no_segment(&error, !known))?;
        Ok((given, window))
    }

    /// Charges, for those to whom a refusal is all the same.
    pub(crate) fn charge_or_refuse(
        &mut self,
        payer: Payer,
        kind: Kind,
        amount: u64,
        purpose: Purpose,
    ) -> Result<Charge, Refusal> {
        self.accounts.charge_or_refuse(payer, kind, amount, purpose, self.now)
    }
}

/// What a neighbour is told of it.
pub(crate) fn refusal_of(why: Plain) -> Refusal {
    match why {
        Plain::Refused(why) => why,
        _ => Refusal::NoMemory,
    }
}

/// What a segment is refused for that a neighbour named and that cannot be had.
pub(crate) fn not_there(error: &PortError) -> Refusal {
    match error {
        PortError::Down => Refusal::NoRoute,
        _ => Refusal::Protocol,
    }
}

/// Why there is no segment, for the program; for people it is logged, of a full window only the `first` time: the
/// counters tell how often.
fn no_segment(error: &PortError, first: bool) -> Plain {
    match error {
        PortError::Full(_) => {
            if first {
                tracing::warn!("no window memory left: connections use TCP; make `window` larger");
            }
            Plain::Refused(Refusal::NoMemory)
        }
        PortError::Down => Plain::Refused(Refusal::NoRoute),
        other => {
            tracing::warn!(error = %other, "no segment");
            Plain::System
        }
    }
}

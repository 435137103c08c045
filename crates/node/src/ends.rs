//! The ends of circuits on this host, with what each of them holds.

use crate::buffer::Opened;
use crate::end_resources::{EndResources, Segments};
use crate::session_id::SessionId;
use crosslane_wire::{BufferId, CircuitId, PortId};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

/// Room for so many ends is kept in any case.
const KEPT: usize = 1024;
/// Room is given back when less than one part of so many is used.
const USED: usize = 8;

/// Where a host has more ends, it does not look at them at each new one: among so many, those that are idle do not tip the scales.
const LOOKED_AT: usize = 256;

/// What the ends of this host hold.
#[derive(Debug, Default)]
pub struct Ends {
    all: HashMap<CircuitId, EndResources>,
}

impl Ends {
    /// Enters an end.
    pub(crate) fn add(&mut self, circuit: CircuitId, resources: EndResources) {
        self.all.insert(circuit, resources);
    }

    /// An end is gone.
    pub(crate) fn remove(&mut self, circuit: CircuitId) {
        self.all.remove(&circuit);
    }

    /// All ends, in no order.
    pub fn circuits(&self) -> impl Iterator<Item = CircuitId> {
        self.all.keys().copied()
    }

    /// What an end holds.
    pub fn get(&self, circuit: CircuitId) -> Option<&EndResources> {
        self.all.get(&circuit)
    }

    /// What an end holds, mutable.
    pub fn get_mut(&mut self, circuit: CircuitId) -> Option<&mut EndResources> {
        self.all.get_mut(&circuit)
    }

    /// Number of ends that move bytes now by the cable at `port`; 0 if there are more than [`LOOKED_AT`].
    pub(crate) fn busy(&mut self, port: PortId, now: Duration) -> usize {
        if self.all.len() > LOOKED_AT {
            return 0;
        }
        self.all.values_mut().map(|end| usize::from(end.is_busy_by(port, now))).sum()
    }

    /// The segments of an end's newest circuit.
    pub(crate) fn newest(&self, circuit: CircuitId) -> Option<&Segments> {
        self.get(circuit)?.segments.back()
    }

    /// The user of the program that has an end.
    pub(crate) fn uid(&self, circuit: CircuitId) -> Option<u32> {
        self.get(circuit).map(|resources| resources.uid)
    }

    /// Whether `token` is the end's: it is given out with the end only, so whoever knows it holds the end.
    pub(crate) fn proves(&self, circuit: CircuitId, token: u64) -> bool {
        self.get(circuit).is_some_and(|resources| resources.token == token)
    }

    /// The sessions that hold an end, the owner first, each with the end's word in its status page.
    pub(crate) fn holders(&self, circuit: CircuitId) -> &[(SessionId, u32)] {
        self.get(circuit).map_or(&[], |resources| &resources.holders)
    }

    /// The session whose program asked for an end.
    pub(crate) fn opener(&self, circuit: CircuitId) -> Option<SessionId> {
        self.holders(circuit).first().map(|(session, _)| *session)
    }

    /// Whether an end was given to a session.
    pub(crate) fn holds(&self, session: SessionId, circuit: CircuitId) -> bool {
        self.holders(circuit).iter().any(|(holder, _)| *holder == session)
    }

    /// A session is gone that held an end; `true` if nobody else does: then it is still entered, and the end is to be closed.
    pub(crate) fn release(&mut self, session: SessionId, circuit: CircuitId) -> bool {
        let Some(resources) = self.get_mut(circuit) else { return false };
        let is_last = resources.holders.iter().all(|(holder, _)| *holder == session);
        if !is_last {
            resources.holders.retain(|(holder, _)| *holder != session);
        }
        is_last
    }

    /// A buffer that the far end may map.
    pub(crate) fn buffer(&self, circuit: CircuitId, buffer: BufferId) -> Option<Rc<Opened>> {
        self.get(circuit)?.buffer(buffer)
    }

    /// No end gives out this buffer of a session any more, or any buffer of it.
    pub(crate) fn forget_buffers(&mut self, session: SessionId, buffer: Option<BufferId>) {
        for resources in self.all.values_mut() {
            resources.forget_buffers(session, buffer);
        }
    }

    /// Gives back what the ends that are gone have left empty, if that is much: maps do not become smaller by themselves. Says
    /// for how many there is room now.
    pub(crate) fn give_room_back(&mut self) -> Option<usize> {
        let kept = KEPT.max(2 * self.all.len());
        is_roomy(&self.all).then(|| self.all.shrink_to(kept)).map(|()| kept)
    }
}

/// Whether a map has much more room than it uses. A map that was made for [`KEPT`] may have twice that.
fn is_roomy<K, V>(map: &HashMap<K, V>) -> bool {
    map.capacity() > 2 * KEPT && map.len() < map.capacity() / USED
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::{Charge, Payer};
    use crosslane_passing::{Foreign, Owner};
    use crosslane_wire::Reach;
    use std::fs::File;

    const END: CircuitId = CircuitId(1);

    fn ends(count: u64) -> Ends {
        let mut ends = Ends::default();
        for circuit in (1..=count).map(CircuitId) {
            ends.add(circuit, EndResources::new(None, Payer::User(0), Vec::new()));
        }
        ends
    }

    fn opened(owner: u64) -> Rc<Opened> {
        let memory = Foreign::new(File::open("/dev/null").unwrap().into(), Owner::NOBODY);
        let (owner, charge) = (SessionId(owner), Charge::of_nothing());
        Rc::new(Opened { memory, len: 1, reach: Reach::Load, owner, charge })
    }

    #[test]
    fn holder_that_is_the_last_stays_until_the_end_is_closed() {
        let mut ends = ends(1);
        ends.get_mut(END).unwrap().holders = vec![(SessionId(5), 0), (SessionId(6), 3)];
        assert_eq!((ends.opener(END), ends.holds(SessionId(6), END)), (Some(SessionId(5)), true));
        assert!(!ends.release(SessionId(5), END) && !ends.holds(SessionId(5), END));
        assert!(ends.release(SessionId(6), END) && ends.holds(SessionId(6), END));
        assert!(!ends.release(SessionId(6), CircuitId(2)), "there is no such end");
    }

    #[test]
    fn token_proves_its_own_end_only() {
        let ends = ends(2);
        let token = ends.get(END).unwrap().token;
        assert!(ends.proves(END, token));
        assert!(!ends.proves(END, token.wrapping_add(1)) && !ends.proves(CircuitId(2), token));
    }

    #[test]
    fn buffers_of_an_end_are_bounded_and_go_with_their_session() {
        let mut ends = ends(1);
        for (buffer, owner) in (0..1000).map(|number| (BufferId(number), number % 2)) {
            ends.get_mut(END).unwrap().keep_buffer(buffer, opened(owner));
        }
        let known = |ends: &Ends| (0..1000).filter(|n| ends.buffer(END, BufferId(*n)).is_some()).count();
        let most = known(&ends);
        assert!(most < 1000 && ends.buffer(END, BufferId(999)).is_some(), "the oldest go: {most}");
        ends.forget_buffers(SessionId(0), Some(BufferId(999)));
        assert!(ends.buffer(END, BufferId(999)).is_some(), "it is of another session");
        ends.forget_buffers(SessionId(1), Some(BufferId(999)));
        assert_eq!(known(&ends), most - 1);
        ends.forget_buffers(SessionId(0), None);
        assert_eq!(known(&ends), most / 2 - 1);
    }

    #[test]
    fn room_is_given_back_once_for_each_time_that_many_ends_go() {
        let mut ends = ends(20_000);
        assert_eq!(ends.give_room_back(), None);
        let times = (1..=20_000).map(CircuitId).filter(|circuit| {
            ends.remove(*circuit);
            ends.give_room_back().is_some()
        });
        let times = times.count();
        assert!((1..=3).contains(&times), "{times}");
        assert!(ends.all.capacity() <= 2 * KEPT, "{}", ends.all.capacity());
    }
}

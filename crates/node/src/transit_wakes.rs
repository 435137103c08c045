//! Wakes that cross this host: open questions for wakers, of its pumps and its neighbours, and wakes that wait for room in a control
//! channel.

use core::ops::Bound::Included;
use crosslane_wire::{ChannelId, PortId, TransitId, WaiterId};
use std::collections::BTreeSet;

/// Most questions for wakers that one neighbour may have passed on to another one and not answered.
const ASKS_MAX: usize = 64;
/// Most wakes of one side of a circuit that wait for room in the control channel: a stream has two words that name sleepers.
const WAKES_MAX: usize = 4;

/// A pump asks a neighbour's daemon for a waker: how is this waiter woken?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PumpAsk {
    /// The neighbour's port.
    pub port: PortId,
    /// The neighbour's id for the channel that the waiter sleeps on.
    pub channel: ChannelId,
    /// The waiter.
    pub waiter: WaiterId,
    /// The pump's circuit.
    pub transit: TransitId,
    /// The neighbour's side of the circuit.
    pub side: usize,
}

/// The same question of one neighbour's daemon to another's, which this host has passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassedAsk {
    /// The circuit, which both neighbours have with this host.
    pub transit: TransitId,
    /// The port of the neighbour that asked.
    pub asker: PortId,
    /// The asking neighbour's id for the channel.
    pub named: ChannelId,
    /// The port of the neighbour that is asked.
    pub asked: PortId,
    /// That neighbour's id for the channel.
    pub peer: ChannelId,
    /// The waiter.
    pub waiter: WaiterId,
}

/// A wake that waits for room in the control channel of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwedWake {
    /// The port by which it goes.
    pub port: PortId,
    /// The circuit.
    pub transit: TransitId,
    /// The side that it came from.
    pub side: usize,
    /// Who is woken.
    pub waiter: WaiterId,
}

/// All questions and wakes that are open.
#[derive(Debug, Default)]
pub struct TransitWakes {
    pumps: Vec<PumpAsk>,
    passed: Vec<PassedAsk>,
    owed: BTreeSet<OwedWake>,
}

impl TransitWakes {
    /// Notes a pump's question; returns whether it must be sent, since it is not open already.
    pub fn ask(&mut self, ask: PumpAsk) -> bool {
        let is_new = !self.pumps.contains(&ask);
        if is_new {
            self.pumps.push(ask);
        }
        is_new
    }

    /// Takes the pump's question that a neighbour's answer belongs to, if there is one.
    pub fn answer_pump(&mut self, port: PortId, channel: ChannelId, waiter: WaiterId) -> Option<PumpAsk> {
        let asked = |ask: &PumpAsk| (ask.port, ask.channel, ask.waiter) == (port, channel, waiter);
        self.pumps.iter().position(asked).map(|at| self.pumps.remove(at))
    }

    /// Notes a question passed on for a neighbour; `false` if too many of its questions to that other neighbour are open.
    pub fn pass(&mut self, ask: PassedAsk) -> bool {
        let of_both = |other: &&PassedAsk| (other.asker, other.asked) == (ask.asker, ask.asked);
        let has_room = self.passed.iter().filter(of_both).count() < ASKS_MAX;
        if has_room {
            self.passed.push(ask);
        }
        has_room
    }

    /// Takes the passed-on question that a neighbour's answer belongs to, if there is one.
    pub fn answer_passed(&mut self, port: PortId, channel: ChannelId, waiter: WaiterId) -> Option<PassedAsk> {
        let asked = |ask: &PassedAsk| (ask.asked, ask.peer, ask.waiter) == (port, channel, waiter);
        self.passed.iter().position(asked).map(|at| self.passed.remove(at))
    }

    /// Keeps a wake until there is room; drops it if four of that side wait already, since a stream has no more sleepers.
    pub fn owe(&mut self, wake: OwedWake) {
        let bound = |waiter| Included(OwedWake { waiter: WaiterId(waiter), ..wake });
        if self.owed.range((bound(0), bound(u32::MAX))).count() < WAKES_MAX {
            self.owed.insert(wake);
        }
    }

    /// Takes the next wake for a port whose control channel has room now.
    pub fn poll_owed(&mut self, port: PortId) -> Option<OwedWake> {
        let first = OwedWake { port, transit: TransitId(0), side: 0, waiter: WaiterId(0) };
        let wake = self.owed.range(first..).next().copied().filter(|wake| wake.port == port)?;
        self.owed.remove(&wake);
        Some(wake)
    }

    /// Drops all wakes and questions of a circuit that has ended.
    pub fn forget(&mut self, transit: TransitId) {
        self.pumps.retain(|ask| ask.transit != transit);
        self.passed.retain(|ask| ask.transit != transit);
        self.owed.retain(|wake| wake.transit != transit);
    }

    /// Drops all that concerns a port whose cable is down. Returns the questions of other neighbours that were passed on to its neighbour.
    pub fn fail(&mut self, port: PortId) -> Vec<PassedAsk> {
        self.pumps.retain(|ask| ask.port != port);
        self.owed.retain(|wake| wake.port != port);
        let (failed, rest) = std::mem::take(&mut self.passed).into_iter().partition(|ask| ask.asked == port);
        self.passed = rest;
        self.passed.retain(|ask| ask.asker != port);
        failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(asker: u8, asked: u8, waiter: u32) -> PassedAsk {
        let (asker, asked) = (PortId(asker), PortId(asked));
        let (named, peer) = (ChannelId(1), ChannelId(2));
        PassedAsk {
            transit: TransitId(u64::from(waiter)),
            asker,
            named,
            asked,
            peer,
            waiter: WaiterId(waiter),
        }
    }

    fn owed(port: u8, waiter: u32) -> OwedWake {
        OwedWake { port: PortId(port), transit: TransitId(3), side: 1, waiter: WaiterId(waiter) }
    }

    #[test]
    fn questions_of_one_neighbour_to_another_are_bounded_and_answered_once() {
        let mut wakes = TransitWakes::default();
        let taken = (0..1000).filter(|waiter| wakes.pass(passed(0, 1, *waiter))).count();
        assert_eq!(taken, ASKS_MAX);
        assert!(wakes.pass(passed(1, 0, 5)), "another one's are not full");
        let answer = |wakes: &mut TransitWakes| wakes.answer_passed(PortId(1), ChannelId(2), WaiterId(7));
        assert_eq!(answer(&mut wakes), Some(passed(0, 1, 7)));
        assert_eq!(answer(&mut wakes), None);
        assert!(wakes.pass(passed(0, 1, 7)));
    }

    #[test]
    fn owed_wakes_go_by_their_port_and_are_bounded() {
        let mut wakes = TransitWakes::default();
        (0..1000).for_each(|waiter| wakes.owe(owed(1, waiter)));
        wakes.owe(owed(2, 9));
        let mut of_port = |port| std::iter::from_fn(|| wakes.poll_owed(PortId(port))).count();
        assert_eq!((of_port(0), of_port(1), of_port(2)), (0, WAKES_MAX, 1));
    }

    #[test]
    fn lost_cable_fails_what_others_asked_of_it() {
        let mut wakes = TransitWakes::default();
        let pump = PumpAsk {
            port: PortId(1),
            channel: ChannelId(4),
            waiter: WaiterId(1),
            transit: TransitId(9),
            side: 0,
        };
        assert!(wakes.ask(pump) && !wakes.ask(pump));
        wakes.pass(passed(0, 1, 5));
        wakes.pass(passed(1, 0, 6));
        wakes.owe(owed(1, 5));
        assert_eq!(wakes.fail(PortId(1)), [passed(0, 1, 5)]);
        assert_eq!(
            wakes.answer_passed(PortId(0), ChannelId(2), WaiterId(6)),
            None,
            "nobody is there to be told"
        );
        assert_eq!(wakes.answer_pump(PortId(1), ChannelId(4), WaiterId(1)), None);
        assert_eq!(wakes.poll_owed(PortId(1)), None);
    }
}

//! Lives of circuits between two hosts, orderly and not.

use crosslane_fabric::Circuits;
use crosslane_fabric::circuit::{Death, Output, Scope, State};
use crosslane_wire::control::{Control, Refusal};
use crosslane_wire::{CircuitId, Epoch, HostId, PortId, SliceRange, Tuple};
use std::time::Duration;

const PORT: PortId = PortId(0);
const SLICE: SliceRange = SliceRange { offset: 4096, len: 4096 };
const LATE: Duration = Duration::from_millis(20);

fn tuple(port: u16) -> Tuple {
    Tuple { client: ([10, 86, 0, 1], port).into(), server: ([10, 86, 0, 2], 80).into() }
}

/// Two hosts on one cable; messages are carried by `carry`.
struct Pair {
    hosts: [Circuits; 2],
    events: [Vec<Output>; 2],
}

impl Pair {
    fn new() -> Self {
        Self { hosts: [Circuits::new(8), Circuits::new(8)], events: [vec![], vec![]] }
    }

    fn carry(&mut self) {
        for _ in 0..4 {
            for side in 0..2 {
                while let Some(output) = self.hosts[side].poll_output() {
                    if let Output::Send { message: Control::Closed { circuit, abort }, .. } = output {
                        self.hosts[1 - side].handle_closed(PORT, circuit, abort).unwrap();
                    } else {
                        self.events[side].push(output);
                    }
                }
            }
        }
    }

    fn dial(&mut self, port: u16) -> CircuitId {
        self.hosts[0].dial(tuple(port), PORT, Epoch(1), HostId(2), LATE)
    }

    fn open(&mut self, port: u16) -> (CircuitId, CircuitId) {
        let client = self.dial(port);
        let server = self.hosts[1].handle_open(tuple(port), PORT, Epoch(1), HostId(1), client).unwrap();
        self.hosts[0].handle_opened(PORT, client, server, SLICE, 1).unwrap();
        self.carry();
        (client, server)
    }

    fn empty(&self) -> bool {
        self.hosts.iter().all(|host| host.iter().next().is_none() && host.pending() == 0)
    }

    fn died(&self, side: usize) -> Vec<Death> {
        let death = |output: &Output| match output {
            Output::Died { death, .. } => Some(*death),
            _ => None,
        };
        self.events[side].iter().filter_map(death).collect()
    }
}

#[test]
fn an_orderly_life_leaves_nothing() {
    let mut pair = Pair::new();
    let (client, server) = pair.open(1000);
    assert_eq!(pair.hosts[1].accept(&tuple(1000), Scope(0)), Some(server));
    assert_eq!(pair.hosts[1].accept(&tuple(1000), Scope(0)), None);
    pair.hosts[0].close(client, false);
    pair.carry();
    assert!(pair.hosts[0].get(client).is_some(), "freed while the far side may write");
    pair.hosts[1].close(server, false);
    pair.carry();
    assert!(pair.empty());
    assert_eq!((pair.died(0), pair.died(1)), (vec![], vec![]));
}

#[test]
fn an_abort_reaches_the_far_program_and_frees_after_it_closes() {
    let mut pair = Pair::new();
    let (client, server) = pair.open(1000);
    pair.hosts[0].close(client, true);
    pair.carry();
    assert_eq!(pair.died(1), [Death::Abort]);
    assert_eq!(pair.hosts[1].accept(&tuple(1000), Scope(0)), Some(server), "what was sent can still be read");
    pair.hosts[1].close(server, false);
    pair.carry();
    assert!(pair.empty());
}

#[test]
fn a_late_answer_is_taken_back() {
    let mut pair = Pair::new();
    let client = pair.dial(1000);
    pair.hosts[0].handle_time(LATE);
    let server = pair.hosts[1].handle_open(tuple(1000), PORT, Epoch(1), HostId(1), client).unwrap();
    pair.hosts[0].handle_opened(PORT, client, server, SLICE, 1).unwrap();
    pair.carry();
    assert!(pair.events[0].contains(&Output::Failed { circuit: client, why: Refusal::Timeout }));
    assert_eq!(pair.died(1), [Death::Abort]);
    pair.hosts[1].close(server, true);
    pair.carry();
    assert!(pair.empty());
}

#[test]
fn a_lost_cable_kills_its_circuits_and_no_others() {
    let mut pair = Pair::new();
    let (client, server) = pair.open(1000);
    let (here, there) = pair.hosts[0].local(tuple(2000), Scope(7)).unwrap();
    let opening = pair.dial(3000);
    pair.hosts[0].handle_link_down(PORT, Death::Cable);
    pair.hosts[1].handle_link_down(PORT, Death::Cable);
    pair.carry();
    assert_eq!(pair.died(0), [Death::Cable]);
    assert!(pair.hosts[0].get(opening).is_none());
    pair.hosts[0].close(client, true);
    pair.hosts[1].close(server, true);
    pair.hosts[0].close(here, false);
    pair.hosts[0].close(there, false);
    pair.carry();
    assert!(pair.empty());
}

#[test]
fn pending_ends_are_bounded_for_each_host() {
    let mut host = Circuits::new(2);
    for name in 0..2 {
        host.handle_open(tuple(name), PORT, Epoch(1), HostId(1), CircuitId(9)).unwrap();
    }
    let third = host.handle_open(tuple(2), PORT, Epoch(1), HostId(1), CircuitId(9));
    assert_eq!(third, Err(Refusal::NoMemory));
    assert!(host.handle_open(tuple(2), PortId(1), Epoch(1), HostId(3), CircuitId(9)).is_ok());
    host.accept(&tuple(0), Scope(0)).unwrap();
    assert!(host.handle_open(tuple(2), PORT, Epoch(1), HostId(1), CircuitId(9)).is_ok());
}

#[test]
fn contradictions_are_told_and_change_nothing() {
    let mut pair = Pair::new();
    let (client, _) = pair.open(1000);
    let host = &mut pair.hosts[0];
    assert!(host.handle_opened(PORT, client, CircuitId(5), SLICE, 1).is_err());
    assert!(host.handle_refused(PORT, client, Refusal::Rule).is_err());
    assert!(host.handle_closed(PortId(1), client, true).is_err());
    assert!(host.handle_closed(PORT, CircuitId(77), true).is_err());
    assert_eq!(host.get(client).map(|end| end.state), Some(State::Open));
}

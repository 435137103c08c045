//! Lives of circuits between hosts, orderly and not.

mod transit;

use crosslane_fabric::circuit::{Death, Far, Limits, Output, Path, Role, Scope, State};
use crosslane_fabric::route::Spread;
use crosslane_fabric::{Circuits, Links};
use crosslane_wire::control::{Closing, Control, GENERATION_MAX, Refusal, Resumption};
use crosslane_wire::{ChannelId, CircuitId, Epoch, HostId, PortId, SegmentRange, Tuple};
use std::time::Duration;

const PORT: PortId = PortId(0);
const SEGMENT: SegmentRange = SegmentRange { offset: 4096, len: 4096 };
const LATE: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_millis(500);
const PATH: Path = Path { port: PORT, epoch: Epoch(1), hops: 1, pumps: 0 };
const SECRET: u64 = 99;

fn tuple(port: u16) -> Tuple {
    Tuple { client: ([10, 86, 0, 1], port).into(), server: ([10, 86, 0, 2], 80).into() }
}

fn opened(channel: ChannelId, peer: ChannelId, key: u64, arrived: u64) -> Control {
    Control::Opened { channel, peer, segment: SEGMENT, key, arrived, pumps: 0 }
}

fn refused(channel: ChannelId, why: Refusal) -> Control {
    Control::Refused { channel, why }
}

fn closed(channel: ChannelId, how: Closing) -> Control {
    Control::Closed { channel, how }
}

fn circuits(patience: Duration) -> Circuits {
    Circuits::new(Limits { pending: 8, patience })
}

/// Two hosts on one cable; messages are carried by `carry`.
struct Pair {
    hosts: [Circuits; 2],
    events: [Vec<Output>; 2],
}

impl Pair {
    fn new(patience: Duration) -> Self {
        Self { hosts: [circuits(patience), circuits(patience)], events: [vec![], vec![]] }
    }

    fn carry(&mut self) {
        for _ in 0..4 {
            for side in 0..2 {
                while let Some(output) = self.hosts[side].poll_output() {
                    match output {
                        Output::Send { message, .. } => {
                            self.hosts[1 - side].handle_message(PORT, message).unwrap();
                        }
                        output => self.events[side].push(output),
                    }
                }
            }
        }
    }

    fn dial(&mut self, port: u16) -> (CircuitId, ChannelId) {
        self.hosts[0].dial(tuple(port), SECRET, HostId(2), PATH, LATE)
    }

    fn answer(&mut self, port: u16, asking: ChannelId) -> CircuitId {
        let (server, channel) =
            self.hosts[1].handle_open(tuple(port), (SECRET, 0), HostId(1), PATH, asking).unwrap();
        self.hosts[1].answer(channel, SEGMENT, 1, 0);
        server
    }

    fn open(&mut self, port: u16) -> (CircuitId, CircuitId) {
        let (client, asking) = self.dial(port);
        let server = self.answer(port, asking);
        self.carry();
        (client, server)
    }

    /// Both programs are done with their ends, and nothing is left.
    fn end(&mut self, ends: [CircuitId; 2], abort: bool) {
        for (host, end) in self.hosts.iter_mut().zip(ends) {
            host.close(end, abort);
        }
        self.carry();
        assert!(self.empty());
    }

    fn cut(&mut self) {
        self.hosts[0].handle_link_down(PORT, HostId(2), Death::Cable);
        self.hosts[1].handle_link_down(PORT, HostId(1), Death::Cable);
        self.carry();
    }

    fn empty(&self) -> bool {
        let none = |host: &Circuits| {
            host.iter().next().is_none() && host.pending() == 0 && host.channel_count() == 0
        };
        self.hosts.iter().all(none)
    }

    fn died(&self, side: usize) -> Vec<Death> {
        let death = |output: &Output| match output {
            Output::Died { death, .. } => Some(*death),
            _ => None,
        };
        self.events[side].iter().filter_map(death).collect()
    }

    fn resume(&mut self, client: CircuitId, port: u16) -> Result<CircuitId, Refusal> {
        let (asking, generation) = self.hosts[0].redial(client, PATH, LATE).expect("it moves");
        let resume = Resumption { generation };
        let (server, channel) = self.hosts[1].handle_resume(&tuple(port), SECRET, resume, PATH, asking)?;
        self.hosts[1].answer(channel, SEGMENT, 2, 9);
        self.carry();
        self.hosts[0].tell_arrived(client, 7);
        self.carry();
        self.hosts[1].finish(server, false);
        self.hosts[0].finish(client, false);
        self.carry();
        Ok(server)
    }
}

#[test]
fn circuit_closed_in_order_leaves_nothing() {
    let mut pair = Pair::new(PATIENCE);
    let (client, server) = pair.open(1000);
    assert!(pair.hosts[1].accept(server));
    assert!(!pair.hosts[1].accept(server));
    pair.hosts[0].close(client, false);
    pair.carry();
    assert!(pair.hosts[0].get(client).is_some(), "freed while the far side may write");
    pair.hosts[1].close(server, false);
    pair.carry();
    assert!(pair.empty());
    assert_eq!((pair.died(0), pair.died(1)), (vec![], vec![]));
}

#[test]
fn circuit_abort_reaches_the_far_program_and_frees_after_it_closes() {
    let mut pair = Pair::new(PATIENCE);
    let (client, server) = pair.open(1000);
    pair.hosts[0].close(client, true);
    pair.carry();
    assert_eq!(pair.died(1), [Death::Abort]);
    assert!(pair.hosts[1].accept(server), "what was sent can still be read");
    pair.hosts[1].close(server, false);
    pair.carry();
    assert!(pair.empty());
}

#[test]
fn circuit_late_answer_is_withdrawn() {
    let mut pair = Pair::new(PATIENCE);
    let (client, asking) = pair.dial(1000);
    pair.hosts[0].handle_time(LATE);
    pair.carry();
    let failed = Output::Failed { circuit: client, channel: asking, why: Refusal::Timeout };
    assert!(pair.events[0].contains(&failed));
    pair.hosts[0].give_up(client);
    let server = pair.answer(1000, asking);
    pair.carry();
    assert_eq!(pair.died(1), [Death::Abort]);
    pair.hosts[1].close(server, true);
    pair.carry();
    assert!(pair.empty());
}

#[test]
fn circuit_refused_takes_another_way() {
    let mut pair = Pair::new(PATIENCE);
    let (client, asking) = pair.dial(1000);
    pair.hosts[0].handle_message(PORT, refused(asking, Refusal::NoMemory)).unwrap();
    pair.carry();
    let (asking, generation) = pair.hosts[0].redial(client, PATH, LATE).unwrap();
    assert_eq!(generation, 0);
    pair.answer(1000, asking);
    pair.carry();
    assert_eq!(pair.hosts[0].get(client).map(|end| end.state), Some(State::Open));
}

#[test]
fn resume_disabled_lost_cable_kills_its_circuits_alone() {
    let mut pair = Pair::new(Duration::ZERO);
    let (client, server) = pair.open(1000);
    let (here, there) = pair.hosts[0].local(tuple(2000), Scope(7));
    let (opening, _) = pair.dial(3000);
    pair.cut();
    assert_eq!((pair.died(0), pair.died(1)), (vec![Death::Cable], vec![Death::Cable]));
    pair.hosts[0].give_up(opening);
    for end in [here, there] {
        pair.hosts[0].close(end, true);
    }
    pair.end([client, server], true);
}

#[test]
fn resume_continues_a_stream_over_another_circuit() {
    let mut pair = Pair::new(PATIENCE);
    let (client, server) = pair.open(1000);
    for round in 1..4 {
        pair.cut();
        assert!(pair.events[0].contains(&Output::Moving { circuit: client }));
        assert!(pair.events[1].contains(&Output::Moving { circuit: server }));
        assert!(pair.events[0].contains(&Output::Seek { circuit: client }));
        assert_eq!(pair.resume(client, 1000), Ok(server));
        let resumed = Output::Resumed { circuit: client, segment: SEGMENT, key: 2, arrived: 9 };
        assert!(pair.events[0].contains(&resumed));
        assert!(pair.events[1].contains(&Output::Arrived { circuit: server, units: 7 }));
        let generation = |pair: &Pair, side: usize, end| pair.hosts[side].get(end).unwrap().generation;
        assert_eq!((generation(&pair, 0, client), generation(&pair, 1, server)), (round, round));
        pair.events = [vec![], vec![]];
    }
    pair.end([client, server], false);
}

#[test]
fn resume_timeout_ends_the_search_on_both_sides() {
    let mut pair = Pair::new(PATIENCE);
    let (client, server) = pair.open(1000);
    pair.cut();
    pair.hosts[0].no_way(client);
    for host in &mut pair.hosts {
        host.handle_time(PATIENCE);
    }
    pair.carry();
    assert_eq!((pair.died(0), pair.died(1)), (vec![Death::Cable], vec![Death::Cable]));
    pair.end([client, server], true);
}

#[test]
fn resume_passes_on_a_close_during_the_move() {
    for (side, abort) in [(0, false), (1, false), (0, true), (1, true)] {
        let mut pair = Pair::new(PATIENCE);
        let ends = <[CircuitId; 2]>::from(pair.open(1000));
        assert!(pair.hosts[1].accept(ends[1]));
        pair.cut();
        pair.hosts[side].close(ends[side], abort);
        pair.carry();
        pair.resume(ends[0], 1000).unwrap();
        let died = if abort { vec![Death::Abort] } else { vec![] };
        assert_eq!(pair.died(1 - side), died);
        pair.hosts[1 - side].close(ends[1 - side], false);
        pair.carry();
        assert!(pair.empty(), "side {side}, abort {abort}");
    }
}

#[test]
fn resume_of_an_unknown_stream_fails_at_once() {
    let mut pair = Pair::new(PATIENCE);
    let (client, _) = pair.open(1000);
    pair.cut();
    pair.hosts[1] = circuits(PATIENCE);
    assert_eq!(pair.resume(client, 1000), Err(Refusal::Unknown));
    let Far::Host { channel: Some(asking), .. } = pair.hosts[0].get(client).unwrap().far else { panic!() };
    pair.hosts[0].handle_message(PORT, refused(asking, Refusal::Unknown)).unwrap();
    pair.carry();
    pair.hosts[0].try_failed(client, Refusal::Unknown);
    pair.carry();
    assert_eq!(pair.died(0), [Death::Abort]);
}

#[test]
fn resume_needs_the_secret_and_a_new_generation() {
    let mut pair = Pair::new(PATIENCE);
    pair.open(1000);
    let server = &mut pair.hosts[1];
    let mut ask = |tuple: Tuple, secret, generation| {
        let resume = Resumption { generation };
        server.handle_resume(&tuple, secret, resume, PATH, ChannelId(50)).map(|_| ())
    };
    assert_eq!(ask(tuple(1000), SECRET + 1, 1), Err(Refusal::Unknown));
    assert_eq!(ask(tuple(1001), SECRET, 1), Err(Refusal::Unknown));
    assert_eq!(ask(tuple(1000), SECRET, 0), Err(Refusal::Protocol));
    assert_eq!(ask(tuple(1000), SECRET, GENERATION_MAX + 1), Err(Refusal::Protocol));
    assert_eq!(ask(tuple(1000), SECRET, 1), Ok(()));
    assert_eq!(ask(tuple(1000), SECRET, 1), Err(Refusal::Protocol));
}

/// Whatever the far side has us do again and again, what is remembered of it goes with it.
#[test]
fn deadline_is_none_once_nothing_is_pending() {
    let mut pair = Pair::new(PATIENCE);
    let idle = |pair: &Pair| pair.hosts.iter().all(|host| host.poll_deadline().is_none());
    let (client, server) = pair.open(1000);
    assert!(idle(&pair), "an answer that has come");
    for _ in 0..3 {
        pair.cut();
        pair.hosts[0].no_way(client);
        pair.resume(client, 1000).unwrap();
        assert!(idle(&pair), "a search that is over");
    }
    pair.end([client, server], false);
    assert!(idle(&pair));
}

#[test]
fn shorter_way_is_taken_by_movable_streams_and_costs_others_nothing() {
    for patience in [PATIENCE, Duration::ZERO] {
        let mut pair = Pair::new(patience);
        let far = Path { hops: 2, ..PATH };
        let (client, asking) = pair.hosts[0].dial(tuple(1000), SECRET, HostId(2), far, LATE);
        pair.answer(1000, asking);
        pair.carry();
        let mut links = Links::new(HostId(1), 1);
        links.handle_cable_up(PORT, HostId(2));
        pair.hosts[0].shorten(&links, Spread::Shortest, 8);
        pair.carry();
        let moves = pair.hosts[0].get(client).unwrap().moving.is_some();
        assert_eq!((moves, pair.died(0)), (!patience.is_zero(), vec![]));
    }
}

#[test]
fn shorter_way_is_left_to_others_where_all_are_used_and_it_has_as_many() {
    let mut pair = Pair::new(PATIENCE);
    let host = &mut pair.hosts[0];
    let long = Path { port: PortId(PORT.0 + 1), hops: 2, ..PATH };
    let (_, asking) = host.dial(tuple(1000), SECRET, HostId(2), PATH, LATE);
    let (client, asking_by_long) = host.dial(tuple(1001), SECRET + 1, HostId(2), long, LATE);
    host.handle_message(long.port, opened(asking_by_long, ChannelId(7), 1, 0)).unwrap();
    while host.poll_output().is_some() {}
    let mut links = Links::new(HostId(1), 1);
    links.handle_cable_up(PORT, HostId(2));
    for (loads, moves) in [([1, 1], false), ([0, 1], true)] {
        assert_eq!([PORT, long.port].map(|port| host.load_of(port)), loads);
        host.shorten(&links, Spread::All, 8);
        assert_eq!(host.get(client).unwrap().moving.is_some(), moves);
        let _ = host.handle_message(PORT, refused(asking, Refusal::NoRoute));
        while host.poll_output().is_some() {}
    }
}

#[test]
fn pending_end_of_a_silent_host_is_usable_by_another_way() {
    let mut pair = Pair::new(PATIENCE);
    let (client, _) = pair.dial(1000);
    pair.hosts[0].handle_silence(PORT, HostId(3));
    pair.carry();
    assert!(pair.events[0].iter().any(|event| matches!(event, Output::Failed { .. })));
    let (asking, _) = pair.hosts[0].redial(client, PATH, LATE).unwrap();
    pair.answer(1000, asking);
    pair.carry();
    pair.cut();
    assert!(pair.events[0].contains(&Output::Moving { circuit: client }));
}

#[test]
fn open_late_by_another_way_does_not_replace_the_end_in_use() {
    let mut pair = Pair::new(PATIENCE);
    let (client, server) = pair.open(1000);
    assert!(pair.hosts[1].accept(server));
    let late = pair.hosts[1].handle_open(tuple(1000), (SECRET, 0), HostId(1), PATH, ChannelId(77));
    assert_eq!(late, Err(Refusal::Protocol));
    assert!(pair.hosts[1].ends_of(&tuple(1000), Role::Server, Scope(0)).eq([server]));
    pair.cut();
    assert_eq!(pair.resume(client, 1000), Ok(server));
}

#[test]
fn pending_ends_are_bounded_for_each_host() {
    let mut host = Circuits::new(Limits { pending: 2, patience: PATIENCE });
    let mut open = |port, from| host.handle_open(tuple(port), (0, 0), HostId(from), PATH, ChannelId(9));
    let (first, _) = open(0, 1).unwrap();
    assert!(open(1, 1).is_ok());
    assert_eq!(open(2, 1), Err(Refusal::NoMemory));
    assert!(open(2, 3).is_ok());
    assert!(host.accept(first));
    assert!(host.handle_open(tuple(2), (0, 0), HostId(1), PATH, ChannelId(9)).is_ok());
}

#[test]
fn message_that_contradicts_is_reported_and_changes_nothing() {
    let mut pair = Pair::new(PATIENCE);
    let (client, _) = pair.open(1000);
    let host = &mut pair.hosts[0];
    let channel = host.get(client).unwrap().channel().unwrap();
    assert!(host.handle_message(PORT, opened(channel, ChannelId(5), 1, 0)).is_err());
    assert!(host.handle_message(PORT, refused(channel, Refusal::Rule)).is_err());
    assert!(host.handle_message(PortId(1), closed(channel, Closing::Abort)).is_err());
    assert!(host.handle_message(PORT, closed(ChannelId(77), Closing::Abort)).is_err());
    assert_eq!(host.get(client).map(|end| end.state), Some(State::Open));
}

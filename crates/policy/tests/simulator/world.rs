//! Everything there is, and the order in which it happens: virtual time, one queue, one source of chance.

use crate::host::Host;
use crate::memory::{Actor, Ring};
use crate::network::Cable;
use crate::program::{Program, Stream};
use crate::random::Random;
use crate::schedule::Fault;
use crosslane_policy::Policy;
use crosslane_wire::control::{Control, LinkState};
use crosslane_wire::{CircuitId, TransitId};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// What happens. Host and life come first: what was meant for an earlier life of a host does not happen.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A side of a cable finds it up in this epoch.
    Up(usize, usize, u32),
    /// A side of a cable finds it down.
    Down(usize, usize, u32),
    /// A message arrives at a side of a cable.
    Deliver(usize, usize, u32, Box<Control>),
    /// A host does what is due.
    Tick(usize, u32),
    /// A host tells its neighbours what it owes them.
    Turn(usize, u32),
    /// A host's pump moves units.
    Pump(usize, u32, TransitId),
    /// A program of a host accepts the connection of a stream, whose end must be known until this time.
    Accept(usize, u32, usize, Duration),
    /// A program was killed, and its session with it.
    Killed(usize, u32, CircuitId),
    /// A program has closed its end, or broken it off.
    Close(usize, u32, CircuitId, bool),
    /// A program runs.
    Program(usize),
    /// A stream begins.
    Connect(usize),
    /// Something is done to the network.
    Fault(Fault),
}

/// Bits for the places of events that are still to happen.
const PLACE_BITS: u32 = 20;

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap()
}

/// What was seen, for bounds and reports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// Events.
    pub(crate) events: u64,
    /// Messages between daemons.
    pub(crate) messages: u64,
    /// Messages with link states among them.
    pub(crate) floods: u64,
    /// Link states in those.
    pub(crate) records: u64,
    /// Records that hosts made about themselves.
    pub(crate) versions: u64,
    /// Sides of cables that came up, and link states that were owed for that.
    pub(crate) tables: u64,
    /// Circuits that took the place of another.
    pub(crate) resumed: u64,
    /// Circuits through hosts between.
    pub(crate) transits: u64,
    /// Ends of streams: closed in order, broken off or lost, without a stream at all.
    pub(crate) outcomes: [u64; 3],
    /// Contradictions that hosts found where one lies.
    pub(crate) contradictions: u64,
    /// Units that programs read.
    pub(crate) units: u64,
}

/// The world.
pub(crate) struct World {
    /// The time.
    pub(crate) now: Duration,
    /// Chance.
    pub(crate) random: Random,
    /// Secrets of streams.
    pub(crate) secrets: Random,
    /// Those that have got memory, and are woken next.
    pub(crate) woken: Vec<Actor>,
    /// All hosts, also those that are not there.
    pub(crate) hosts: Vec<Host>,
    /// What each of them decides by.
    pub(crate) policies: Vec<Policy>,
    /// All cables, also those that are not plugged in.
    pub(crate) cables: Vec<Cable>,
    /// All segments.
    pub(crate) rings: Vec<Ring>,
    /// All programs.
    pub(crate) programs: Vec<Program>,
    /// All streams.
    pub(crate) streams: Vec<Stream>,
    /// The longest that a host takes to tell its neighbours what it has heard, microseconds.
    pub(crate) turn: u64,
    /// What a hostile host has heard, to say it again, if there is one.
    pub(crate) tape: Option<Vec<LinkState>>,
    /// The host that lies, if there is one.
    pub(crate) liar: Option<usize>,
    /// Whether it forges link states too.
    pub(crate) forges: bool,
    /// What was said to it and by it.
    pub(crate) heard: Vec<Control>,
    /// What was seen.
    pub(crate) counts: Counts,
    /// What went wrong first.
    pub(crate) wrong: Option<String>,
    /// A digest of all events: the same for the same seed.
    pub(crate) digest: u64,
    /// Whether all events are printed.
    pub(crate) aloud: bool,
    /// When, ns; in which order of what happens at one time, and in the low bits where in `events` it lies.
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: Vec<Option<Event>>,
    spare: Vec<usize>,
    sequence: u64,
}

impl World {
    /// A world with nothing in it.
    pub(crate) fn new(random: Random, aloud: bool) -> Self {
        Self {
            now: Duration::ZERO,
            secrets: Random::new(random.clone().next()),
            random,
            woken: vec![],
            hosts: vec![],
            policies: vec![],
            cables: vec![],
            rings: vec![],
            programs: vec![],
            streams: vec![],
            turn: 60,
            tape: None,
            liar: None,
            forges: false,
            heard: vec![],
            counts: Counts::default(),
            wrong: None,
            digest: 0xcbf2_9ce4_8422_2325,
            aloud,
            queue: BinaryHeap::new(),
            events: vec![],
            spare: vec![],
            sequence: 0,
        }
    }

    /// Lets something happen in a while.
    pub(crate) fn after(&mut self, pause: Duration, event: Event) {
        self.at(self.now + pause, event);
    }

    /// Lets something happen at a time that is not over.
    pub(crate) fn at(&mut self, at: Duration, event: Event) {
        let place = self.spare.pop().unwrap_or_else(|| {
            self.events.push(None);
            self.events.len() - 1
        });
        assert!(place < 1 << PLACE_BITS, "too much to happen");
        self.events[place] = Some(event);
        self.sequence += 1;
        let order = self.sequence << PLACE_BITS | u64::try_from(place).unwrap();
        self.queue.push(Reverse((nanos(at), order)));
    }

    /// Lets everything happen until nothing is left, something went wrong, or the time is over.
    pub(crate) fn run(&mut self, until: Duration) {
        let until = nanos(until);
        while let Some(&Reverse((at, order))) = self.queue.peek()
            && at <= until
            && self.wrong.is_none()
        {
            self.queue.pop();
            let place = usize::try_from(order & ((1 << PLACE_BITS) - 1)).unwrap();
            self.spare.push(place);
            self.now = Duration::from_nanos(at);
            if let Some(event) = self.events[place].take() {
                self.note(order, &event);
                self.happen(event);
            }
        }
    }

    /// Something is wrong; the first such thing counts.
    pub(crate) fn fail(&mut self, why: String) {
        if self.wrong.is_none() {
            self.wrong = Some(format!("at {:?}, event {}: {why}", self.now, self.counts.events));
        }
    }

    /// Something is wrong with a stream, which is held against nobody if a liar had it.
    pub(crate) fn fail_stream(&mut self, stream: usize, why: String) {
        if self.streams.get(stream).is_some_and(|stream| !stream.is_prey) {
            self.fail(why);
        }
    }

    /// Says something about what happens, to whoever replays a schedule.
    pub(crate) fn say(&self, what: impl FnOnce() -> String) {
        if self.aloud {
            println!("            {}", what());
        }
    }

    fn note(&mut self, order: u64, event: &Event) {
        self.counts.events += 1;
        for word in [nanos(self.now), order] {
            self.digest = (self.digest ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        }
        if self.aloud {
            println!("{:>10.3} ms {event:?}", self.now.as_secs_f64() * 1e3);
        }
    }

    fn happen(&mut self, event: Event) {
        let host = match event {
            Event::Up(cable, side, _) | Event::Down(cable, side, _) | Event::Deliver(cable, side, ..) => {
                self.cables[cable].ends[side].0
            }
            Event::Program(program) => return self.run_program(program),
            Event::Connect(stream) => return self.connect(stream),
            Event::Fault(fault) => return self.strike(fault),
            Event::Tick(host, life)
            | Event::Turn(host, life)
            | Event::Pump(host, life, _)
            | Event::Accept(host, life, ..)
            | Event::Killed(host, life, _)
            | Event::Close(host, life, ..) => {
                if self.hosts[host].life != life {
                    return;
                }
                host
            }
        };
        if !self.hosts[host].alive {
            return;
        }
        if self.hosts[host].frozen {
            return self.hosts[host].backlog.push(event);
        }
        self.host_turn(host, event);
    }

    /// A host that runs does what an event means.
    pub(crate) fn host_turn(&mut self, host: usize, event: Event) {
        let before = self.policies[host].links.own_number();
        if let Event::Pump(_, _, transit) = event {
            let dry = self.pump(host, transit);
            if dry == [false; 2] {
                return;
            }
            self.let_policy_know_the_time(host);
            self.drained(host, transit, dry);
        } else {
            self.let_policy_know_the_time(host);
            self.daemon_turn(host, event);
        }
        self.run_policy(host);
        self.count_versions(host, before);
        self.plan_tick(host);
    }

    fn daemon_turn(&mut self, host: usize, event: Event) {
        match event {
            Event::Up(cable, side, epoch) => self.handle_up(cable, side, epoch),
            Event::Down(cable, side, epoch) => self.handle_down(cable, side, epoch),
            Event::Deliver(cable, side, epoch, message) => self.deliver(cable, side, epoch, message),
            Event::Tick(..) => self.tick(host),
            Event::Turn(..) => self.tell_neighbours(host),
            Event::Accept(_, _, stream, until) => self.accept(host, stream, until),
            Event::Killed(_, _, circuit) => self.policies[host].check_holders_soon(circuit, self.now),
            Event::Close(_, _, circuit, abort) => self.close_end(host, circuit, abort),
            Event::Pump(..) | Event::Program(_) | Event::Connect(_) | Event::Fault(_) => {}
        }
    }

    /// Somebody has something to do.
    pub(crate) fn wake(&mut self, actor: Actor) {
        match actor {
            Actor::Nobody => {}
            Actor::Program(program) => self.wake_program(program),
            Actor::Pump(host, life, transit) => self.wake_pump(host, life, transit),
        }
    }
}

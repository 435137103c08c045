//! Programs at the two ends of streams: they send numbered units, and check those that they get. The rules are those
//! that decision 11 sets for the library in a program.

use crate::ends::{Life, Next, Segments};
use crate::memory::{Actor, Unit};
use crate::world::{Event, World};
use crosslane_policy::Dial;
use crosslane_wire::CircuitId;
use crosslane_wire::control::ARRIVED_ALL;
use std::collections::VecDeque;
use std::time::Duration;

/// Units that a program can keep until they have landed.
const RETENTION: u64 = 32;
/// One program in so many must not wait for its connection.
const HURRIED: usize = 4;
/// Of those that break their stream off, programs of one stream in so many are killed instead.
const KILLED: usize = 3;

/// A stream between two hosts.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    /// Where the connecting and the listening program run.
    pub(crate) hosts: [usize; 2],
    /// Units that each of them sends, the last of which says that it is the last.
    pub(crate) totals: [u64; 2],
    /// After so many units read and written each breaks the stream off.
    pub(crate) aborts: [Option<u64>; 2],
    /// Whether a host that lies has had it.
    pub(crate) is_prey: bool,
    /// The programs, as soon as they are there.
    pub(crate) programs: [Option<usize>; 2],
}

/// How a program's stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// In order: all was read, and all that was written has landed.
    Closed,
    /// All was read and written, and then the circuit was lost for good.
    Unsure,
    /// With an error.
    Failed,
    /// It broke off the stream itself.
    Aborted,
    /// It was killed in the middle.
    Killed,
    /// There was no stream.
    Refused,
    /// Its host died.
    Gone,
}

/// A ring that is read.
#[derive(Clone, Copy, Debug)]
struct Segment {
    generation: u32,
    ring: usize,
    /// Units of the stream up to which it counts.
    limit: Option<u64>,
}

/// The ring that is written.
#[derive(Clone, Copy, Debug)]
struct Sending {
    ring: usize,
    /// Units of the stream before it.
    base: u64,
    retained: bool,
}

/// A program at one end of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// Its host.
    pub(crate) host: usize,
    /// Which stream.
    pub(crate) stream: usize,
    /// Which end of it.
    pub(crate) side: usize,
    /// The end's name.
    pub(crate) circuit: CircuitId,
    /// How it ended, and when.
    pub(crate) outcome: Option<Outcome>,
    generation: u32,
    reading: VecDeque<Segment>,
    sending: Option<Sending>,
    /// The next unit to write, the first that was never written, and the first that can be written again.
    next: u64,
    top: u64,
    kept: u64,
    received: u64,
    awake: bool,
}

impl Program {
    /// The generation of the ring that it reads.
    pub(crate) fn reads(&self) -> Option<u32> {
        self.reading.front().map(|segment| segment.generation)
    }
}

impl World {
    /// A program asks for its stream.
    pub(crate) fn connect(&mut self, stream: usize) {
        let [from, to] = self.streams[stream].hosts;
        if !self.hosts[from].alive || self.hosts[from].frozen {
            return;
        }
        let program = self.program(stream, 0, from, CircuitId(0));
        let hurried = stream.is_multiple_of(HURRIED);
        let (dial, now) = (Dial { tuple: self.tuple_of(stream), host: self.hosts[to].id, hurried }, self.now);
        let (policy, mut resources) = self.split(from);
        if policy.dial(dial, ((), program), now, &mut resources).is_err() {
            self.refused(program);
        }
        self.run_policy(from);
        self.plan_tick(from);
    }

    /// A program that accepted a connection.
    pub(crate) fn server_program(&mut self, stream: usize, circuit: CircuitId) -> usize {
        self.program(stream, 1, self.streams[stream].hosts[1], circuit)
    }

    fn program(&mut self, stream: usize, side: usize, host: usize, circuit: CircuitId) -> usize {
        let program = self.programs.len();
        self.programs.push(Program {
            host,
            stream,
            side,
            circuit,
            outcome: None,
            generation: 0,
            reading: VecDeque::new(),
            sending: None,
            next: 0,
            top: 0,
            kept: 0,
            received: 0,
            awake: false,
        });
        self.streams[stream].programs[side] = Some(program);
        program
    }

    /// There will be no stream.
    pub(crate) fn refused(&mut self, program: usize) {
        self.end(program, Outcome::Refused);
    }

    /// The program gets its first segments.
    pub(crate) fn granted(&mut self, program: usize) {
        let (host, circuit) = (self.programs[program].host, self.programs[program].circuit);
        let Some(segments) = self.first_segments(host, circuit) else {
            return self.fail(format!("program {program} is granted nothing"));
        };
        self.take(program, segments, true);
        self.wake_program(program);
    }

    /// The program has something to do, and does it soon: unless it computes.
    pub(crate) fn wake_program(&mut self, program: usize) {
        if self.programs[program].outcome.is_none() && !self.programs[program].awake {
            self.programs[program].awake = true;
            let pause = match self.random.below(60) {
                0 => self.random.micros(1000, 300_000),
                1..20 => self.random.micros(1000, 30_000),
                _ => self.random.micros(10, 300),
            };
            self.after(pause, Event::Program(program));
        }
    }

    /// A program runs for a moment.
    pub(crate) fn run_program(&mut self, program: usize) {
        self.programs[program].awake = false;
        let (host, circuit) = (self.programs[program].host, self.programs[program].circuit);
        if self.programs[program].outcome.is_some() || self.programs[program].reading.is_empty() {
            return;
        }
        let (dead, far_closed) = loop {
            let life = self.life_of(host, circuit);
            let published = match life {
                Life::Moving => return,
                Life::Alive(published) | Life::FarClosed(published) | Life::Dead(published) => published,
            };
            if published <= self.programs[program].generation {
                break (matches!(life, Life::Dead(_)), matches!(life, Life::FarClosed(_)));
            }
            if self.hosts[host].frozen {
                self.programs[program].awake = true;
                return self.after(Duration::from_millis(5), Event::Program(program));
            }
            match self.next_segments(host, circuit, self.programs[program].generation) {
                Some(next) => self.go_on(program, next),
                None => break (matches!(life, Life::Dead(_)), false),
            }
        };
        if dead || far_closed {
            while self.read(program) {}
            let outcome = match self.is_finished(program) {
                true if far_closed => Outcome::Closed,
                true => Outcome::Unsure,
                false => Outcome::Failed,
            };
            return self.close(program, outcome);
        }
        let (read, written) = (self.read_some(program), self.write_some(program));
        let here = &self.programs[program];
        let abort = self.streams[here.stream].aborts[here.side];
        if abort.is_some_and(|abort| here.received + here.next >= abort) {
            let is_killed = self.programs[program].stream.is_multiple_of(KILLED);
            if is_killed { self.kill_program(program) } else { self.close(program, Outcome::Aborted) }
        } else if self.is_finished(program) && self.programs[program].kept == self.total(program) {
            self.close(program, Outcome::Closed);
        } else if read || written {
            self.wake_program(program);
        }
    }

    fn total(&self, program: usize) -> u64 {
        let here = &self.programs[program];
        self.streams[here.stream].totals[here.side]
    }

    fn far_total(&self, program: usize) -> u64 {
        let here = &self.programs[program];
        self.streams[here.stream].totals[1 - here.side]
    }

    /// Whether all was read and written.
    fn is_finished(&self, program: usize) -> bool {
        let here = &self.programs[program];
        here.received == self.far_total(program) && here.next == self.total(program)
    }

    fn close(&mut self, program: usize, outcome: Outcome) {
        let (host, circuit) = (self.programs[program].host, self.programs[program].circuit);
        let abort = matches!(outcome, Outcome::Failed | Outcome::Aborted);
        self.end(program, outcome);
        self.after(Duration::ZERO, Event::Close(host, self.hosts[host].life, circuit, abort));
    }

    /// The program is killed: it says nothing, and its daemon sees its session end.
    pub(crate) fn kill_program(&mut self, program: usize) {
        let (host, circuit) = (self.programs[program].host, self.programs[program].circuit);
        self.end(program, Outcome::Killed);
        self.after(Duration::ZERO, Event::Killed(host, self.hosts[host].life, circuit));
    }

    /// The stream is over for its program.
    pub(crate) fn end(&mut self, program: usize, outcome: Outcome) {
        self.programs[program].outcome = Some(outcome);
        self.say(|| format!("program {program} {outcome:?}: {:?}", self.programs[program]));
        let count = match outcome {
            Outcome::Closed => 0,
            Outcome::Unsure | Outcome::Failed | Outcome::Aborted | Outcome::Killed => 1,
            Outcome::Refused | Outcome::Gone => 2,
        };
        self.counts.outcomes[count] += 1;
    }

    fn read_some(&mut self, program: usize) -> bool {
        let most = 1 + self.random.below(8);
        (0..most).map(|_| self.read(program)).take_while(|read| *read).count() > 0
    }

    /// Reads the next unit, if it is there.
    fn read(&mut self, program: usize) -> bool {
        let here = &mut self.programs[program];
        while here.reading.len() > 1
            && here.reading.front().is_some_and(|segment| segment.limit == Some(here.received))
        {
            here.reading.pop_front();
        }
        let (stream, side, number) = (here.stream, 1 - here.side, here.received);
        let Some(&segment) = here.reading.front() else { return false };
        if segment.limit.is_some_and(|limit| number >= limit) {
            if segment.limit != Some(number) {
                let why = format!("program {program} has read {number} units of {segment:?}");
                self.fail_stream(stream, why);
            }
            return false;
        }
        let Some(unit) = self.load(segment.ring) else { return false };
        if unit != (Unit { stream, side, number }) {
            let why = format!("program {program} reads {unit:?} and should read number {number}");
            self.fail_stream(stream, why);
        }
        if number >= self.far_total(program) {
            self.fail_stream(stream, format!("program {program} reads more than was sent"));
        }
        self.programs[program].received += 1;
        self.counts.units += 1;
        true
    }

    fn write_some(&mut self, program: usize) -> bool {
        let Some(sending) = self.programs[program].sending else { return false };
        let total = self.total(program);
        let most = 1 + self.random.below(8);
        let mut written = false;
        for _ in 0..most {
            let landed = sending.base + self.rings[sending.ring].landed;
            let here = &mut self.programs[program];
            here.kept = if sending.retained { here.kept.max(landed) } else { here.next };
            if here.next == total || here.next - here.kept >= RETENTION || !self.has_room(sending.ring) {
                break;
            }
            let here = &mut self.programs[program];
            let unit = Unit { stream: here.stream, side: here.side, number: here.next };
            here.next += 1;
            here.top = here.top.max(here.next);
            if !sending.retained {
                here.kept = here.next;
            }
            self.store(sending.ring, unit);
            written = true;
        }
        written
    }

    /// Goes on with the next segments.
    fn go_on(&mut self, program: usize, next: Next) {
        let segments = next.segments;
        let here = &mut self.programs[program];
        let (stream, received) = (here.stream, here.received);
        if let Some(last) = here.reading.back_mut() {
            last.limit = Some(segments.before);
        }
        if segments.before < received {
            let why = format!("program {program} has read {received} units of which {segments:?} count");
            self.fail_stream(stream, why);
        }
        self.take(program, segments, next.newest);
    }

    fn take(&mut self, program: usize, segments: Segments, newest: bool) {
        let here = &mut self.programs[program];
        here.generation = segments.generation;
        here.reading.push_back(Segment {
            generation: segments.generation,
            ring: segments.inbound,
            limit: None,
        });
        here.sending = None;
        self.rings[segments.inbound].reader = Actor::Program(program);
        if !newest {
            return;
        }
        let arrived = if segments.arrived == ARRIVED_ALL { here.top } else { segments.arrived };
        if arrived > here.top || arrived < here.kept {
            let (stream, kept, top) = (here.stream, here.kept, here.top);
            let why = format!(
                "program {program} shall go on from unit {arrived} and has those from {kept} to {top}"
            );
            return self.fail_stream(stream, why);
        }
        (here.next, here.kept) = (arrived, arrived);
        if let Some(ring) = segments.outbound {
            here.sending = Some(Sending { ring, base: arrived, retained: segments.retained });
            self.rings[ring].writer = Actor::Program(program);
        }
    }
}

//! What ends hold: segments by generation, and the programs that use them.

use crate::program::Program;
use crate::world::{Event, World};
use crosslane_fabric::circuit::{Role, Scope, State};
use crosslane_wire::control::ARRIVED_ALL;
use crosslane_wire::{ChannelId, CircuitId};
use std::collections::VecDeque;
use std::time::Duration;

/// How long a connection waits for its end to be known.
const PROOF_TIMEOUT: Duration = Duration::from_secs(4);
/// Pause between two looks.
const ASK_AGAIN: Duration = Duration::from_millis(2);

/// The segments of one circuit of an end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segments {
    /// Number of the circuit in the stream's life.
    pub(crate) generation: u32,
    /// The ring that is read.
    pub(crate) inbound: usize,
    /// The ring that is written; none before the far side has answered.
    pub(crate) outbound: Option<usize>,
    /// Units of the stream that had arrived here before.
    pub(crate) before: u64,
    /// Units that had arrived at the far end before.
    pub(crate) arrived: u64,
    /// Whether what is sent must be kept until it has landed.
    pub(crate) retained: bool,
}

impl Segments {
    /// Those of a circuit whose far side is not known yet.
    pub(crate) fn new(generation: u32, inbound: usize) -> Self {
        Self { generation, inbound, outbound: None, before: 0, arrived: 0, retained: false }
    }
}

/// What an end holds besides its state.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// Who uses it.
    pub(crate) program: Option<usize>,
    /// Segments by generation.
    pub(crate) segments: VecDeque<Segments>,
    /// Those of the circuit that is being asked for.
    pub(crate) attempt: Option<Segments>,
    /// The generation that the program was told of last.
    pub(crate) published: u32,
    /// The channel by which the connecting side was asked whether it is the connection's.
    pub(crate) asked: Option<ChannelId>,
    /// It said so.
    pub(crate) proven: bool,
}

impl Parts {
    /// Forgets segments that the program has left behind.
    pub(crate) fn trim(&mut self, programs: &[Program]) {
        let Some(generation) = self.program.and_then(|program| programs[program].reads()) else { return };
        while self.segments.len() > 1 && self.segments.front().is_some_and(|old| old.generation < generation)
        {
            self.segments.pop_front();
        }
    }

    /// The program may have the newest segments; so much had arrived at the far end.
    pub(crate) fn publish(&mut self, generation: u32, arrived: u64) {
        self.published = generation;
        if let Some(newest) = self.segments.back_mut().filter(|newest| newest.generation == generation) {
            newest.arrived = arrived;
        }
    }

    /// The end is dead: the program may have all segments there are, and read what has arrived in them.
    pub(crate) fn publish_all(&mut self) {
        if let Some(generation) = self.segments.back().map(|newest| newest.generation) {
            self.publish(generation.max(self.published), ARRIVED_ALL);
        }
    }
}

/// What `Resume` answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Next {
    /// The segments.
    pub(crate) segments: Segments,
    /// Whether they are the newest.
    pub(crate) newest: bool,
}

/// What a program sees in its life word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// In use, in this generation.
    Alive(u32),
    /// The same, and the far side has closed its end.
    FarClosed(u32),
    /// Stop, another circuit is sought.
    Moving,
    /// It is dead; the generation that was told of last.
    Dead(u32),
}

impl World {
    /// A neighbour made the circuit that a program asked for.
    pub(crate) fn opened(&mut self, host: usize, circuit: CircuitId) {
        let Some(program) = self.hosts[host].parts.get(&circuit).and_then(|parts| parts.program) else {
            return self.close_end(host, circuit, true);
        };
        self.granted(program);
        let stream = self.programs[program].stream;
        let server = self.streams[stream].hosts[1];
        let pause = self.random.micros(50, 20_000);
        let until = self.now + pause + PROOF_TIMEOUT;
        self.after(pause, Event::Accept(server, self.hosts[server].life, stream, until));
    }

    /// There is no circuit for the program that asked.
    pub(crate) fn refuse(&mut self, host: usize, circuit: CircuitId) {
        if let Some(program) = self.hosts[host].parts.get(&circuit).and_then(|parts| parts.program) {
            self.refused(program);
        }
    }

    /// A connection comes to a program that listens: of the ends that wait for it, that one is its own whose connecting side
    /// says so.
    pub(crate) fn accept(&mut self, host: usize, stream: usize, until: Duration) {
        let tuple = self.tuple_of(stream);
        let circuits = &self.policies[host].circuits;
        let is_pending =
            |circuit: &CircuitId| circuits.get(*circuit).is_some_and(|end| end.state == State::Pending);
        let pending: Vec<CircuitId> =
            circuits.ends_of(&tuple, Role::Server, Scope(0)).filter(is_pending).collect();
        let parts = &self.hosts[host].parts;
        let proven = pending.iter().find(|circuit| parts.get(circuit).is_some_and(|parts| parts.proven));
        if let Some(circuit) = proven.copied() {
            self.policies[host].circuits.accept(circuit);
            let program = self.server_program(stream, circuit);
            if let Some(parts) = self.hosts[host].parts.get_mut(&circuit) {
                parts.program = Some(program);
            }
            return self.granted(program);
        }
        if self.now >= until {
            return pending.into_iter().for_each(|circuit| self.close_end(host, circuit, true));
        }
        let is_some = !pending.is_empty();
        pending.into_iter().for_each(|circuit| self.ask_for_proof(host, circuit));
        if is_some {
            let life = self.hosts[host].life;
            self.after(ASK_AGAIN, Event::Accept(host, life, stream, until));
        }
    }

    /// Asks the connecting side of a pending end whether it is the connection's, once for each channel.
    fn ask_for_proof(&mut self, host: usize, circuit: CircuitId) {
        let channel = self.policies[host].circuits.get(circuit).and_then(|end| end.channel());
        let Some(parts) = self.hosts[host].parts.get_mut(&circuit) else { return };
        if channel.is_some() && parts.asked != channel {
            parts.asked = self.policies[host].circuits.ask_for_proof(circuit);
        }
    }

    /// The program that holds an end looks at it.
    pub(crate) fn wake_holder(&mut self, host: usize, circuit: CircuitId) {
        if let Some(program) = self.hosts[host].parts.get(&circuit).and_then(|parts| parts.program) {
            self.wake_program(program);
        }
    }

    /// The oldest segments that still count, for a program that is given the end.
    pub(crate) fn first_segments(&mut self, host: usize, circuit: CircuitId) -> Option<Segments> {
        let parts = self.hosts[host].parts.get_mut(&circuit)?;
        parts.trim(&self.programs);
        parts.segments.front().copied()
    }

    /// `Resume`: the segments after those that the program has.
    pub(crate) fn next_segments(&mut self, host: usize, circuit: CircuitId, generation: u32) -> Option<Next> {
        let parts = self.hosts[host].parts.get_mut(&circuit)?;
        parts.trim(&self.programs);
        let published = parts.published;
        let known = |next: u32| next > generation && next <= published;
        let segments = *parts.segments.iter().find(|segments| known(segments.generation))?;
        Some(Next { segments, newest: segments.generation == published })
    }

    /// What the program of an end sees of it.
    pub(crate) fn life_of(&self, host: usize, circuit: CircuitId) -> Life {
        let end = self.policies[host].circuits.get(circuit);
        let (Some(end), Some(parts)) = (end, self.hosts[host].parts.get(&circuit)) else {
            return Life::Dead(0);
        };
        match (end.death, end.moving) {
            (Some(_), _) => Life::Dead(parts.published),
            (None, Some(_)) => Life::Moving,
            (None, None) if end.generation != parts.published => Life::Moving,
            (None, None) if end.far_closed => Life::FarClosed(parts.published),
            (None, None) => Life::Alive(parts.published),
        }
    }

    /// A program has the end no longer.
    pub(crate) fn close_end(&mut self, host: usize, circuit: CircuitId, abort: bool) {
        if let Some(parts) = self.hosts[host].parts.get_mut(&circuit) {
            parts.segments.clear();
            parts.program = None;
        }
        self.policies[host].circuits.close(circuit, abort);
    }
}

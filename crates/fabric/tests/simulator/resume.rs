//! Streams that go on over another circuit. The rules are those of `crosslane-node`: its modules `resume` and `part`.

use crate::dial::{ANSWER, Asked};
use crate::memory::{range_of, ring_at};
use crate::world::World;
use crosslane_fabric::circuit::{End, Path, State};
use crosslane_wire::control::{ARRIVED_ALL, Refusal, Resumption};
use crosslane_wire::{CircuitId, PortId, SegmentRange};
use std::collections::VecDeque;
use std::time::Duration;

/// The segments of one circuit of an end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segments {
    /// Number of the circuit in the stream's life.
    pub(crate) generation: u32,
    /// The ring that is read.
    pub(crate) inbound: usize,
    /// The ring that is written; none of a circuit that was tried in vain.
    pub(crate) outbound: Option<usize>,
    /// Units of the stream that had arrived here before.
    pub(crate) before: u64,
    /// Units that had arrived at the far end before.
    pub(crate) arrived: u64,
    /// Whether what is sent must be kept until it has landed.
    pub(crate) retained: bool,
}

/// What an end holds besides its state.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// Who uses it.
    pub(crate) program: Option<usize>,
    /// Segments by generation.
    pub(crate) segments: VecDeque<Segments>,
    /// The generation that the program was told of last.
    pub(crate) published: u32,
    /// Ports whose paths were tried.
    pub(crate) tried: Vec<PortId>,
    /// Until when a program waits for it.
    pub(crate) deadline: Duration,
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
    /// Stop, another circuit is sought.
    Moving,
    /// It is dead; the generation that was told of last.
    Dead(u32),
}

impl World {
    /// Segments for a circuit that a neighbour asks for.
    pub(crate) fn answering(&mut self, host: usize, asked: &Asked, ring: usize, before: u64) -> Segments {
        self.hosts[host].leaning |= asked.passed > 0;
        Segments {
            generation: asked.resume.map_or(0, |resume| resume.generation),
            inbound: ring,
            outbound: Some(ring_at(asked.segment)),
            before,
            arrived: 0,
            retained: asked.passed > 0,
        }
    }

    /// The newest segments have a far side, at which so much had arrived.
    pub(crate) fn complete(&mut self, host: usize, circuit: CircuitId, segment: SegmentRange, arrived: u64) {
        let here = &mut self.hosts[host];
        let retained = here.circuits.get(circuit).is_some_and(|end| end.hops > 1);
        if let Some(newest) = here.parts.get_mut(&circuit).and_then(|parts| parts.segments.back_mut()) {
            (newest.outbound, newest.arrived, newest.retained) = (Some(ring_at(segment)), arrived, retained);
        }
    }

    /// Tries the next path for an end that moves.
    pub(crate) fn seek(&mut self, host: usize, circuit: CircuitId) {
        if self.try_path(host, circuit).is_none() {
            if let Some(parts) = self.hosts[host].parts.get_mut(&circuit) {
                parts.tried.clear();
            }
            self.hosts[host].circuits.no_way(circuit);
        }
    }

    fn try_path(&mut self, host: usize, circuit: CircuitId) -> Option<()> {
        let to = self.hosts[host].circuits.get(circuit)?.far_host();
        let tried = self.hosts[host].parts.get(&circuit)?.tried.clone();
        let (path, route) = self.path_to(host, to, &tried).ok()?;
        let attempt = self.attempt(host, path, route)?;
        let (channel, generation) = self.hosts[host].circuits.redial(circuit, path, self.now + ANSWER)?;
        self.say(|| format!("host {host}: {circuit} tries {path:?}, generation {generation}"));
        let parts = self.hosts[host].parts.get_mut(&circuit)?;
        parts.tried.push(path.port);
        // Into those of a try that came to nothing the far side has not written: it was never told to go on.
        parts.segments.retain(|segments| segments.outbound.is_some());
        self.ask_for(host, circuit, channel, attempt, Some(Resumption { generation }));
        Some(())
    }

    /// A path was found.
    pub(crate) fn resumed(&mut self, host: usize, circuit: CircuitId, segment: SegmentRange, arrived: u64) {
        self.counts.resumed += 1;
        self.complete(host, circuit, segment, arrived);
        let before = self.count(host, circuit, 1);
        self.say(|| format!("host {host}: {circuit} goes on, has {before}, far side {arrived}"));
        if let Some(newest) = self.newest(host, circuit) {
            newest.before = before;
        }
        self.hosts[host].circuits.tell_arrived(circuit, before);
        self.publish(host, circuit);
        self.hosts[host].circuits.finish(circuit, false);
    }

    /// The connecting side goes on.
    pub(crate) fn goes_on(&mut self, host: usize, circuit: CircuitId, arrived: u64) {
        let generation = self.hosts[host].circuits.get(circuit).map(|end| end.generation);
        let Some(parts) = self.hosts[host].parts.get_mut(&circuit) else { return };
        let published = parts.published;
        let newest = parts.segments.back_mut().filter(|segments| Some(segments.generation) == generation);
        let Some(newest) = newest.filter(|segments| segments.generation != published) else { return };
        newest.arrived = arrived;
        self.publish(host, circuit);
        self.hosts[host].circuits.finish(circuit, false);
    }

    fn newest(&mut self, host: usize, circuit: CircuitId) -> Option<&mut Segments> {
        self.hosts[host].parts.get_mut(&circuit)?.segments.back_mut()
    }

    /// The connecting side's host seeks another circuit for a stream.
    pub(crate) fn resume_for(
        &mut self,
        host: usize,
        port: PortId,
        asked: &Asked,
        resume: Resumption,
    ) -> Result<(), Refusal> {
        let here = &mut self.hosts[host];
        let epoch = here.port(port).up.ok_or(Refusal::Protocol)?;
        let path = Path { port, epoch, hops: asked.passed + 1, pumps: 0 };
        let (circuit, channel) =
            here.circuits.handle_resume(&asked.tuple, asked.stream, resume, path, asked.channel)?;
        let arrived = self.count(host, circuit, 0);
        let Some(ring) = self.carve(host, port.0.into()) else {
            self.hosts[host].circuits.unresume(circuit);
            return Err(Refusal::NoMemory);
        };
        self.say(|| format!("host {host}: {circuit} resumes with {resume:?}, has {arrived}"));
        let segments = self.answering(host, asked, ring, arrived);
        self.hosts[host].memory.insert(channel, range_of(ring));
        if let Some(parts) = self.hosts[host].parts.get_mut(&circuit) {
            parts.segments.push_back(segments);
            parts.tried.clear();
        }
        self.hosts[host].circuits.answer(channel, range_of(ring), 1, arrived);
        Ok(())
    }

    fn publish(&mut self, host: usize, circuit: CircuitId) {
        let here = &mut self.hosts[host];
        let (Some(end), Some(parts)) = (here.circuits.get(circuit), here.parts.get_mut(&circuit)) else {
            return;
        };
        parts.published = end.generation;
        parts.tried.clear();
        self.wake_holder(host, circuit);
    }

    /// The program that holds an end looks at it.
    pub(crate) fn wake_holder(&mut self, host: usize, circuit: CircuitId) {
        if let Some(program) = self.hosts[host].parts.get(&circuit).and_then(|parts| parts.program) {
            self.wake_program(program);
        }
    }

    /// Units that have arrived here before the newest so many segments; all, if nobody reads any more.
    fn count(&mut self, host: usize, circuit: CircuitId, newest: usize) -> u64 {
        let closed = |end: &End| matches!(end.state, State::Closing(_));
        if self.hosts[host].circuits.get(circuit).is_none_or(closed) {
            return ARRIVED_ALL;
        }
        self.trim(host, circuit);
        let parts = self.hosts[host].parts.get(&circuit);
        let last = parts.and_then(|parts| parts.segments.iter().rev().nth(newest).copied());
        last.map_or(ARRIVED_ALL, |last| last.before + self.rings[last.inbound].written)
    }

    fn trim(&mut self, host: usize, circuit: CircuitId) {
        let Some(parts) = self.hosts[host].parts.get_mut(&circuit) else { return };
        let reads = parts.program.and_then(|program| self.programs[program].reads());
        let Some(generation) = reads else { return };
        while parts.segments.len() > 1
            && parts.segments.front().is_some_and(|old| old.generation < generation)
        {
            parts.segments.pop_front();
        }
    }

    /// The oldest segments that still count, for a program that is given the end.
    pub(crate) fn first_segments(&mut self, host: usize, circuit: CircuitId) -> Option<Segments> {
        self.trim(host, circuit);
        self.hosts[host].parts.get(&circuit)?.segments.front().copied()
    }

    /// `Resume`: the segments after those that the program has.
    pub(crate) fn next_segments(&mut self, host: usize, circuit: CircuitId, generation: u32) -> Option<Next> {
        self.trim(host, circuit);
        let parts = self.hosts[host].parts.get(&circuit)?;
        let published = parts.published;
        let known = |next: u32| next > generation && next <= published;
        let segments = *parts.segments.iter().find(|segments| known(segments.generation))?;
        Some(Next { segments, newest: segments.generation == published })
    }

    /// What the program of an end sees of it.
    pub(crate) fn life_of(&self, host: usize, circuit: CircuitId) -> Life {
        let here = &self.hosts[host];
        let (Some(end), Some(parts)) = (here.circuits.get(circuit), here.parts.get(&circuit)) else {
            return Life::Dead(0);
        };
        match (end.death, end.moving) {
            (Some(_), _) => Life::Dead(parts.published),
            (None, Some(_)) => Life::Moving,
            (None, None) if end.generation != parts.published => Life::Moving,
            (None, None) => Life::Alive(parts.published),
        }
    }

    /// A program has the end no longer.
    pub(crate) fn close_end(&mut self, host: usize, circuit: CircuitId, abort: bool) {
        if let Some(parts) = self.hosts[host].parts.get_mut(&circuit) {
            parts.segments.clear();
            parts.program = None;
        }
        self.hosts[host].circuits.close(circuit, abort);
    }

    /// An end that no program ever accepts is closed.
    pub(crate) fn look_into(&mut self, host: usize, circuit: CircuitId) {
        if self.hosts[host].circuits.get(circuit).is_some_and(|end| end.state == State::Pending) {
            self.close_end(host, circuit, false);
        }
    }
}

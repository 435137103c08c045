//! Ends of circuits at their hosts: dialling, answering, going on over another circuit. The rules are those of
//! `crosslane-node`: its modules `dial`, `resume` and `part`.

use crate::memory::{range_of, ring_at};
use crate::world::{Event, World};
use crosslane_fabric::channel;
use crosslane_fabric::circuit::{Path, Role, Scope, State};
use crosslane_wire::control::{ARRIVED_ALL, Control, Refusal, Resumption};
use crosslane_wire::{ChannelId, CircuitId, HostId, PortId, SliceRange, Tuple};
use std::collections::VecDeque;
use std::time::Duration;

/// How long a neighbour may take to answer.
pub(crate) const ANSWER: Duration = Duration::from_millis(500);

/// The slices of one circuit of an end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slices {
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
    /// Slices by generation.
    pub(crate) slices: VecDeque<Slices>,
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
    /// The slices.
    pub(crate) slices: Slices,
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

/// A path that is about to be tried.
struct Attempt {
    path: Path,
    route: Vec<HostId>,
    ring: usize,
}

impl World {
    /// A program of a host asks for a stream; whether anything was asked for.
    pub(crate) fn dial(
        &mut self,
        host: usize,
        tuple: Tuple,
        stream: u64,
        to: HostId,
        program: usize,
    ) -> Option<()> {
        let (path, route) = self.path_to(host, to, &[]).ok()?;
        let attempt = self.attempt(host, path, route)?;
        let deadline = self.now + ANSWER;
        let (circuit, channel) = self.hosts[host].circuits.dial(tuple, stream, to, path, deadline);
        let parts = Parts { program: Some(program), tried: vec![path.port], deadline, ..Parts::default() };
        self.hosts[host].parts.insert(circuit, parts);
        self.programs[program].circuit = circuit;
        self.ask_for(host, circuit, channel, attempt, None);
        self.plan_tick(host);
        Some(())
    }

    fn path_to(&mut self, host: usize, to: HostId, tried: &[PortId]) -> Result<(Path, Vec<HostId>), Refusal> {
        let paths: Vec<_> = self.hosts[host].links.paths(to).collect();
        let mut why = Refusal::NoRoute;
        for (way, route) in paths {
            if tried.contains(&way.port) {
                continue;
            }
            if self.is_late(host, way.port) {
                why = Refusal::Timeout;
                continue;
            }
            if let Some(epoch) = self.hosts[host].port(way.port).up {
                return Ok((Path { port: way.port, epoch, hops: way.hops }, route));
            }
        }
        Err(why)
    }

    fn attempt(&mut self, host: usize, path: Path, route: Vec<HostId>) -> Option<Attempt> {
        let ring = self.carve(host, path.port.0.into())?;
        Some(Attempt { path, route, ring })
    }

    fn ask_for(
        &mut self,
        host: usize,
        circuit: CircuitId,
        channel: ChannelId,
        attempt: Attempt,
        resume: Option<Resumption>,
    ) {
        let here = &mut self.hosts[host];
        let Some((tuple, stream)) = here.circuits.get(circuit).map(|end| (end.tuple, end.stream)) else {
            return;
        };
        let Attempt { path, route, ring, .. } = attempt;
        here.leaning |= path.hops > 1;
        here.memory.insert(channel, range_of(ring));
        if let Some(parts) = here.parts.get_mut(&circuit) {
            parts.slices.push_back(Slices {
                generation: resume.map_or(0, |resume| resume.generation),
                inbound: ring,
                outbound: None,
                before: 0,
                arrived: 0,
                retained: false,
            });
        }
        let slice = range_of(ring);
        let open = Control::Open { channel, tuple, stream, slice, key: 1, passed: 0, route, resume };
        self.send(host, path.port, open);
    }

    /// A circuit that was asked for will not be.
    pub(crate) fn failed(&mut self, host: usize, circuit: CircuitId, channel: ChannelId, why: Refusal) {
        self.say(|| format!("host {host}: {circuit} by {channel} failed: {why:?}"));
        if why == Refusal::Timeout {
            self.note_late(host, channel);
        }
        if self.hosts[host].circuits.get(circuit).is_some_and(|end| end.moving.is_some()) {
            return self.try_failed(host, circuit, why);
        }
        if let Some(parts) = self.hosts[host].parts.get_mut(&circuit) {
            parts.slices.clear();
        }
        if matches!(why, Refusal::NoMemory | Refusal::NoRoute) && self.try_another(host, circuit).is_some() {
            return;
        }
        if let Some(program) = self.hosts[host].parts.get(&circuit).and_then(|parts| parts.program) {
            self.refused(program);
        }
        self.hosts[host].circuits.give_up(circuit);
    }

    fn try_another(&mut self, host: usize, circuit: CircuitId) -> Option<()> {
        let to = self.hosts[host].circuits.get(circuit)?.far_host();
        let parts = self.hosts[host].parts.get(&circuit).filter(|parts| parts.deadline > self.now)?;
        let (tried, deadline) = (parts.tried.clone(), parts.deadline);
        let (path, route) = self.path_to(host, to, &tried).ok()?;
        let attempt = self.attempt(host, path, route)?;
        let (channel, _) = self.hosts[host].circuits.redial(circuit, path, deadline)?;
        self.hosts[host].parts.get_mut(&circuit)?.tried.push(path.port);
        self.ask_for(host, circuit, channel, attempt, None);
        Some(())
    }

    fn note_late(&mut self, host: usize, channel: ChannelId) {
        if let Some(port) = self.hosts[host].circuits.channel(channel).map(|found| found.port)
            && !self.owes(host, port)
        {
            let now = self.now;
            self.hosts[host].late.insert(port, (channel, now));
        }
    }

    fn is_late(&mut self, host: usize, port: PortId) -> bool {
        let owes = self.owes(host, port);
        if !owes {
            self.hosts[host].late.remove(&port);
        }
        let since = self.hosts[host].late.get(&port).map(|(_, since)| *since);
        owes && since.is_some_and(|since| self.now.saturating_sub(since) >= ANSWER)
    }

    fn owes(&self, host: usize, port: PortId) -> bool {
        let here = &self.hosts[host];
        let channel = here.late.get(&port).and_then(|(channel, _)| here.circuits.channel(*channel));
        channel.is_some_and(|found| matches!(found.state, channel::State::Abandoned(_)))
    }

    /// A neighbour asks for a circuit.
    pub(crate) fn handle_open(&mut self, host: usize, port: PortId, open: Control) {
        let Control::Open { channel, tuple, stream, slice, passed, route, resume, .. } = open else { return };
        let asked = Asked { channel, tuple, stream, slice, passed, resume };
        let outcome = match (&asked.resume, route.is_empty()) {
            (_, false) => self.pass_on(host, port, &asked, route),
            (None, true) => self.open_for(host, port, &asked),
            (Some(resume), true) => self.resume_for(host, port, &asked, *resume),
        };
        if let Err(why) = outcome {
            self.send(host, port, Control::Refused { channel: asked.channel, why });
        }
    }

    fn open_for(&mut self, host: usize, port: PortId, asked: &Asked) -> Result<(), Refusal> {
        let client = self.streams[stream_of(&asked.tuple)].hosts[0];
        self.replace(host, &asked.tuple);
        let ring = self.carve(host, port.0.into()).ok_or(Refusal::NoMemory)?;
        let here = &mut self.hosts[host];
        let epoch = here.port(port).up.ok_or(Refusal::Protocol)?;
        let path = Path { port, epoch, hops: asked.passed + 1 };
        let client = HostId(u16::try_from(client + 1).unwrap());
        let opened = here.circuits.handle_open(asked.tuple, asked.stream, client, path, asked.channel);
        let (circuit, channel) = match opened {
            Ok(opened) => opened,
            Err(why) => {
                self.give_back(host, port.0.into(), ring);
                return Err(why);
            }
        };
        here.memory.insert(channel, range_of(ring));
        let mut parts = Parts::default();
        parts.slices.push_back(self.answering(host, asked, ring, 0));
        self.hosts[host].parts.insert(circuit, parts);
        self.hosts[host].circuits.answer(channel, range_of(ring), 1, 0);
        Ok(())
    }

    /// An end of the same connection that nobody accepted belongs to an earlier try.
    fn replace(&mut self, host: usize, tuple: &Tuple) {
        let here = &self.hosts[host].circuits;
        if let Some(old) = here.find(tuple, Role::Server, Scope(0))
            && here.get(old).is_some_and(|end| end.state == State::Pending)
        {
            self.close_end(host, old, true);
        }
    }

    fn answering(&mut self, host: usize, asked: &Asked, ring: usize, before: u64) -> Slices {
        self.hosts[host].leaning |= asked.passed > 0;
        Slices {
            generation: asked.resume.map_or(0, |resume| resume.generation),
            inbound: ring,
            outbound: Some(ring_at(asked.slice)),
            before,
            arrived: 0,
            retained: asked.passed > 0,
        }
    }

    /// A neighbour made the circuit that a program asked for.
    pub(crate) fn opened(&mut self, host: usize, circuit: CircuitId, slice: SliceRange) {
        self.complete(host, circuit, slice, 0);
        let Some(program) = self.hosts[host].parts.get(&circuit).and_then(|parts| parts.program) else {
            return self.close_end(host, circuit, true);
        };
        self.granted(program);
        let server = self.streams[self.programs[program].stream].hosts[1];
        if let Some(tuple) = self.hosts[host].circuits.get(circuit).map(|end| end.tuple) {
            let pause = self.random.micros(50, 20_000);
            self.after(pause, Event::Accept(server, self.hosts[server].life, tuple));
        }
    }

    fn complete(&mut self, host: usize, circuit: CircuitId, slice: SliceRange, arrived: u64) {
        let here = &mut self.hosts[host];
        let retained = here.circuits.get(circuit).is_some_and(|end| end.hops > 1);
        if let Some(newest) = here.parts.get_mut(&circuit).and_then(|parts| parts.slices.back_mut()) {
            (newest.outbound, newest.arrived, newest.retained) = (Some(ring_at(slice)), arrived, retained);
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
        parts.slices.retain(|slices| slices.outbound.is_some());
        self.ask_for(host, circuit, channel, attempt, Some(Resumption { generation }));
        Some(())
    }

    fn try_failed(&mut self, host: usize, circuit: CircuitId, why: Refusal) {
        self.hosts[host].circuits.try_failed(circuit, why);
    }

    /// A path was found.
    pub(crate) fn resumed(&mut self, host: usize, circuit: CircuitId, slice: SliceRange, arrived: u64) {
        self.counts.resumed += 1;
        self.complete(host, circuit, slice, arrived);
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
        let newest = parts.slices.back_mut().filter(|slices| Some(slices.generation) == generation);
        let Some(newest) = newest.filter(|slices| slices.generation != published) else { return };
        newest.arrived = arrived;
        self.publish(host, circuit);
        self.hosts[host].circuits.finish(circuit, false);
    }

    fn newest(&mut self, host: usize, circuit: CircuitId) -> Option<&mut Slices> {
        self.hosts[host].parts.get_mut(&circuit)?.slices.back_mut()
    }

    fn resume_for(
        &mut self,
        host: usize,
        port: PortId,
        asked: &Asked,
        resume: Resumption,
    ) -> Result<(), Refusal> {
        let here = &mut self.hosts[host];
        let epoch = here.port(port).up.ok_or(Refusal::Protocol)?;
        let path = Path { port, epoch, hops: asked.passed + 1 };
        let (circuit, channel) =
            here.circuits.handle_resume(&asked.tuple, asked.stream, resume, path, asked.channel)?;
        let arrived = self.count(host, circuit, 0);
        let Some(ring) = self.carve(host, port.0.into()) else {
            self.hosts[host].circuits.unresume(circuit);
            return Err(Refusal::NoMemory);
        };
        self.say(|| format!("host {host}: {circuit} resumes with {resume:?}, has {arrived}"));
        let slices = self.answering(host, asked, ring, arrived);
        self.hosts[host].memory.insert(channel, range_of(ring));
        if let Some(parts) = self.hosts[host].parts.get_mut(&circuit) {
            parts.slices.push_back(slices);
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

    /// Units that have arrived here before the newest so many slices; all, if nobody reads any more.
    fn count(&mut self, host: usize, circuit: CircuitId, newest: usize) -> u64 {
        let closed = |end: &crosslane_fabric::circuit::End| matches!(end.state, State::Closing(_));
        if self.hosts[host].circuits.get(circuit).is_none_or(closed) {
            return ARRIVED_ALL;
        }
        self.trim(host, circuit);
        let parts = self.hosts[host].parts.get(&circuit);
        let last = parts.and_then(|parts| parts.slices.iter().rev().nth(newest).copied());
        last.map_or(ARRIVED_ALL, |last| last.before + self.rings[last.inbound].written)
    }

    fn trim(&mut self, host: usize, circuit: CircuitId) {
        let Some(parts) = self.hosts[host].parts.get_mut(&circuit) else { return };
        let reads = parts.program.and_then(|program| self.programs[program].reads());
        let Some(generation) = reads else { return };
        while parts.slices.len() > 1 && parts.slices.front().is_some_and(|old| old.generation < generation) {
            parts.slices.pop_front();
        }
    }

    /// The oldest slices that still count, for a program that is given the end.
    pub(crate) fn first_slices(&mut self, host: usize, circuit: CircuitId) -> Option<Slices> {
        self.trim(host, circuit);
        self.hosts[host].parts.get(&circuit)?.slices.front().copied()
    }

    /// `Resume`: the slices after those that the program has.
    pub(crate) fn next_slices(&mut self, host: usize, circuit: CircuitId, generation: u32) -> Option<Next> {
        self.trim(host, circuit);
        let parts = self.hosts[host].parts.get(&circuit)?;
        let published = parts.published;
        let known = |next: u32| next > generation && next <= published;
        let slices = *parts.slices.iter().find(|slices| known(slices.generation))?;
        Some(Next { slices, newest: slices.generation == published })
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
            parts.slices.clear();
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

    /// A connection comes to a program that listens.
    pub(crate) fn accept(&mut self, host: usize, tuple: &Tuple) {
        if let Some(circuit) = self.hosts[host].circuits.accept(tuple, Scope(0)) {
            let program = self.server_program(stream_of(tuple), circuit);
            if let Some(parts) = self.hosts[host].parts.get_mut(&circuit) {
                parts.program = Some(program);
            }
            self.granted(program);
        }
    }
}

/// What `Open` says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// The neighbour's end of the channel.
    pub(crate) channel: ChannelId,
    /// The connection.
    pub(crate) tuple: Tuple,
    /// The stream's secret.
    pub(crate) stream: u64,
    /// Where we may write.
    pub(crate) slice: SliceRange,
    /// Cables passed before this one.
    pub(crate) passed: u8,
    /// A stream that goes on.
    pub(crate) resume: Option<Resumption>,
}

/// The stream that a connection belongs to: its port tells.
pub(crate) fn stream_of(tuple: &Tuple) -> usize {
    usize::from(tuple.client.port()) - 1024
}

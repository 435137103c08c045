//! Circuits to other hosts: asked for by programs here, or by other hosts. The rules are those of `crosslane-node`: its
//! module `dial`.

use crate::memory::range_of;
use crate::resume::{Parts, Segments};
use crate::world::{Event, World};
use crosslane_fabric::channel;
use crosslane_fabric::circuit::{Path, Role, Scope, State};
use crosslane_wire::control::{Control, Refusal, Resumption};
use crosslane_wire::{ChannelId, CircuitId, HostId, PortId, SegmentRange, Tuple};
use std::time::Duration;

/// How long a neighbour may take to answer.
pub(crate) const ANSWER: Duration = Duration::from_millis(500);

/// A path that is about to be tried.
pub(crate) struct Attempt {
    path: Path,
    route: Vec<HostId>,
    ring: usize,
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
    pub(crate) segment: SegmentRange,
    /// Cables passed before this one.
    pub(crate) passed: u8,
    /// A stream that goes on.
    pub(crate) resume: Option<Resumption>,
}

/// The connection of a stream.
pub(crate) fn tuple_of(stream: usize) -> Tuple {
    let port = u16::try_from(stream + 1024).unwrap();
    Tuple { client: ([10, 0, 0, 1], port).into(), server: ([10, 0, 0, 2], 80).into() }
}

/// The stream that a connection belongs to: its port tells.
pub(crate) fn stream_of(tuple: &Tuple) -> usize {
    usize::from(tuple.client.port()) - 1024
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

    /// The shortest path to a host that does not begin with one of these ports.
    pub(crate) fn path_to(
        &mut self,
        host: usize,
        to: HostId,
        tried: &[PortId],
    ) -> Result<(Path, Vec<HostId>), Refusal> {
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
                return Ok((Path { port: way.port, epoch, hops: way.hops, pumps: 0 }, route));
            }
        }
        Err(why)
    }

    /// Memory for the first channel of a path.
    pub(crate) fn attempt(&mut self, host: usize, path: Path, route: Vec<HostId>) -> Option<Attempt> {
        let ring = self.carve(host, path.port.0.into())?;
        Some(Attempt { path, route, ring })
    }

    /// Sends `Open` for an end's new channel.
    pub(crate) fn ask_for(
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
        let Attempt { path, route, ring } = attempt;
        here.leaning |= path.hops > 1;
        here.memory.insert(channel, range_of(ring));
        if let Some(parts) = here.parts.get_mut(&circuit) {
            parts.segments.push_back(Segments {
                generation: resume.map_or(0, |resume| resume.generation),
                inbound: ring,
                outbound: None,
                before: 0,
                arrived: 0,
                retained: false,
            });
        }
        let segment = range_of(ring);
        let open =
            Control::Open { channel, tuple, stream, segment, key: 1, passed: 0, pumps: 0, route, resume };
        self.send(host, path.port, open);
    }

    /// A circuit that was asked for will not be.
    pub(crate) fn failed(&mut self, host: usize, circuit: CircuitId, channel: ChannelId, why: Refusal) {
        self.say(|| format!("host {host}: {circuit} by {channel} failed: {why:?}"));
        if why == Refusal::Timeout {
            self.note_late(host, channel);
        }
        if self.hosts[host].circuits.get(circuit).is_some_and(|end| end.moving.is_some()) {
            return self.hosts[host].circuits.try_failed(circuit, why);
        }
        if let Some(parts) = self.hosts[host].parts.get_mut(&circuit) {
            parts.segments.clear();
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
        self.hosts[host].circuits.rename(circuit, self.random.next().max(1));
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
        let Control::Open { channel, tuple, stream, segment, passed, route, resume, .. } = open else {
            return;
        };
        let asked = Asked { channel, tuple, stream, segment, passed, resume };
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
        let path = Path { port, epoch, hops: asked.passed + 1, pumps: 0 };
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
        parts.segments.push_back(self.answering(host, asked, ring, 0));
        self.hosts[host].parts.insert(circuit, parts);
        self.hosts[host].circuits.answer(channel, range_of(ring), 1, 0);
        Ok(())
    }

    /// An end of the same connection that nobody accepted belongs to an earlier try.
    fn replace(&mut self, host: usize, tuple: &Tuple) {
        let here = &self.hosts[host].circuits;
        let newest = here.ends_of(tuple, Role::Server, Scope(0)).next();
        if let Some(old) = newest
            && here.get(old).is_some_and(|end| end.state == State::Pending)
        {
            self.close_end(host, old, true);
        }
    }

    /// A neighbour made the circuit that a program asked for.
    pub(crate) fn opened(&mut self, host: usize, circuit: CircuitId, segment: SegmentRange) {
        self.complete(host, circuit, segment, 0);
        let Some(program) = self.hosts[host].parts.get(&circuit).and_then(|parts| parts.program) else {
            return self.close_end(host, circuit, true);
        };
        self.granted(program);
        let stream = self.programs[program].stream;
        let server = self.streams[stream].hosts[1];
        let pause = self.random.micros(50, 20_000);
        self.after(pause, Event::Accept(server, self.hosts[server].life, stream));
    }

    /// A connection comes to a program that listens.
    pub(crate) fn accept(&mut self, host: usize, stream: usize) {
        let circuits = &mut self.hosts[host].circuits;
        let newest = circuits.ends_of(&tuple_of(stream), Role::Server, Scope(0)).next();
        if let Some(circuit) = newest.filter(|circuit| circuits.accept(*circuit)) {
            let program = self.server_program(stream, circuit);
            if let Some(parts) = self.hosts[host].parts.get_mut(&circuit) {
                parts.program = Some(program);
            }
            self.granted(program);
        }
    }
}

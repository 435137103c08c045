//! A network in virtual time: events, one after the other in the order of their times, over the directions of its cables.
//!
//! ```text
//!   program --> wire -- flight, landing --> ring in the next host's memory --> pump --> wire --> ..  --> ring, read at once
//!               ^   ^                          |                                |
//!               |   one piece at a time, of    +------ credit: room is told back, when the piece has been copied on
//!               |   programs and of the pump
//!               |   by turns
//!   acknowledgements of the other direction's packets
//! ```
//! Bytes go in pieces: single packets ([`Grain::Packets`], exact) or as many as a pump copies in a turn ([`Grain::Turns`], in one step
//! each). A piece is on its way only if the ring at the other end of the cable has room for it, so what a host holds for a flow is bounded, and
//! a flow that is held up holds up no other one. The pump of a host is one thread: it copies one piece at a time, and waits while the wire takes it.
//! The program at the far end reads at once what has landed. Nothing depends on the clock or on chance but bit errors, which are those
//! of the seed: the same calls give the same times.

mod event;
mod flow;
mod traffic;
mod wire;

pub use flow::FlowId;
pub use traffic::Exchange;

use crate::formulas::Formulas;
use crate::network::Network;
use event::{Event, Events};
use flow::{Flow, Flows};
use std::collections::VecDeque;
use wire::{Job, Wire};

/// In what pieces bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grain {
    /// One packet each.
    Packets,
    /// What a pump copies in a turn, in as many packets as that takes.
    Turns,
}

/// The pump of a host.
#[derive(Debug, Default)]
struct Pump {
    busy: bool,
    /// Flows that have bytes here and room in the next ring, in the order of their turns, and which cable of their path is the next.
    ready: VecDeque<(FlowId, u16)>,
}

/// What became of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The bytes that were waited for have arrived.
    Arrived,
    /// Nothing is left to happen.
    Idle,
}

/// Bytes that a program at the far end of a flow has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Of this flow.
    pub flow: FlowId,
    /// Behind so many others of it.
    pub offset: u64,
    /// So many.
    pub len: u64,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Bytes have arrived at the far end of a flow.
    Arrived(Arrival),
    /// Something else.
    Other,
}

/// A network in which flows of bytes move.
#[derive(Debug)]
pub struct Simulation<'a> {
    network: &'a Network,
    formulas: Formulas,
    grain: Grain,
    now: u64,
    events: Events,
    wires: Vec<Wire>,
    pumps: Vec<Pump>,
    flows: Flows,
    /// Most bytes of a piece.
    piece: u64,
    /// Time until the host before knows of room.
    credit: u64,
    delivered: u64,
    handled: u64,
}

impl<'a> Simulation<'a> {
    /// A network at rest. `seed`: of bit errors.
    pub fn new(network: &'a Network, formulas: Formulas, grain: Grain, seed: u64) -> Self {
        let wires = (0..2 * network.cables().len() as u64).map(|number| {
            Wire::new(&formulas, grain, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number))
        });
        let packet = formulas.cable.writer.payload(&formulas.cable);
        Self {
            network,
            formulas,
            grain,
            now: 0,
            events: Events::default(),
            wires: wires.collect(),
            pumps: (0..network.hosts()).map(|_| Pump::default()).collect(),
            flows: Flows::default(),
            piece: if grain == Grain::Packets { packet } else { formulas.forwarding.turn },
            credit: formulas.credit(),
            delivered: 0,
            handled: 0,
        }
    }

    /// The time, picoseconds.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Bytes that have arrived at the far ends of all flows.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Events so far.
    pub fn handled(&self) -> u64 {
        self.handled
    }

    /// Bytes of a flow that have arrived; `None` if it has ended.
    pub fn arrived(&self, flow: FlowId) -> Option<u64> {
        self.flows.get(flow).map(Flow::arrived)
    }

    /// A flow of `bytes` bytes along these directions, which begins at `at`, or now if that is past. It is forgotten when all bytes
    /// have arrived and all room is known again; its id may then be another one's.
    pub fn start(&mut self, path: Vec<usize>, bytes: u64, at: u64) -> FlowId {
        let flow = self.flows.add(Flow::new(path, bytes));
        self.schedule(at.max(self.now), flow, Event::Offer { flow });
        flow
    }

    /// Gives a flow that has not ended more bytes to send.
    pub fn send(&mut self, flow: FlowId, bytes: u64) {
        if let Some(it) = self.flows.get_mut(flow) {
            it.more(bytes);
            self.schedule(self.now, flow, Event::Offer { flow });
        }
    }

    /// Runs until so many bytes have arrived in all, or until nothing is left to happen.
    pub fn run_until(&mut self, delivered: u64) -> Ended {
        while self.delivered < delivered {
            if self.step().is_none() {
                return Ended::Idle;
            }
        }
        Ended::Arrived
    }

    /// Lets the next event happen. `None`: nothing is left.
    pub fn step(&mut self) -> Option<Step> {
        let (at, event) = self.events.pop()?;
        debug_assert!(at >= self.now, "events happen in order");
        self.now = at;
        self.handled += 1;
        let mut step = Step::Other;
        match event {
            Event::Offer { flow } => self.offer(flow),
            Event::Landed { flow, cable, len, offset } => step = self.landed(flow, cable, (offset, len)),
            Event::Credit { flow, cable, len } => self.credited(flow, cable, len),
            Event::WireFree { direction } => {
                self.wires[direction as usize].busy = false;
                self.serve(direction as usize);
            }
            Event::PumpFree { host } => {
                self.pumps[usize::from(host)].busy = false;
                self.pump(host);
            }
        }
        if let Some(flow) = event.flow() {
            self.flows.happened(flow);
        }
        Some(step)
    }

    fn schedule(&mut self, at: u64, flow: FlowId, event: Event) {
        self.flows.expect(flow);
        self.events.push(at, event);
    }

    /// Puts a flow whose program has bytes, and room for them, into the queue of its first wire.
    fn offer(&mut self, id: FlowId) {
        let ring = self.formulas.forwarding.ring;
        let (piece, now) = (self.piece, self.now);
        let Some(flow) = self.flows.get_mut(id) else { return };
        if !flow.hops[0].queued && flow.next_piece(0, piece, ring).is_some() {
            flow.hops[0].queued = true;
            flow.ordered = now;
            let direction = flow.path[0] as usize;
            self.wires[direction].programs.push_back(id);
            self.serve(direction);
        }
    }

    /// Sends the next piece over a wire that is free.
    fn serve(&mut self, direction: usize) {
        let wire = &mut self.wires[direction];
        if wire.busy {
            return;
        }
        match wire.next() {
            Some(Job::Program(flow)) => self.send_own(direction, flow),
            Some(Job::Pump { flow, cable, piece, ordered }) => {
                self.send_on(direction, (flow, cable), piece, ordered)
            }
            None => {}
        }
    }

    /// A piece of the program at the beginning of a flow.
    fn send_own(&mut self, direction: usize, id: FlowId) {
        let ring = self.formulas.forwarding.ring;
        let Some(flow) = self.flows.get_mut(id) else { return };
        let ordered = flow.ordered;
        let len = flow.next_piece(0, self.piece, ring).unwrap_or(0);
        let offset = flow.hops[0].sent;
        flow.hops[0].sent += len;
        let more = flow.next_piece(0, self.piece, ring).is_some();
        flow.hops[0].queued = more;
        if more {
            self.wires[direction].programs.push_back(id);
        }
        let sent = self.put(direction, len, ordered);
        self.land(id, 0, (offset, len), sent.landed);
    }

    /// A piece that the pump at the beginning of a direction copies.
    fn send_on(&mut self, direction: usize, (id, cable): (FlowId, u16), piece: (u64, u64), ordered: u64) {
        let len = piece.1;
        let host = self.network.ends(direction).0;
        let sent = self.put(direction, len, ordered);
        let (copied, landed) = self.wires[direction].copied(&self.formulas, len, ordered);
        let done = copied.max(sent.handed_over);
        self.events.push(done, Event::PumpFree { host });
        self.schedule(done + self.credit, id, Event::Credit { flow: id, cable: cable - 1, len: small(len) });
        self.land(id, cable, piece, sent.landed.max(landed));
    }

    /// Puts a piece on a wire, and its acknowledgements on the other direction's.
    fn put(&mut self, direction: usize, len: u64, ordered: u64) -> wire::Put {
        self.wires[direction].busy = true;
        let sent = self.wires[direction].put(len, ordered, self.now);
        self.wires[direction ^ 1].acknowledge(len, self.grain);
        self.events.push(sent.handed_over, Event::WireFree { direction: narrow(direction) });
        sent
    }

    /// A piece will be in the memory at the end of a cable of its path, where a pump sees it a little later.
    fn land(&mut self, id: FlowId, cable: u16, (offset, len): (u64, u64), landed: u64) {
        let is_last = self.flows.get(id).is_some_and(|flow| usize::from(cable) + 1 == flow.path.len());
        let seen = if is_last { landed } else { landed + self.formulas.forwarding.latency };
        self.schedule(seen, id, Event::Landed { flow: id, cable, len: small(len), offset });
    }

    /// A piece is there: at the far end it is read, elsewhere the pump has work.
    fn landed(&mut self, id: FlowId, cable: u16, (offset, len): (u64, u32)) -> Step {
        let Some(flow) = self.flows.get_mut(id) else { return Step::Other };
        debug_assert_eq!(flow.hops[usize::from(cable)].landed, offset, "pieces come in their order");
        flow.hops[usize::from(cable)].landed += u64::from(len);
        if usize::from(cable) + 1 < flow.path.len() {
            self.queue_for_pump(id, cable + 1);
            return Step::Other;
        }
        self.delivered += u64::from(len);
        self.schedule(self.now + self.credit, id, Event::Credit { flow: id, cable, len });
        Step::Arrived(Arrival { flow: id, offset, len: len.into() })
    }

    /// The writer of a cable of a path knows of more room.
    fn credited(&mut self, id: FlowId, cable: u16, len: u32) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        flow.hops[usize::from(cable)].credited += u64::from(len);
        if cable == 0 { self.offer(id) } else { self.queue_for_pump(id, cable) }
    }

    /// Gives a flow a turn of the pump that writes into this cable of its path, if there are bytes and room.
    fn queue_for_pump(&mut self, id: FlowId, cable: u16) {
        let ring = self.formulas.forwarding.ring;
        let Some(flow) = self.flows.get_mut(id) else { return };
        let at = usize::from(cable);
        if flow.hops[at].queued || flow.next_piece(at, self.piece, ring).is_none() {
            return;
        }
        flow.hops[at].queued = true;
        let host = self.network.ends(flow.path[at] as usize).0;
        self.pumps[usize::from(host)].ready.push_back((id, cable));
        self.pump(host);
    }

    /// Has an idle pump copy the next piece.
    fn pump(&mut self, host: u16) {
        let pump = &mut self.pumps[usize::from(host)];
        if pump.busy {
            return;
        }
        let Some((id, cable)) = pump.ready.pop_front() else { return };
        let Some(flow) = self.flows.get_mut(id) else { return };
        let (at, ring) = (usize::from(cable), self.formulas.forwarding.ring);
        let Some(len) = flow.next_piece(at, self.piece, ring) else { return };
        pump.busy = true;
        let piece = (flow.hops[at].sent, len);
        flow.hops[at].sent += len;
        flow.hops[at].queued = flow.next_piece(at, self.piece, ring).is_some();
        if flow.hops[at].queued {
            pump.ready.push_back((id, cable));
        }
        let direction = flow.path[at] as usize;
        self.wires[direction].pumped = Some(Job::Pump { flow: id, cable, piece, ordered: self.now });
        self.serve(direction);
    }
}

fn small(len: u64) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

fn narrow(direction: usize) -> u32 {
    u32::try_from(direction).unwrap_or(u32::MAX)
}

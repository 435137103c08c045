//! One direction of a cable with who waits to write: programs of its host, and the host's pump, by turns.

use super::{FlowId, Grain};
use crate::formulas::{Formulas, behind_wire};
use crosslane_pcie::{Cable, Direction, Limits, SECOND};
use std::collections::VecDeque;

/// A piece that is to be written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Job {
    /// The next one of a flow that begins here.
    Program(FlowId),
    /// One that the pump copies since `ordered`, over this cable of its flow's path: its offset and length.
    Pump { flow: FlowId, cable: u16, piece: (u64, u64), ordered: u64 },
}

/// When things happen to a piece that was put on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) struct Put {
    /// The writer has handed over the last of it, which is on the wire a little later: the next writer may begin.
    pub(super) handed_over: u64,
    /// It is in the far memory.
    pub(super) landed: u64,
}

#[derive(Debug)]
pub(super) struct Wire {
    direction: Direction,
    cable: Cable,
    grain: Grain,
    behind: u64,
    /// When the writer hands over its next packet at the earliest, of single packets.
    paced: u64,
    pub(super) busy: bool,
    pub(super) programs: VecDeque<FlowId>,
    pub(super) pumped: Option<Job>,
    /// Whether the last piece was the pump's.
    pump_was_last: bool,
}

impl Wire {
    pub(super) fn new(formulas: &Formulas, grain: Grain, seed: u64) -> Self {
        let cable = formulas.cable;
        Self {
            direction: Direction::new(cable, seed),
            cable,
            grain,
            behind: behind_wire(&cable),
            paced: 0,
            busy: false,
            programs: VecDeque::new(),
            pumped: None,
            pump_was_last: false,
        }
    }

    /// Whose turn it is.
    pub(super) fn next(&mut self) -> Option<Job> {
        let pump_first = !self.pump_was_last || self.programs.is_empty();
        self.pump_was_last = pump_first && self.pumped.is_some();
        let program = |wire: &mut Self| wire.programs.pop_front().map(Job::Program);
        if self.pump_was_last { self.pumped.take() } else { program(self) }
    }

    /// Sends a piece that its writer has wanted to send since `ordered`. While it waited for the wire it has done what comes before the first
    /// packet.
    pub(super) fn put(&mut self, len: u64, ordered: u64, now: u64) -> Put {
        let start = self.cable.writer.start();
        let ordered = ordered.max(now.saturating_sub(start));
        let landed = match self.grain {
            Grain::Turns => self.direction.send_all(ordered, len).landed,
            Grain::Packets => {
                let ready = (ordered + start).max(self.paced);
                self.paced = ready + self.cable.writer.gap();
                self.direction.send(ready, len).landed
            }
        };
        Put { handed_over: (landed - self.behind).saturating_sub(start).max(now), landed }
    }

    /// When a pump has copied a piece, and when its last packet is in the far memory, if the wire never keeps it waiting.
    pub(super) fn copied(&self, formulas: &Formulas, len: u64, ordered: u64) -> (u64, u64) {
        let last = Limits(&self.cable).last_packet(len);
        let time = |bytes: u64| picoseconds(bytes, formulas.forwarding.rate);
        (ordered + time(len), ordered + time(len - last) + Limits(&self.cable).latency(last))
    }

    /// The other direction has sent a piece.
    pub(super) fn acknowledge(&mut self, len: u64, grain: Grain) {
        match grain {
            Grain::Turns => self.direction.acknowledge_all(len),
            Grain::Packets => self.direction.acknowledge(len),
        }
    }
}

fn picoseconds(bytes: u64, rate: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times are positive, and hours at most"
    )]
    let time = (bytes as f64 * SECOND as f64 / rate).round() as u64;
    time
}

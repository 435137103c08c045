//! One direction of a cable, packet by packet.

use crate::limits::{Limits, MILLION};
use crate::{Cable, wire_bytes};
use fastrand::Rng;
use std::collections::VecDeque;

/// What became of a packet. Times since the start of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// When its first byte was on the wire, of the time that it arrived whole.
    pub started: u64,
    /// When it was in the far memory.
    pub landed: u64,
}

/// One direction of a cable. Packets go one after the other, and land in their order.
#[derive(Debug)]
pub struct Direction {
    cable: Cable,
    dice: Rng,
    /// When the wire is free.
    free: u64,
    /// Packets in the far end's buffer, or on the way there: when their credit is back, and their payloads.
    held: VecDeque<(u64, u64)>,
    held_bytes: u64,
    /// Acknowledgements that the other direction's packets have caused and that were not sent, millionths of a byte.
    owed: u64,
    /// Time for which the wire is idle between the packets of the last [`Self::send_all`]: acknowledgements have it first.
    idle: u64,
}

impl Direction {
    /// Of this cable, with nothing on it; `seed`: of its bit errors.
    pub fn new(cable: Cable, seed: u64) -> Self {
        let dice = Rng::with_seed(seed);
        Self { cable, dice, free: 0, held: VecDeque::new(), held_bytes: 0, owed: 0, idle: 0 }
    }

    /// When the wire has carried all that was sent.
    pub fn free(&self) -> u64 {
        self.free
    }

    /// Sends a packet that is at the link at `ready`.
    pub fn send(&mut self, ready: u64, payload: u64) -> Sent {
        let limits = Limits(&self.cable);
        let on_wire = limits.on_wire(wire_bytes(self.cable.generation, payload));
        let (round, behind, loss) = (limits.round(on_wire), limits.behind_wire(), limits.loss(payload));
        let mut started = self.wait_for_credit(ready.max(self.free), payload);
        // The far end asks for it again, and for all behind it.
        while loss > 0.0 && self.dice.f64() < loss {
            started += round;
        }
        self.free = started + on_wire;
        self.idle = 0;
        self.held.push_back((started + round, payload));
        self.held_bytes += payload;
        Sent { started, landed: self.free + behind }
    }

    /// Sends `len` bytes that are at the writer at `ready`, in as many packets as that takes, one behind the other at the rate that the link, the
    /// writer and the credits allow: as [`Self::send`] for each of them, in one step, for who cannot count packets one by one.
    pub fn send_all(&mut self, ready: u64, len: u64) -> Sent {
        let cable = self.cable;
        let limits = Limits(&cable);
        let payload = cable.writer.payload(&cable);
        let on_wire = limits.on_wire(wire_bytes(cable.generation, payload));
        let (round, loss, steady) = (limits.round(on_wire), limits.loss(payload), limits.steady(len));
        let (whole, rest) = (len / payload, len % payload);
        let started = (ready + cable.writer.start()).max(self.free);
        self.free = started + steady + self.resent(whole + u64::from(rest > 0), loss) * round;
        let wire =
            whole * on_wire + if rest > 0 { limits.on_wire(wire_bytes(cable.generation, rest)) } else { 0 };
        self.idle = steady.saturating_sub(wire);
        // What follows the last packet may begin later than its last byte is on the wire.
        let packet = if rest > 0 { rest } else { payload };
        let idle = limits.each(packet) - limits.on_wire(wire_bytes(cable.generation, packet));
        Sent { started, landed: self.free - idle.min(self.free) + limits.behind_wire() }
    }

    /// Sends `len` bytes that are one order to the writer, given at `ready`: as [`Self::send_all`], but where an engine's own buffer is shorter.
    pub fn order(&mut self, ready: u64, len: u64) -> Sent {
        let Some(piece) = self.cable.writer.piece(len) else { return self.send_all(ready, len) };
        let (mut given, mut left, mut first) = (ready, len, None);
        loop {
            let part = piece.min(left);
            let read = Limits(&self.cable).steady(part);
            let sent = self.send_all(given + read, part);
            let started = *first.get_or_insert(sent.started);
            left -= part;
            if left == 0 {
                return Sent { started, ..sent };
            }
            given = self.free;
        }
    }

    /// How many of so many packets are sent again, and again.
    fn resent(&mut self, packets: u64, loss: f64) -> u64 {
        if loss <= 0.0 {
            return 0;
        }
        // From one wrong packet to the next.
        let (mut at, mut count) = (0.0, 0);
        loop {
            at += (1.0 - self.dice.f64()).ln() / (-loss).ln_1p();
            if at >= packets as f64 {
                return count;
            }
            count += 1;
        }
    }

    /// The time from `ready` on at which the far end has room.
    fn wait_for_credit(&mut self, mut ready: u64, payload: u64) -> u64 {
        while let Some(&(back, bytes)) = self.held.front() {
            let full = self.held.len() >= self.cable.credit_packets as usize
                || self.held_bytes + payload > self.cable.credit_bytes;
            if back > ready && !full {
                break;
            }
            ready = ready.max(back);
            self.held.pop_front();
            self.held_bytes -= bytes;
        }
        ready
    }

    /// Takes the time of acknowledgements and credits that a packet of `payload` bytes of the other direction asks for.
    pub fn acknowledge(&mut self, payload: u64) {
        self.owe(wire_bytes(self.cable.generation, payload));
    }

    /// As [`Self::acknowledge`] for each packet of `len` bytes that the other direction has sent by [`Self::send_all`].
    pub fn acknowledge_all(&mut self, len: u64) {
        let (payload, generation) = (self.cable.writer.payload(&self.cable), self.cable.generation);
        let (whole, rest) = (len / payload, len % payload);
        let last = if rest > 0 { wire_bytes(generation, rest) } else { 0 };
        self.owe(whole * wire_bytes(generation, payload) + last);
    }

    fn owe(&mut self, others: u64) {
        let limits = Limits(&self.cable);
        self.owed += limits.acknowledgements() * others;
        let time = limits.on_wire(self.owed / MILLION);
        self.owed %= MILLION;
        let beside = time.min(self.idle);
        self.idle -= beside;
        self.free += time - beside;
    }
}

//! What a cable gives at most, by formulas.

use crate::{Cable, NANOSECOND, SECOND, wire_bytes};

/// From the last byte of a packet at the far adapter until it is in memory (assumed).
pub(crate) const LANDING: u64 = 100 * NANOSECOND;
/// Time in one adapter or switch, cut through: 115 to 150 ns, the middle taken.
pub(crate) const HOP: u64 = 132 * NANOSECOND;
/// From a packet in the far adapter's buffer until the credit for it is on the wire (assumed).
pub(crate) const CREDIT: u64 = 20 * NANOSECOND;

pub(crate) const MILLION: u64 = 1_000_000;

/// Bytes a second; without end if they take no time.
fn per_second(bytes: u64, time: u64) -> f64 {
    bytes as f64 * SECOND as f64 / time as f64
}

/// What a cable gives at most.
#[derive(Clone, Debug)]
pub struct Limits<'a>(pub &'a Cable);

impl Limits<'_> {
    /// Bytes a second on the wire, of what is not encoding.
    pub fn raw(&self) -> u64 {
        self.0.generation.lane_rate() * u64::from(self.0.lanes)
    }

    /// Time that `bytes` take on the wire, rounded up.
    pub fn on_wire(&self, bytes: u64) -> u64 {
        let time = (u128::from(bytes) * u128::from(SECOND)).div_ceil(u128::from(self.raw()));
        u64::try_from(time).unwrap_or(u64::MAX)
    }

    /// Share of the wire that acknowledgements and credits for the other direction's packets take, while that is busy. An acknowledgement
    /// and a credit are due each time that so many of the longest packets have come (PCIe Base Specification, `AckFactor`).
    pub fn share_of_acknowledgements(&self) -> f64 {
        self.acknowledgements() as f64 / MILLION as f64
    }

    /// The same in millionths.
    pub(crate) fn acknowledgements(&self) -> u64 {
        let tenths = match (self.0.mps, self.0.lanes) {
            (..=256, ..8) => 14,
            (..=256, 8) => 25,
            (..=256, _) => 30,
            (_, ..=8) => 10,
            (_, _) => 20,
        };
        2 * self.0.generation.link_packet() * MILLION * 10 / (u64::from(self.0.mps + 28) * tenths)
    }

    /// Bytes of payload a second of a writer that never stops, in one direction; `both`: while the other one is as busy. The least of what the
    /// wire carries, what the writer hands over, and what the far end's credits are for.
    pub fn payload(&self, both: bool) -> f64 {
        let payload = self.0.writer.payload(self.0);
        let packet = self.on_wire(wire_bytes(self.0.generation, payload));
        let round = self.round(packet);
        let others = if both { self.share_of_acknowledgements() } else { 0.0 };
        let resent = self.loss(payload) * round as f64;
        let wire = payload as f64 * SECOND as f64 / (packet as f64 + resent) * (1.0 - others);
        let writer = per_second(payload, self.0.writer.gap());
        let room = u64::from(self.0.credit_packets).min(self.0.credit_bytes / payload);
        wire.min(writer).min(per_second(room * payload, round))
    }

    /// Least time from one packet of this payload to the next, in one direction, without errors.
    pub(crate) fn each(&self, payload: u64) -> u64 {
        let packet = self.on_wire(wire_bytes(self.0.generation, payload));
        let room = u64::from(self.0.credit_packets).min(self.0.credit_bytes / payload).max(1);
        packet.max(self.0.writer.gap()).max(self.round(packet).div_ceil(room))
    }

    /// Probability that a packet of this payload arrives with a wrong bit.
    pub(crate) fn loss(&self, payload: u64) -> f64 {
        let bits = 8.0 * wire_bytes(self.0.generation, payload) as f64;
        -(bits * (-self.0.bit_errors).ln_1p()).exp_m1()
    }

    /// From the start of a packet that takes `packet` on the wire until its credit is back, or word that it was wrong.
    pub(crate) fn round(&self, packet: u64) -> u64 {
        packet + 2 * self.0.flight() + CREDIT + self.on_wire(self.0.generation.link_packet())
    }

    /// From the order to write `len` bytes, one packet at most, until they are in the far memory.
    pub fn latency(&self, len: u64) -> u64 {
        self.0.writer.start() + self.on_wire(wire_bytes(self.0.generation, len)) + self.behind_wire()
    }

    /// Time that `len` bytes take, one packet behind the other; also what an engine takes to read so many of its own host's memory, since its
    /// slot is as wide as its cable (assumed).
    pub(crate) fn steady(&self, len: u64) -> u64 {
        let payload = self.0.writer.payload(self.0);
        let rest = len % payload;
        len / payload * self.each(payload) + if rest > 0 { self.each(rest) } else { 0 }
    }

    /// Payload of the last packet of `len` bytes.
    pub fn last_packet(&self, len: u64) -> u64 {
        let payload = self.0.writer.payload(self.0);
        match len % payload {
            0 => payload.min(len),
            rest => rest,
        }
    }

    /// From the order to write `len` bytes at once until the last of them are in the far memory, without errors and with nobody else on the
    /// cable.
    pub fn order(&self, len: u64) -> u64 {
        let (piece, start) = (self.0.writer.piece(len), self.0.writer.start());
        let pieces = piece.map_or(1, |piece| len.div_ceil(piece));
        let read = if piece.is_some() { self.steady(len) } else { 0 };
        let last = self.last_packet(len);
        // What follows the last packet may begin later than its last byte is on the wire.
        let idle = self.each(last) - self.on_wire(wire_bytes(self.0.generation, last));
        pieces * start + read + self.steady(len) - idle + self.behind_wire()
    }

    /// Bytes a second of orders of `len` bytes, each of them given when the one before is in the far memory.
    pub fn orders(&self, len: u64) -> f64 {
        per_second(len, self.order(len))
    }

    /// From a packet's last byte on the wire until it is in the far memory.
    pub(crate) fn behind_wire(&self) -> u64 {
        self.0.flight() + u64::from(self.0.hops) * HOP + LANDING
    }
}

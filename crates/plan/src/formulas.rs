//! What one cable gives, and several one behind the other with hosts between: by formulas.

use crosslane_pcie::{Cable, LINE, Limits, NANOSECOND, SECOND, wire_bytes};

/// What hosts between do: a pump of each, one thread of its daemon, copies records from its own memory into the next host's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forwarding {
    /// Bytes a second that a pump copies at most.
    pub rate: f64,
    /// From data in the memory of a host between until its pump begins to write them on, picoseconds.
    pub latency: u64,
    /// Bytes of a circuit's ring in the memory of each host that it passes: what the host before may write without being told that there
    /// is room.
    pub ring: u64,
    /// Most bytes that a pump copies for one circuit before it turns to the next, and that are forwarded in one piece.
    pub turn: u64,
}

impl Default for Forwarding {
    /// 10 GB/s and 300 ns (assumed, `docs/plan.md`); ring and turn are the daemon's (`crosslane-node`, `pump/flow.rs`).
    fn default() -> Self {
        Self { rate: 10e9, latency: 300 * NANOSECOND, ring: 512 << 10, turn: 64 << 10 }
    }
}

/// Formulas of one kind of cable and of forwarding.
#[derive(Clone, Copy, Debug)]
pub struct Formulas {
    /// All cables of the network.
    pub cable: Cable,
    /// What hosts between do.
    pub forwarding: Forwarding,
}

fn picoseconds(seconds: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times are positive, and hours at most"
    )]
    let time = (seconds * SECOND as f64).round() as u64;
    time
}

impl Formulas {
    /// Bytes a second of a writer that never stops over one cable; `both`: while the other direction is as busy.
    pub fn neighbours(&self, both: bool) -> f64 {
        Limits(&self.cable).payload(both)
    }

    /// Bytes a second of one direction while the other one carries `share` (up to 1) of what this one does: between
    /// [`Self::neighbours`] of one and of both.
    pub fn beside(&self, share: f64) -> f64 {
        let (one, both) = (self.neighbours(false), self.neighbours(true));
        one - (one - both) * share.clamp(0.0, 1.0)
    }

    /// Bytes a second of a pump that writes into a cable which nobody else uses.
    pub fn pump(&self) -> f64 {
        self.forwarding.rate.min(self.neighbours(false))
    }

    /// Bytes a second of one stream over so many cables that nobody else uses. The least of what a cable carries, a pump copies, and
    /// a ring is for: its room is told back when a piece has been copied on.
    pub fn stream(&self, cables: u8) -> f64 {
        if cables < 2 {
            return self.neighbours(false).min(self.ring(0.0));
        }
        self.pump().min(self.ring(self.forwarding.latency as f64 / SECOND as f64 + self.turn() / self.pump()))
    }

    /// What a ring is for, if its bytes lie in it for `held` seconds.
    fn ring(&self, held: f64) -> f64 {
        let turn = self.turn();
        let there = (self.latency_once(self.forwarding.turn) + self.credit()) as f64 / SECOND as f64;
        // Whole pieces have room in it.
        let pieces = (self.forwarding.ring as f64 / turn).floor().max(1.0);
        pieces * turn / (there + held)
    }

    fn turn(&self) -> f64 {
        self.forwarding.turn as f64
    }

    /// From room in a ring until the host before knows of it: a store of a word.
    pub fn credit(&self) -> u64 {
        Limits(&self.cable).latency(8)
    }

    /// From the order to write `len` bytes until the last of them are in the memory of the host at the other end of one cable.
    pub fn latency_once(&self, len: u64) -> u64 {
        self.latency_paced(len, 0.0)
    }

    /// The same for a pump, which copies the bytes while they are sent.
    fn latency_pumped(&self, len: u64) -> u64 {
        self.latency_paced(len, 1.0 / self.forwarding.rate)
    }

    /// Packets before the last go at the rate of the cable, or at `least` seconds a byte.
    fn latency_paced(&self, len: u64, least: f64) -> u64 {
        let limits = Limits(&self.cable);
        let before = len - limits.last_packet(len);
        let each = least.max(1.0 / self.neighbours(false));
        limits.latency(len - before) + picoseconds(before as f64 * each)
    }

    /// From the order to write `len` bytes, a record at most, until the last of them are in the memory of the host at the far end of so many
    /// cables that nobody else uses: hosts between forward it when the whole of it has come.
    pub fn latency(&self, len: u64, cables: u8) -> u64 {
        let between = u64::from(cables.max(1)) - 1;
        self.latency_once(len) + between * (self.forwarding.latency + self.latency_pumped(len))
    }

    /// What is least of a cable whose two directions are busy: the part that a table names.
    pub fn limited_by(&self, both: bool) -> &'static str {
        let ours = self.neighbours(both);
        let payload = self.cable.writer.payload(&self.cable);
        let per_second = |time: u64| payload as f64 * SECOND as f64 / time as f64;
        let packet = Limits(&self.cable).on_wire(wire_bytes(self.cable.generation, payload));
        if ours >= 0.999 * per_second(self.cable.writer.gap()) {
            "the writer's stores"
        } else if self.cable.bit_errors == 0.0 && !both && ours < 0.999 * per_second(packet) {
            "credits of the far adapter"
        } else {
            "the wire"
        }
    }
}

/// Time from the last byte of a packet on the wire until it is in the far memory.
pub(crate) fn behind_wire(cable: &Cable) -> u64 {
    let limits = Limits(cable);
    limits.latency(LINE) - cable.writer.start() - limits.on_wire(wire_bytes(cable.generation, LINE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Formulas {
        Formulas { cable: text.parse().unwrap(), forwarding: Forwarding::default() }
    }

    #[test]
    fn plan_limits_are_named() {
        for (text, name) in [
            ("gen4 x8", "the writer's stores"),
            ("gen3 x4", "the wire"),
            ("gen4 x16, mps 256, fibre 100 m, dma", "credits of the far adapter"),
        ] {
            assert_eq!(of(text).limited_by(false), name, "{text}");
        }
    }

    #[test]
    fn plan_latency_of_a_message_has_all_its_packets() {
        let formulas = of("gen3 x4, copper 1 m");
        let line = Limits(&formulas.cable).latency(64);
        assert_eq!(formulas.latency_once(64), line);
        let more = formulas.latency_once(4096) - line;
        let each = 63.0 * 64.0 / formulas.neighbours(false) * 1e12;
        assert!((more as f64 - each).abs() < 2.0, "{more} ps, {each}");
        let over_three = formulas.latency(64, 3);
        assert_eq!(over_three, 3 * line + 2 * formulas.forwarding.latency);
    }

    #[test]
    fn plan_slow_pump_decides_over_two_cables_and_not_over_one() {
        let mut formulas = of("gen4 x8, dma");
        formulas.forwarding.rate = 3e9;
        assert_eq!(formulas.stream(2), 3e9);
        assert!(formulas.stream(1) > 1e10);
        assert!(formulas.latency(4096, 2) > 2 * formulas.latency_once(4096) + 300_000);
    }
}

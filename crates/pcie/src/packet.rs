//! Write packets (TLPs): how a piece of memory is cut into them, and how long they are on the wire.

use crate::Generation;

/// Bytes that a processor combines into one write.
pub const LINE: u64 = 64;
/// No packet crosses a multiple of this address (PCIe Base Specification).
const BOUNDARY: u64 = 4096;
/// Payloads are whole words of this many bytes.
const WORD: u64 = 4;

/// Bytes that a write of `payload` bytes takes on the wire.
pub fn wire_bytes(generation: Generation, payload: u64) -> u64 {
    payload.next_multiple_of(WORD) + generation.overhead()
}

/// The payloads of the packets that carry `len` bytes to an address, in their order.
#[derive(Clone, Debug)]
pub struct Packets {
    at: u64,
    left: u64,
    /// A packet's payload ends at each multiple of this.
    grain: u64,
    /// Largest payload.
    most: u64,
}

impl Packets {
    /// Of a processor that combines writes: a packet for each line that is touched.
    pub fn of_lines(address: u64, len: u64) -> Self {
        Self { at: address, left: len, grain: LINE, most: LINE }
    }

    /// Of an engine that fills packets up to `mps` bytes.
    pub fn of_engine(address: u64, len: u64, mps: u64) -> Self {
        Self { at: address, left: len, grain: BOUNDARY, most: mps }
    }
}

impl Iterator for Packets {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let payload = self.left.min(self.most).min(self.grain - self.at % self.grain);
        self.at += payload;
        self.left -= payload;
        (payload > 0).then_some(payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_carry_every_byte_and_cross_no_boundary() {
        let mut dice = fastrand::Rng::with_seed(1);
        for _ in 0..2000 {
            let (address, len, mps) = (dice.u64(..20_000), dice.u64(..20_000), 128 << dice.u32(..6));
            for (packets, grain) in
                [(Packets::of_lines(address, len), LINE), (Packets::of_engine(address, len, mps), BOUNDARY)]
            {
                let mut at = address;
                for payload in packets {
                    assert!(payload > 0 && payload <= mps.max(LINE));
                    assert_eq!(at / grain, (at + payload - 1) / grain);
                    at += payload;
                }
                assert_eq!(at, address + len);
            }
        }
    }

    #[test]
    fn share_of_payload_is_as_published() {
        let share = |payload| {
            let wire = wire_bytes(Generation::new(3).unwrap(), payload);
            (1000.0 * payload as f64 / wire as f64).round() / 10.0
        };
        assert_eq!([64, 128, 256, 512].map(share), [72.7, 84.2, 91.4, 95.5]);
    }
}

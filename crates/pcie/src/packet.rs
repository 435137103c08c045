//! Write packets (TLPs): how long they are on the wire.

use crate::Generation;

/// Bytes that a processor combines into one write.
pub const LINE: u64 = 64;
/// Payloads are whole words of this many bytes.
const WORD: u64 = 4;

/// Bytes that a write of `payload` bytes takes on the wire.
pub fn wire_bytes(generation: Generation, payload: u64) -> u64 {
    payload.next_multiple_of(WORD) + generation.overhead()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_of_payload_is_as_published() {
        let share = |payload| {
            let wire = wire_bytes(Generation::new(3).unwrap(), payload);
            (1000.0 * payload as f64 / wire as f64).round() / 10.0
        };
        assert_eq!([64, 128, 256, 512].map(share), [72.7, 84.2, 91.4, 95.5]);
    }
}

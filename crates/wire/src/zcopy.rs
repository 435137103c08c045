//! Announcements of memory from which the far side may read, or into which it may write, and the words that answer them.
//!
//! ```text
//!   a SrcAvail or SinkAvail record's payload
//!     +0   sequence u32   number of the announcement in its direction, counted from 1, wrapping past 0
//!     +4   len      u32   bytes of memory, 1 to [`LONGEST`]
//!     +8   buffer   u64   id of a buffer that its owner has exported to this circuit ([`BufferId`])
//!     +16  at       u64   byte of the buffer where the memory begins
//!     +24  units    u64   SinkAvail: stream offset of the other direction up to which its sender had received: the offer does not
//!                         count if more was sent. SrcAvail: not 0 if the sink must wake the source when all is fetched
//!     +32  line     u64   SinkAvail: number of the completion line behind the buffer into which the far side stores how many bytes
//!                         it has written, below [`LANDINGS`]
//!     +40  the record's bytes of the stream
//!
//!   a word: sequence << 32 | bytes; 0: no announcement
//! ```
//! No field names a process or an address. The receiver can access only buffers that its own daemon gave it for this
//! circuit, by their ids (decision 17).

use crate::buffer::LANDINGS;
use crate::{BufferId, DecodeError};

/// Bytes of a descriptor.
pub const DESCRIPTOR: u32 = 40;
/// Most bytes of one announcement.
pub const LONGEST: u32 = 1 << 30;

/// Memory that the far side may read or write; the descriptor at the start of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Number of the announcement, not 0.
    pub sequence: u32,
    /// Length, bytes.
    pub len: u32,
    /// The buffer that contains it.
    pub buffer: BufferId,
    /// Offset of its first byte in the buffer.
    pub at: u64,
    /// SinkAvail: the line behind the buffer for the count of written bytes (`crate::buffer`); SrcAvail: 0.
    pub line: u32,
    /// SinkAvail: stream offset of the other direction up to which the sink had received. SrcAvail: not 0 if the sink
    /// must wake the source when all is fetched.
    pub units: u64,
}

impl Descriptor {
    /// The descriptor's bytes.
    pub fn encode(&self) -> [u8; DESCRIPTOR as usize] {
        let first = word(self.len, self.sequence);
        let mut bytes = [0; DESCRIPTOR as usize];
        let words = [first, self.buffer.0, self.at, self.units, self.line.into()];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Decodes and checks a peer's descriptor; whether the buffer exists, and is long enough, is for the caller to check.
    ///
    /// # Errors
    /// A field is out of range.
    pub fn decode(bytes: &[u8; DESCRIPTOR as usize]) -> Result<Self, DecodeError> {
        let [first, buffer, at, units, line] = words(bytes);
        let (sequence, len) = (low(first), low(first >> 32));
        if sequence == 0 || len == 0 || len > LONGEST {
            return Err(DecodeError::Range("announced memory"));
        }
        if at.checked_add(len.into()).is_none() {
            return Err(DecodeError::Range("place of announced memory"));
        }
        let line = u32::try_from(line).ok().filter(|&line| line < LANDINGS);
        let line = line.ok_or(DecodeError::Range("line of announced memory"))?;
        Ok(Self { sequence, len, buffer: BufferId(buffer), at, line, units })
    }
}

fn words(bytes: &[u8; DESCRIPTOR as usize]) -> [u64; 5] {
    let mut words = [0; 5];
    for (word, piece) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = piece.try_into().map_or(0, u64::from_le_bytes);
    }
    words
}

fn low(word: u64) -> u32 {
    u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0)
}

/// The word for `bytes` of announcement `sequence`.
pub const fn word(sequence: u32, bytes: u32) -> u64 {
    (sequence as u64) << 32 | bytes as u64
}

/// The announcement that a word names; 0 if none.
pub fn sequence_of(word: u64) -> u32 {
    low(word >> 32)
}

/// The bytes in a word, if it names announcement `sequence`.
pub fn bytes_of(word: u64, sequence: u32) -> Option<u32> {
    (sequence_of(word) == sequence).then(|| low(word))
}

/// The number after `sequence`.
pub fn next_sequence(sequence: u32) -> u32 {
    sequence.wrapping_add(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Descriptor = Descriptor {
        sequence: 3,
        len: 1 << 20,
        buffer: BufferId(u64::MAX),
        at: 1 << 40,
        line: 62,
        units: 12,
    };

    #[test]
    fn zcopy_descriptor_encodes_and_decodes() {
        for descriptor in [GOOD, Descriptor { len: LONGEST, line: 0, units: u64::MAX, ..GOOD }] {
            assert_eq!(Descriptor::decode(&descriptor.encode()), Ok(descriptor));
        }
    }

    #[test]
    fn zcopy_descriptor_out_of_range_is_refused() {
        let bad = [
            Descriptor { sequence: 0, ..GOOD },
            Descriptor { len: 0, ..GOOD },
            Descriptor { len: LONGEST + 1, ..GOOD },
            Descriptor { len: 1 << 31 | 4096, ..GOOD },
            Descriptor { at: u64::MAX, ..GOOD },
            Descriptor { line: LANDINGS, ..GOOD },
        ];
        assert!(bad.iter().all(|descriptor| Descriptor::decode(&descriptor.encode()).is_err()));
        let mut bytes = GOOD.encode();
        bytes[36] = 1;
        assert!(Descriptor::decode(&bytes).is_err());
    }

    #[test]
    fn zcopy_word_is_about_its_own_announcement_only() {
        assert_eq!(bytes_of(word(7, 99), 7), Some(99));
        assert_eq!((bytes_of(word(7, 99), 8), sequence_of(0)), (None, 0));
        assert_eq!((next_sequence(1), next_sequence(u32::MAX)), (2, 1));
    }
}

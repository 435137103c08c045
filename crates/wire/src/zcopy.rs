//! Announcements of memory that the far side may read or write by itself, and the words that answer them.
//!
//! ```text
//!   a SrcAvail or SinkAvail record's payload
//!     +0   sequence u32   number of the announcement in its direction, counted from 1, wrapping past 0
//!     +4   len      u32   bytes of memory, 1 to [`LONGEST`]; with [`PROCESS`] if it is a process's own
//!     +8   whose    u64   buffer's number, or process id
//!     +16  at       u64   SrcAvail: where the memory begins: byte of the buffer, or address; SinkAvail: byte of the buffer
//!     +24  proof    u64   of a process: a number that stands at `proof_at`, and nowhere else; of a buffer: the line behind it
//!                         that is to say how much was written, below [`LANDINGS`]
//!     +32  proof_at u64   its address
//!     +40  units    u64   SinkAvail: units of the other direction that were consumed; void if more were sent.
//!                         SrcAvail: not 0 if the source is to be rung when all is fetched
//!     +48  the stream's own bytes
//!
//!   a word: sequence << 32 | bytes; 0 says nothing
//! ```

use crate::DecodeError;
use crate::buffer::LANDINGS;

/// Bytes of a descriptor.
pub const DESCRIPTOR: u32 = 48;
/// Most bytes of one announcement.
pub const LONGEST: u32 = 1 << 30;
/// Flag in `len`: the memory is a process's own.
const PROCESS: u32 = 1 << 31;

/// Whose memory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// A buffer that both programs can map.
    Buffer(u64),
    /// A process's own, reached by the kernel.
    Process {
        /// The process as it knows itself.
        pid: u32,
        /// A number that only this process has at `proof_at`: whoever reads another one has another process.
        proof: u64,
        /// Address of `proof` in the process.
        proof_at: u64,
    },
}

/// Memory that the far side may read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Number of the announcement, not 0.
    pub sequence: u32,
    /// Bytes.
    pub len: u32,
    /// Whose.
    pub whose: Whose,
    /// Where it begins: byte of the buffer, or address.
    pub at: u64,
    /// Of a sink's buffer: which line behind it says how much was written (`crate::buffer`); else 0.
    pub line: u32,
    /// Of a sink: units of the other direction that were consumed when it was announced. Of a source: whether it is to be
    /// rung when all is fetched.
    pub units: u64,
}

impl Descriptor {
    /// The bytes of a record.
    pub fn encode(&self) -> [u8; DESCRIPTOR as usize] {
        let (flag, whose, proof, proof_at) = match self.whose {
            Whose::Buffer(number) => (0, number, self.line.into(), 0),
            Whose::Process { pid, proof, proof_at } => (PROCESS, u64::from(pid), proof, proof_at),
        };
        let first = u64::from(self.len | flag) << 32 | u64::from(self.sequence);
        let mut bytes = [0; DESCRIPTOR as usize];
        let words = [first, whose, self.at, proof, proof_at, self.units];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// What a peer announced, checked as far as it can be without knowing the memory.
    ///
    /// # Errors
    /// A number that cannot be.
    pub fn decode(bytes: &[u8; DESCRIPTOR as usize]) -> Result<Self, DecodeError> {
        let [first, whose, at, proof, proof_at, units] = words(bytes);
        let (sequence, len, flag) = (low(first), low(first >> 32) & !PROCESS, low(first >> 32) & PROCESS);
        if sequence == 0 || len == 0 || len > LONGEST {
            return Err(DecodeError::Range("announced memory"));
        }
        if at.checked_add(len.into()).is_none() {
            return Err(DecodeError::Range("place of announced memory"));
        }
        let (whose, line) = if flag == 0 {
            let line = u32::try_from(proof).ok().filter(|&line| line < LANDINGS);
            (Whose::Buffer(whose), line.ok_or(DecodeError::Range("line of announced memory"))?)
        } else {
            let pid = u32::try_from(whose).map_err(|_| DecodeError::Range("process id"))?;
            (Whose::Process { pid, proof, proof_at }, 0)
        };
        Ok(Self { sequence, len, whose, at, line, units })
    }
}

fn words(bytes: &[u8; DESCRIPTOR as usize]) -> [u64; 6] {
    let mut words = [0; 6];
    for (word, piece) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = piece.try_into().map_or(0, u64::from_le_bytes);
    }
    words
}

fn low(word: u64) -> u32 {
    u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0)
}

/// A word that says `bytes` of announcement `sequence`.
pub const fn word(sequence: u32, bytes: u32) -> u64 {
    (sequence as u64) << 32 | bytes as u64
}

/// The announcement that a word speaks of; 0 if of none.
pub fn sequence_of(word: u64) -> u32 {
    low(word >> 32)
}

/// The bytes in a word, if it speaks of announcement `sequence`.
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

    const OF_PROCESS: Whose = Whose::Process { pid: 77, proof: 5, proof_at: 6 };

    #[test]
    fn a_descriptor_survives_the_way() {
        for whose in [Whose::Buffer(u64::MAX), OF_PROCESS] {
            let line = if whose == OF_PROCESS { 0 } else { LANDINGS - 1 };
            let descriptor = Descriptor { sequence: 3, len: 1 << 20, whose, at: 1 << 40, line, units: 12 };
            assert_eq!(Descriptor::decode(&descriptor.encode()), Ok(descriptor));
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let good = Descriptor { sequence: 1, len: 1, whose: Whose::Buffer(1), at: 0, line: 0, units: 0 };
        let bad = [
            Descriptor { sequence: 0, ..good },
            Descriptor { len: 0, ..good },
            Descriptor { len: LONGEST + 1, ..good },
            Descriptor { at: u64::MAX, ..good },
            Descriptor { line: LANDINGS, ..good },
        ];
        assert!(bad.iter().all(|descriptor| Descriptor::decode(&descriptor.encode()).is_err()));
        let mut bytes = Descriptor { whose: OF_PROCESS, ..good }.encode();
        bytes[13] = 1;
        assert!(Descriptor::decode(&bytes).is_err());
    }

    #[test]
    fn a_word_speaks_of_its_own_announcement_only() {
        assert_eq!(bytes_of(word(7, 99), 7), Some(99));
        assert_eq!((bytes_of(word(7, 99), 8), sequence_of(0)), (None, 0));
        assert_eq!((next_sequence(1), next_sequence(u32::MAX)), (2, 1));
    }
}

//! Memory that a program opens to others: its own threads, and the agent that executes others' commands, access it at the
//! same time. So all access is by raw copies and atomics, and every place is checked.

use crate::mem::{Mapping, new_segment};
use crate::{Inbound, Load, MapError, copy};
use core::sync::atomic::{AtomicU64, Ordering};
use thiserror::Error;

/// A place that is not inside the memory, or a word that is not aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadPlace {
    /// The place ends behind the memory's end.
    #[error("bytes {offset} to {offset} + {len} lie outside of a region of {region} bytes")]
    Outside {
        /// Offset of the place, bytes.
        offset: u64,
        /// Length of the place, bytes.
        len: u64,
        /// Length of the memory, bytes.
        region: u64,
    },
    /// A word of 8 bytes does not begin at a multiple of 8.
    #[error("a word at byte {0} is not aligned to 8")]
    Misaligned(u64),
}

/// Zeroed memory of this process, aligned to a page; unmapped when dropped.
#[derive(Debug)]
pub struct SharedBytes {
    mapping: Mapping,
}

impl SharedBytes {
    /// Memory of `len` bytes, at least one.
    pub fn create(len: u64) -> Result<Self, MapError> {
        let fd = new_segment("crosslane-region", len)?;
        Ok(Self { mapping: Mapping::new(&fd, len)? })
    }

    /// Its length, bytes.
    pub fn len(&self) -> u64 {
        self.mapping.len() as u64
    }

    /// Always `false`: there is at least one byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks a place of `len` bytes.
    pub fn check(&self, offset: u64, len: u64) -> Result<(), BadPlace> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len() => Ok(()),
            _ => Err(BadPlace::Outside { offset, len, region: self.len() }),
        }
    }

    /// Checks the place of a word.
    pub fn check_word(&self, offset: u64) -> Result<(), BadPlace> {
        self.check(offset, 8)?;
        if offset.is_multiple_of(8) { Ok(()) } else { Err(BadPlace::Misaligned(offset)) }
    }

    /// Copies from `offset` into `target`. Bytes that other threads store meanwhile may be old or new; if `target` is one
    /// aligned word, it is loaded atomically.
    pub fn read(&self, offset: u64, target: &mut [u8]) -> Result<(), BadPlace> {
        self.check(offset, target.len() as u64)?;
        if let (Ok(word), Ok(target)) = (self.word(offset), <&mut [u8; 8]>::try_from(&mut *target)) {
            *target = word.load(Ordering::Acquire).to_ne_bytes();
            return Ok(());
        }
        // SAFETY: `at` is in range; `target` is private memory, so the two cannot overlap.
        unsafe { copy::from_shared(target, self.mapping.at(at(offset), target.len())) }
        Ok(())
    }

    /// Copies `source` to `offset`, in no particular order, but after all earlier stores. If `source` is one aligned
    /// word, it is stored atomically.
    pub fn write(&self, offset: u64, source: &[u8]) -> Result<(), BadPlace> {
        self.check(offset, source.len() as u64)?;
        if let (Ok(word), Ok(source)) = (self.word(offset), <[u8; 8]>::try_from(source)) {
            word.store(u64::from_ne_bytes(source), Ordering::Release);
            return Ok(());
        }
        // SAFETY: `at` is in range; `source` is private memory, so the two cannot overlap.
        unsafe { copy::into_shared(self.mapping.at(at(offset), source.len()), source) }
        Ok(())
    }

    /// Loads a word; stores that came before it are visible after (acquire).
    pub fn load(&self, offset: u64) -> Result<u64, BadPlace> {
        Ok(self.word(offset)?.load(Ordering::Acquire))
    }

    /// Stores a word after all earlier stores (release).
    pub fn store(&self, offset: u64, value: u64) -> Result<(), BadPlace> {
        self.word(offset)?.store(value, Ordering::Release);
        Ok(())
    }

    /// Adds to a word, wrapping; returns its previous value. Atomic for all processes and threads.
    pub fn fetch_add(&self, offset: u64, value: u64) -> Result<u64, BadPlace> {
        Ok(self.word(offset)?.fetch_add(value, Ordering::AcqRel))
    }

    /// Stores `new` if the word contains `expected`; returns its previous value. Atomic for all processes and threads.
    pub fn compare_swap(&self, offset: u64, expected: u64, new: u64) -> Result<u64, BadPlace> {
        let swapped = self.word(offset)?.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire);
        Ok(swapped.unwrap_or_else(|held| held))
    }

    /// A checked place of `len` bytes, to receive into.
    pub fn part(&self, offset: u64, len: u64) -> Result<Part<'_>, BadPlace> {
        self.check(offset, len)?;
        Ok(Part { bytes: self, offset: at(offset), len: at(len) })
    }

    fn word(&self, offset: u64) -> Result<&AtomicU64, BadPlace> {
        self.check_word(offset)?;
        Ok(self.mapping.word64(at(offset)))
    }
}

/// A checked place inside such memory.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    bytes: &'a SharedBytes,
    offset: usize,
    len: usize,
}

impl Part<'_> {
    /// Its length, bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies `len` received bytes, at `from_offset` of the ring's segment, to byte `at` of the place, without private
    /// memory in between: their writer may change them meanwhile, which is the same as sending other bytes. One aligned
    /// word is stored atomically. Panics if the bytes exceed the place, since that is a bug of this program.
    #[inline]
    pub fn fill(&self, at: usize, from: &Inbound, from_offset: usize, len: usize) {
        assert!(at <= self.len && len <= self.len - at, "bytes beyond the place");
        let (mapping, offset) = (&self.bytes.mapping, self.offset + at);
        if len == 8 && offset.is_multiple_of(8) {
            let mut word = [0; 8];
            from.read(from_offset, &mut word);
            mapping.word64(offset).store(u64::from_ne_bytes(word), Ordering::Release);
            return;
        }
        let (target, source) = (mapping.at(offset, len), from.at(from_offset, len));
        // SAFETY: both are in range, and lie in two mappings, which cannot overlap.
        unsafe { copy::copy(copy::Strategy::Cached, target, source, len) }
    }
}

/// An offset that was checked against a length that fits `usize`.
fn at(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Outbound, Store};

    #[test]
    fn shared_bytes_hold_bytes_and_words() {
        let region = SharedBytes::create(4096).unwrap();
        region.write(1001, b"hello").unwrap();
        let mut bytes = [9; 7];
        region.read(1000, &mut bytes).unwrap();
        assert_eq!(&bytes, b"\0hello\0");
        region.write(8, &7u64.to_ne_bytes()).unwrap();
        assert_eq!(region.fetch_add(8, u64::MAX), Ok(7));
        assert_eq!(region.compare_swap(8, 7, 1), Ok(6));
        assert_eq!(region.compare_swap(8, 6, 1), Ok(6));
        let mut word = [0; 8];
        region.read(8, &mut word).unwrap();
        assert_eq!((u64::from_ne_bytes(word), region.load(8)), (1, Ok(1)));
    }

    #[test]
    fn shared_bytes_fill_a_place_and_nothing_beside_it() {
        let fd = new_segment("arrived", 4096).unwrap();
        let (ring, from) = (Outbound::sealed(&fd, 4096).unwrap(), Inbound::sealed(&fd, 4096).unwrap());
        ring.write(100, b"hello, world");
        let region = SharedBytes::create(64).unwrap();
        let part = region.part(16, 12).unwrap();
        part.fill(0, &from, 100, 8);
        part.fill(9, &from, 109, 3);
        let mut bytes = [9; 64];
        region.read(0, &mut bytes).unwrap();
        let mut expected = [0; 64];
        expected[16..28].copy_from_slice(b"hello, w\0rld");
        assert_eq!(bytes, expected);
        assert!(region.part(60, 5).is_err() && region.part(64, 0).unwrap().is_empty());
    }

    #[test]
    #[should_panic(expected = "beyond the place")]
    fn shared_bytes_are_not_overfilled() {
        let fd = new_segment("arrived", 4096).unwrap();
        let region = SharedBytes::create(64).unwrap();
        region.part(16, 12).unwrap().fill(8, &Inbound::sealed(&fd, 4096).unwrap(), 0, 5);
    }

    #[test]
    fn shared_bytes_outside_are_refused() {
        let region = SharedBytes::create(100).unwrap();
        let outside = |offset, len| Err(BadPlace::Outside { offset, len, region: 100 });
        assert_eq!(region.write(100, b""), Ok(()));
        assert_eq!(region.write(99, b"ab"), outside(99, 2));
        assert_eq!(region.read(u64::MAX, &mut [0; 2]), outside(u64::MAX, 2));
        assert_eq!(region.load(96).map_err(Err::<(), _>).err(), Some(outside(96, 8)));
        assert_eq!(region.fetch_add(4, 1), Err(BadPlace::Misaligned(4)));
        assert!(region.compare_swap(u64::MAX - 7, 0, 1).is_err());
        assert!(SharedBytes::create(0).is_err());
    }
}

//! What a record's bytes are copied from: one buffer of a program, or all buffers of a call (`writev`, `sendmsg`).

use core::ops::Range;
use std::io::IoSlice;

/// Bytes of a program, whose pages may be unmapped.
pub trait Source<'a>: Copy {
    /// Length, bytes.
    fn length(self) -> usize;
    /// The bytes of `range`, which is within the length.
    #[must_use]
    fn range(self, range: Range<usize>) -> Self;
    /// Where the bytes are, in their order.
    fn slices(self) -> impl Iterator<Item = &'a [u8]>;
}

impl<'a> Source<'a> for &'a [u8] {
    #[inline(always)]
    fn length(self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn range(self, range: Range<usize>) -> Self {
        &self[range]
    }

    #[inline(always)]
    fn slices(self) -> impl Iterator<Item = &'a [u8]> {
        core::iter::once(self)
    }
}

/// Bytes of several buffers. A record takes them together, since the kernel's TCP lets no reader see one buffer of a call without
/// the next one.
#[derive(Clone, Copy, Debug)]
pub struct Gather<'a> {
    buffers: &'a [IoSlice<'a>],
    /// Bytes before these.
    skip: usize,
    len: usize,
}

impl<'a> Gather<'a> {
    /// `len` bytes of `buffers`, from their byte `skip` on, which must be there.
    #[must_use]
    pub fn new(buffers: &'a [IoSlice<'a>], skip: usize, len: usize) -> Self {
        debug_assert!(skip + len <= buffers.iter().map(|buffer| buffer.len()).sum(), "not so many bytes");
        Self { buffers, skip, len }
    }
}

impl<'a> Source<'a> for Gather<'a> {
    fn length(self) -> usize {
        self.len
    }

    fn range(self, range: Range<usize>) -> Self {
        Self { skip: self.skip + range.start, len: range.len(), ..self }
    }

    fn slices(self) -> impl Iterator<Item = &'a [u8]> {
        let (mut skip, mut left) = (self.skip, self.len);
        self.buffers.iter().filter_map(move |buffer| {
            let bytes = &buffer[skip.min(buffer.len())..];
            skip = skip.saturating_sub(buffer.len());
            let part = &bytes[..left.min(bytes.len())];
            left -= part.len();
            (!part.is_empty()).then_some(part)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gather_gives_each_range_of_the_bytes() {
        let all: Vec<u8> = (0..30).collect();
        let buffers = [0..3, 3..3, 3..10, 10..30].map(|range: Range<usize>| IoSlice::new(&all[range]));
        for skip in 0..=30 {
            for len in 0..=30 - skip {
                let gather = Gather::new(&buffers, skip, len);
                let expected = &all[skip..skip + len];
                assert_eq!(gather.length(), expected.len());
                assert_eq!(gather.slices().collect::<Vec<_>>().concat(), expected);
                let (from, to) = (expected.len() / 3, expected.len() - expected.len() / 4);
                assert_eq!(gather.range(from..to).slices().collect::<Vec<_>>().concat(), &expected[from..to]);
            }
        }
    }
}

//! Layout of a buffer: memory of one program that programs at the far ends of its streams may map.
//!
//! ```text
//!   0      the buffer's bytes, `len` of them, a multiple of the page size
//!   len    GONE  u32   1: the owner has freed the buffer; programs that map it may unmap it
//!   +64    of an open buffer, [`LANDINGS`] completion lines, one for each offer: how many bytes the far program has written
//!          into the offer with this line's number (RdmaWrCompl): word u64, seal u64
//! ```
//! The owner stores `GONE`, so that other programs can free the memory; a false value harms only the owner.
//!
//! The far program stores the line after the bytes. The word has the form of [`crate::zcopy`]. Programs of other circuits may
//! have the buffer mapped too, so the owner accepts a word only with the [`seal`] of the circuit on which the offer was made.

use crate::mark::mark;
use crate::segment::{LINE, PAGE};

/// Longest buffer, bytes.
pub const LEN_MAX: u64 = (1 << 30) - PAGE;
/// Value of the `GONE` word while the owner uses the buffer.
pub const ALIVE: u32 = 0;
/// Value of the `GONE` word once the owner has freed the buffer.
pub const GONE: u32 = 1;

/// Most offers of one buffer that are open at a time.
pub const LANDINGS: u32 = 63;

/// Where line `number` begins, bytes from the buffer's end; `None` if there is no such line.
pub fn landing_at(number: u32) -> Option<u64> {
    (number < LANDINGS).then(|| (u64::from(number) + 1) * LINE)
}

/// A value that proves that the program which stored `word` knows both mark keys of a circuit: `writes` is the key of the
/// marks that this program writes, `reads` the key of those that it reads.
pub fn seal(writes: u64, reads: u64, word: u64) -> u64 {
    mark(writes, word) ^ mark(reads, !word)
}

/// Length of the memory of a buffer of `len` bytes, with the page behind it.
pub const fn memory_len(len: u64) -> u64 {
    len + PAGE
}

/// Whether a buffer may have this many bytes.
pub const fn len_ok(len: u64) -> bool {
    len > 0 && len <= LEN_MAX && len.is_multiple_of(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_lines_lie_in_the_page_behind_it() {
        let last = landing_at(LANDINGS - 1).unwrap();
        assert_eq!((landing_at(0), last + LINE, landing_at(LANDINGS)), (Some(LINE), PAGE, None));
    }

    #[test]
    fn buffer_seal_is_of_one_word_and_both_keys_in_order() {
        let good = seal(1, 2, 3);
        for other in [seal(2, 1, 3), seal(1, 2, 4), seal(1, 3, 3), seal(2, 2, 3), 0, 3] {
            assert_ne!(good, other);
        }
    }
}

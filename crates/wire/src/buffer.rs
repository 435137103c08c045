//! Layout of a buffer: memory of one program that programs at the far ends of its streams may map.
//!
//! ```text
//!   0      the buffer's bytes, `len` of them, a multiple of the page size
//!   len    GONE  u32   1: the owner has freed the buffer; those who map it may unmap it
//!   +64    of an open buffer, [`LANDINGS`] lines, one for each offer: how many bytes the far program has written into the
//!          offer with this line's number (RdmaWrCompl): word u64, seal u64
//! ```
//! The owner stores `GONE`, so that others can save memory; a false value harms only the owner.
//!
//! The far program stores the line after the bytes. The word has the form of [`crate::zcopy`]. Programs at other circuits may have
//! the buffer mapped too, so the owner believes a word only with the [`seal`] of the circuit of the offer.

use crate::mark::mark;
use crate::segment::{LINE, PAGE};

/// Longest buffer, bytes.
pub const LEN_MAX: u64 = (1 << 30) - PAGE;
/// The word behind a buffer that its owner uses.
pub const ALIVE: u32 = 0;
/// The word behind a buffer that its owner has freed.
pub const GONE: u32 = 1;

/// Offers of one open buffer that may be open at a time.
pub const LANDINGS: u32 = 63;

/// Where line `number` begins, bytes behind the buffer's end; `None` if there is no such line.
pub fn landing_at(number: u32) -> Option<u64> {
    (number < LANDINGS).then(|| (u64::from(number) + 1) * LINE)
}

/// Proves that whoever stored `word` knows both mark keys of a circuit: `writes` is the key of the marks that this writer makes,
/// `reads` that of the marks that it looks for.
pub fn seal(writes: u64, reads: u64, word: u64) -> u64 {
    mark(writes, word) ^ mark(reads, !word)
}

/// Bytes of the memory of a buffer of `len` bytes.
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

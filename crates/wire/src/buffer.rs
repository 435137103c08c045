//! Layout of a buffer: memory of one program that programs at the far ends of its streams may map.
//!
//! ```text
//!   0      the buffer's bytes, `len` of them, a multiple of the page size
//!   len    GONE  u32   1: its owner has given it back; who maps it may forget it
//!          nothing up to the end of the page
//! ```
//! The owner writes `GONE`. It is for thrift alone: nobody is harmed by one who lies there.

use crate::slice::PAGE;

/// Longest buffer, bytes.
pub const LEN_MAX: u64 = (1 << 30) - PAGE;
/// The word behind the buffer, of one that lives.
pub const ALIVE: u32 = 0;
/// The word behind the buffer, of one that was given back.
pub const GONE: u32 = 1;

/// Bytes of the memory of a buffer of `len` bytes.
pub const fn memory_len(len: u64) -> u64 {
    len + PAGE
}

/// Whether a buffer may have this many bytes.
pub const fn len_ok(len: u64) -> bool {
    len > 0 && len <= LEN_MAX && len.is_multiple_of(PAGE)
}

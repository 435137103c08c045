//! Striped streams: the bytes of each direction alternate between two circuits, in pieces of [`PIECE`] bytes counted from the
//! start of the stream. Records, credit, moves and retention are each circuit's own, so no record says where its bytes belong:
//! the number of bytes before them does.

/// Bytes of a piece. Two timed cables of `gen1 x1` had 1.9 times the rate of one with pieces of 16 and 32 KB, 1.6 with 4 KB and 1.1
/// with 128 KB: a queue of stores should hold a piece, and a record should be long.
pub const PIECE: u64 = 16 * 1024;

/// Which circuit has the byte behind `before` bytes of its direction, and how many bytes of that piece are left.
pub const fn place(before: u64) -> (Side, u64) {
    let side = if (before / PIECE).is_multiple_of(2) { Side::First } else { Side::Second };
    (side, PIECE - before % PIECE)
}

/// One of the two circuits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one by which the stream was announced.
    First,
    /// The other.
    Second,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_alternate_by_pieces() {
        assert_eq!(place(0), (Side::First, PIECE));
        assert_eq!(place(PIECE - 1), (Side::First, 1));
        assert_eq!(place(PIECE), (Side::Second, PIECE));
        assert_eq!(place(5 * PIECE + 1), (Side::Second, PIECE - 1));
        assert_eq!(place(6 * PIECE), (Side::First, PIECE));
    }
}

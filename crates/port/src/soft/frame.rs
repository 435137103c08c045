//! Frames between two soft ports over their socket: they replace the set-up registers of hardware.
//!
//! One frame a packet, little-endian: `tag u32 | small u32 | first u64 | second u64`, and in a Hello the lengths of the sender's
//! translations behind that, `u64` each. `Hello`, `Segment`, `Waker` and `Buffer` come with one descriptor, the others with none.

use crosslane_wire::{Reach, SegmentRange};
use thiserror::Error;

/// Version of these frames and of the register page. The Hello's layout never changes.
pub const VERSION: u32 = 3;
/// Most windows of a port.
pub const MAX_WINDOWS: usize = 8;
/// Longest frame, bytes.
pub const MAX_FRAME: usize = HEAD + 8 * MAX_WINDOWS;

const HEAD: usize = 24;
const MAGIC: u64 = u64::from_le_bytes(*b"XLANPORT");

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// First frame of each side. Descriptor: the sender's register page, for the receiver to store into.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// Bytes behind each of the sender's inbound windows; at most [`MAX_WINDOWS`]. Empty if `version` is not [`VERSION`].
        translations: Vec<u64>,
    },
    /// The sender's inbound window has another length now. It has no segments.
    Translation {
        /// The window.
        window: u32,
        /// Its length, bytes.
        len: u64,
    },
    /// The sender carved a segment of its inbound memory. Descriptor: the segment.
    Segment {
        /// The window.
        window: u32,
        /// The range in it.
        range: SegmentRange,
    },
    /// The sender freed that segment.
    Freed {
        /// The window.
        window: u32,
        /// The range in it.
        range: SegmentRange,
    },
    /// The receiver may import this waker, once. Descriptor: its socket.
    Waker {
        /// Its handle, never used before.
        handle: u64,
    },
    /// The receiver may import this program's buffer, once. Descriptor: its memory.
    Buffer {
        /// Its handle, never used before.
        handle: u64,
        /// Its length, bytes.
        len: u64,
        /// What the receiver may do with it: 1 load, 2 store.
        reach: Reach,
    },
    /// Doorbell counters have changed: the receiver must check them.
    Wake {
        /// Number of the wake-up; the receiver stores it into the sender's register page when it has checked them.
        number: u32,
    },
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// Too short, too long, or incomplete.
    #[error("frame of {0} bytes")]
    Length(usize),
    /// No such tag.
    #[error("frame with tag {0}")]
    Tag(u32),
    /// A Hello, but not of a soft port.
    #[error("hello without the magic word")]
    Magic,
    /// A field that must be zero is not.
    #[error("frame with bits set that have no meaning")]
    Reserved,
}

impl Frame {
    /// Number of descriptors that come with it.
    pub fn descriptors(&self) -> usize {
        let brings = matches!(
            self,
            Self::Hello { .. } | Self::Segment { .. } | Self::Waker { .. } | Self::Buffer { .. }
        );
        usize::from(brings)
    }

    /// The frame's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let (tag, small, first, second, more): (u32, u32, u64, u64, &[u64]) = match self {
            Self::Hello { version, translations } => (1, *version, MAGIC, 0, translations),
            Self::Translation { window, len } => (2, *window, 0, *len, &[]),
            Self::Segment { window, range } => (3, *window, range.offset, range.len, &[]),
            Self::Freed { window, range } => (4, *window, range.offset, range.len, &[]),
            Self::Waker { handle } => (5, 0, *handle, 0, &[]),
            Self::Wake { number } => (7, *number, 0, 0, &[]),
            Self::Buffer { handle, len, reach: Reach::Load } => (8, 1, *handle, *len, &[]),
            Self::Buffer { handle, len, reach: Reach::Store } => (8, 2, *handle, *len, &[]),
        };
        let mut bytes = Vec::with_capacity(HEAD + 8 * more.len());
        bytes.extend(tag.to_le_bytes());
        bytes.extend(small.to_le_bytes());
        bytes.extend(first.to_le_bytes());
        bytes.extend(second.to_le_bytes());
        bytes.extend(more.iter().flat_map(|len| len.to_le_bytes()));
        bytes
    }

    /// Decodes a packet of the peer.
    ///
    /// # Errors
    /// The packet is not exactly one frame. A Hello of another version is a frame, so that the versions can be reported.
    pub fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        let (head, rest) = bytes.split_at_checked(HEAD).ok_or(FrameError::Length(bytes.len()))?;
        let (tag, small) = (word32(&head[0..4]), word32(&head[4..8]));
        let (first, second) = (word64(&head[8..16]), word64(&head[16..24]));
        if tag == 1 {
            return hello(small, first, second, rest);
        }
        if !rest.is_empty() {
            return Err(FrameError::Length(bytes.len()));
        }
        let range = SegmentRange { offset: first, len: second };
        let (frame, spare) = match tag {
            2 => (Self::Translation { window: small, len: second }, first),
            3 => (Self::Segment { window: small, range }, 0),
            4 => (Self::Freed { window: small, range }, 0),
            5 => (Self::Waker { handle: first }, u64::from(small) | second),
            7 => (Self::Wake { number: small }, first | second),
            8 => (Self::Buffer { handle: first, len: second, reach: reach(small)? }, 0),
            _ => return Err(FrameError::Tag(tag)),
        };
        if spare == 0 { Ok(frame) } else { Err(FrameError::Reserved) }
    }
}

fn reach(number: u32) -> Result<Reach, FrameError> {
    match number {
        1 => Ok(Reach::Load),
        2 => Ok(Reach::Store),
        _ => Err(FrameError::Reserved),
    }
}

fn hello(version: u32, magic: u64, spare: u64, rest: &[u8]) -> Result<Frame, FrameError> {
    if magic != MAGIC {
        return Err(FrameError::Magic);
    }
    if version != VERSION {
        return Ok(Frame::Hello { version, translations: Vec::new() });
    }
    if spare != 0 {
        return Err(FrameError::Reserved);
    }
    if !rest.len().is_multiple_of(8) || rest.len() > 8 * MAX_WINDOWS {
        return Err(FrameError::Length(HEAD + rest.len()));
    }
    Ok(Frame::Hello { version, translations: rest.chunks_exact(8).map(word64).collect() })
}

fn word32(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

fn word64(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames() -> impl Strategy<Value = Frame> {
        let range = (any::<u64>(), any::<u64>()).prop_map(|(offset, len)| SegmentRange { offset, len });
        prop_oneof![
            prop::collection::vec(any::<u64>(), 0..=MAX_WINDOWS)
                .prop_map(|translations| Frame::Hello { version: VERSION, translations }),
            (any::<u32>(), any::<u64>()).prop_map(|(window, len)| Frame::Translation { window, len }),
            (any::<u32>(), range.clone()).prop_map(|(window, range)| Frame::Segment { window, range }),
            (any::<u32>(), range).prop_map(|(window, range)| Frame::Freed { window, range }),
            any::<u64>().prop_map(|handle| Frame::Waker { handle }),
            any::<u32>().prop_map(|number| Frame::Wake { number }),
            (any::<u64>(), any::<u64>(), any::<bool>()).prop_map(|(handle, len, load)| {
                Frame::Buffer { handle, len, reach: if load { Reach::Load } else { Reach::Store } }
            }),
        ]
    }

    proptest! {
        #[test]
        fn frame_encodes_and_decodes(frame in frames()) {
            let bytes = frame.encode();
            prop_assert!(bytes.len() <= MAX_FRAME);
            prop_assert_eq!(Frame::decode(&bytes), Ok(frame));
        }

        #[test]
        fn frame_arbitrary_bytes_decode_or_fail(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(frame) = Frame::decode(&bytes) {
                prop_assert!(frame.encode().len() <= bytes.len());
            }
        }

        #[test]
        fn frame_with_trailing_bytes_is_refused(frame in frames(), more in 1usize..8) {
            let mut bytes = frame.encode();
            bytes.resize(bytes.len() + more, 0);
            prop_assert!(Frame::decode(&bytes).is_err());
        }
    }

    #[test]
    fn soft_version_mismatch_is_named() {
        let mut bytes = Frame::Hello { version: 9, translations: Vec::new() }.encode();
        bytes.extend([1, 2, 3]);
        assert_eq!(Frame::decode(&bytes), Ok(Frame::Hello { version: 9, translations: Vec::new() }));
    }
}

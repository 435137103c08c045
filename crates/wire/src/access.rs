//! One-sided access to another program's memory, as bytes of a stream: commands from the requester, answers from the
//! owner. All numbers are little endian.
//!
//! ```text
//!   requester                                     owner
//!   [`HANDSHAKE`]             -------->            [`HANDSHAKE`]               both, before anything else
//!   Command (48 bytes), data of a Put  ------>    executed in the order in which they come
//!                            <--------            Answer (24 bytes), data of a Get
//! ```
//! Both sides count commands from 0; an answer contains the number of its command. A command fits into one cache line of
//! a ring, together with the record's header.

use crate::DecodeError;

/// What both sides send first: a magic number, and the version of these layouts.
pub const HANDSHAKE: [u8; 8] = *b"xlaccess";
/// Bytes of a command.
pub const COMMAND: usize = 48;
/// Bytes of an answer.
pub const ANSWER: usize = 24;
/// Most bytes that follow a [`Command::Put`] or a [`Answer::Data`]; longer transfers are several of them.
pub const PIECE: usize = 64 * 1024;
/// Most bytes in a [`Command::PutShort`] itself.
pub const SHORT: usize = 16;

/// A remote address: region, key and offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the region.
    pub region: u32,
    /// The region's key, which the owner gave out and checks.
    pub key: u64,
    /// Bytes from the region's start.
    pub offset: u64,
}

/// A command of the requester to the region's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Store the `len` bytes that follow, at most [`PIECE`].
    Put {
        /// Where to store them.
        place: Place,
        /// Length, bytes.
        len: u32,
    },
    /// Store the first `len` bytes of `bytes`, at most [`SHORT`].
    PutShort {
        /// Where to store them.
        place: Place,
        /// Length, bytes.
        len: u32,
        /// The bytes.
        bytes: [u8; SHORT],
    },
    /// Send `len` bytes back. Later commands may be executed before it, up to a [`Command::Fence`].
    Get {
        /// Where they lie.
        place: Place,
        /// Length, bytes.
        len: u64,
    },
    /// Add to an aligned word of 8 bytes and send back its previous value.
    FetchAdd {
        /// The word.
        place: Place,
        /// The number to add; the sum wraps.
        value: u64,
    },
    /// Store `new` into an aligned word of 8 bytes if it contains `expected`, and send back its previous value.
    CompareSwap {
        /// The word.
        place: Place,
        /// The value that is compared with the word.
        expected: u64,
        /// The value that is stored if they are equal.
        new: u64,
    },
    /// Commands after this one are executed only after all earlier ones.
    Fence,
    /// Notify the owner's program with a number. Any key of the region permits it.
    Notify {
        /// The region whose owner is notified.
        place: Place,
        /// The number.
        value: u64,
    },
}

/// Why a command was not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u8)]
pub enum Denial {
    /// There is no such region (any more).
    #[error("there is no such region, or no longer")]
    UnknownRegion = 1,
    /// The region does not have this key (any more).
    #[error("the key is not one of this region, or was taken back")]
    WrongKey = 2,
    /// The key does not give the right that the command needs.
    #[error("the key does not give the right to do this")]
    NotPermitted = 3,
    /// Not all of the range lies inside the region.
    #[error("the place lies outside of the region")]
    Outside = 4,
    /// An atomic operation on a word that does not begin at a multiple of 8.
    #[error("an atomic operation needs a word aligned to 8 bytes")]
    Misaligned = 5,
}

/// An answer of the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// All commands up to and including number `upto` are done, except those that have an answer of their own.
    Done {
        /// Number of the last one.
        upto: u64,
    },
    /// Previous value of the word of an atomic operation.
    Value {
        /// Number of the command.
        number: u64,
        /// The word's previous value.
        value: u64,
    },
    /// The next `len` bytes of a `Get` follow, at most [`PIECE`].
    Data {
        /// Number of the command.
        number: u64,
        /// Bytes of this `Get` that earlier answers carried.
        offset: u64,
        /// Bytes that follow.
        len: u32,
    },
    /// The command was refused: no part of it was executed, or of a `Get` only the part that was answered before.
    Denied {
        /// Number of the command.
        number: u64,
        /// The reason.
        why: Denial,
    },
}

mod kind {
    pub(super) const PUT: u8 = 1;
    pub(super) const PUT_SHORT: u8 = 2;
    pub(super) const GET: u8 = 3;
    pub(super) const FETCH_ADD: u8 = 4;
    pub(super) const COMPARE_SWAP: u8 = 5;
    pub(super) const FENCE: u8 = 6;
    pub(super) const NOTIFY: u8 = 7;
    pub(super) const DONE: u8 = 16;
    pub(super) const VALUE: u8 = 17;
    pub(super) const DATA: u8 = 18;
    pub(super) const DENIED: u8 = 19;
}

impl Command {
    /// The command's bytes: kind, region, key, offset, and two words whose meaning depends on the kind.
    pub fn encode(&self) -> [u8; COMMAND] {
        const NOWHERE: Place = Place { region: 0, key: 0, offset: 0 };
        let (kind, place, len, a, b) = match *self {
            Self::Put { place, len } => (kind::PUT, place, len.into(), 0, 0),
            Self::PutShort { place, len, bytes } => {
                let [a, b] = [word(&bytes, 0), word(&bytes, 8)];
                (kind::PUT_SHORT, place, len.into(), a, b)
            }
            Self::Get { place, len } => (kind::GET, place, len, 0, 0),
            Self::FetchAdd { place, value } => (kind::FETCH_ADD, place, 0, value, 0),
            Self::CompareSwap { place, expected, new } => (kind::COMPARE_SWAP, place, 0, expected, new),
            Self::Fence => (kind::FENCE, NOWHERE, 0, 0, 0),
            Self::Notify { place, value } => (kind::NOTIFY, place, 0, value, 0),
        };
        let mut bytes = [0; COMMAND];
        bytes[0] = kind;
        bytes[4..8].copy_from_slice(&place.region.to_le_bytes());
        for (at, value) in [(8, place.key), (16, place.offset), (24, len), (32, a), (40, b)] {
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    /// Decodes and checks a command from a peer.
    ///
    /// # Errors
    /// An unknown kind, a length that this kind cannot have, or bytes that must be zero and are not.
    pub fn decode(bytes: &[u8; COMMAND]) -> Result<Self, DecodeError> {
        let [kind, zeros @ .., r0, r1, r2, r3] = *first(bytes);
        let place = Place {
            region: u32::from_le_bytes([r0, r1, r2, r3]),
            key: word(bytes, 8),
            offset: word(bytes, 16),
        };
        let (len, a, b) = (word(bytes, 24), word(bytes, 32), word(bytes, 40));
        let short = |most: u64| match u32::try_from(len) {
            Ok(short) if len <= most => Ok(short),
            _ => Err(DecodeError::Range("length of a put")),
        };
        let command = match kind {
            kind::PUT => Self::Put { place, len: short(PIECE as u64)? },
            kind::PUT_SHORT => {
                let mut bytes = [0; SHORT];
                bytes[..8].copy_from_slice(&a.to_le_bytes());
                bytes[8..].copy_from_slice(&b.to_le_bytes());
                Self::PutShort { place, len: short(SHORT as u64)?, bytes }
            }
            kind::GET => Self::Get { place, len },
            kind::FETCH_ADD => Self::FetchAdd { place, value: a },
            kind::COMPARE_SWAP => Self::CompareSwap { place, expected: a, new: b },
            kind::FENCE => Self::Fence,
            kind::NOTIFY => Self::Notify { place, value: a },
            _ => return Err(DecodeError::Range("kind of a command")),
        };
        if zeros != [0; 3] || command.encode() != *bytes {
            return Err(DecodeError::Range("unused bytes of a command"));
        }
        Ok(command)
    }
}

impl Answer {
    /// The answer's bytes: kind, length or reason, number, and a word.
    pub fn encode(&self) -> [u8; ANSWER] {
        let (kind, short, number, value) = match *self {
            Self::Done { upto } => (kind::DONE, 0, upto, 0),
            Self::Value { number, value } => (kind::VALUE, 0, number, value),
            Self::Data { number, offset, len } => (kind::DATA, len, number, offset),
            Self::Denied { number, why } => (kind::DENIED, u32::from(why as u8), number, 0),
        };
        let mut bytes = [0; ANSWER];
        bytes[0] = kind;
        bytes[4..8].copy_from_slice(&short.to_le_bytes());
        bytes[8..16].copy_from_slice(&number.to_le_bytes());
        bytes[16..].copy_from_slice(&value.to_le_bytes());
        bytes
    }

    /// Decodes and checks an answer from a peer.
    ///
    /// # Errors
    /// An unknown kind or reason, a length over [`PIECE`], or bytes that must be zero and are not.
    pub fn decode(bytes: &[u8; ANSWER]) -> Result<Self, DecodeError> {
        let [kind, zeros @ .., s0, s1, s2, s3] = *first(bytes);
        let (short, number, value) = (u32::from_le_bytes([s0, s1, s2, s3]), word(bytes, 8), word(bytes, 16));
        let answer = match kind {
            kind::DONE => Self::Done { upto: number },
            kind::VALUE => Self::Value { number, value },
            kind::DATA if short as usize <= PIECE => Self::Data { number, offset: value, len: short },
            kind::DATA => return Err(DecodeError::Range("length of an answer")),
            kind::DENIED => Self::Denied { number, why: Denial::from_number(short)? },
            _ => return Err(DecodeError::Range("kind of an answer")),
        };
        if zeros != [0; 3] || answer.encode() != *bytes {
            return Err(DecodeError::Range("unused bytes of an answer"));
        }
        Ok(answer)
    }
}

impl Denial {
    fn from_number(number: u32) -> Result<Self, DecodeError> {
        let all = [Self::UnknownRegion, Self::WrongKey, Self::NotPermitted, Self::Outside, Self::Misaligned];
        let known = all.into_iter().find(|why| *why as u32 == number);
        known.ok_or(DecodeError::Range("reason of a denial"))
    }
}

fn first<const N: usize>(bytes: &[u8; N]) -> &[u8; 8] {
    bytes.first_chunk().unwrap_or(&[0; 8])
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { region: 7, key: u64::MAX - 1, offset: 1 << 40 };

    fn commands() -> [Command; 7] {
        [
            Command::Put { place: PLACE, len: 65536 },
            Command::PutShort { place: PLACE, len: 3, bytes: *b"abc\0\0\0\0\0\0\0\0\0\0\0\0z" },
            Command::Get { place: PLACE, len: u64::MAX },
            Command::FetchAdd { place: PLACE, value: 5 },
            Command::CompareSwap { place: PLACE, expected: 1, new: 2 },
            Command::Fence,
            Command::Notify { place: PLACE, value: 9 },
        ]
    }

    fn answers() -> [Answer; 4] {
        [
            Answer::Done { upto: 3 },
            Answer::Value { number: 4, value: u64::MAX },
            Answer::Data { number: 5, offset: 1 << 33, len: 65536 },
            Answer::Denied { number: 6, why: Denial::Misaligned },
        ]
    }

    #[test]
    fn access_commands_encode_and_decode() {
        for command in commands() {
            assert_eq!(Command::decode(&command.encode()), Ok(command));
        }
        for answer in answers() {
            assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        }
        for number in 1..=5 {
            assert_eq!(Denial::from_number(number).unwrap() as u32, number);
        }
    }

    #[test]
    fn access_lies_are_refused() {
        let long = Command::Put { place: PLACE, len: 65537 };
        assert_eq!(Command::decode(&long.encode()), Err(DecodeError::Range("length of a put")));
        let long = Command::PutShort { place: PLACE, len: 17, bytes: [0; SHORT] };
        assert_eq!(Command::decode(&long.encode()), Err(DecodeError::Range("length of a put")));
        let long = Answer::Data { number: 0, offset: 0, len: 65537 };
        assert_eq!(Answer::decode(&long.encode()), Err(DecodeError::Range("length of an answer")));
        for (at, bad) in [(0, 0), (0, 8), (0, 255), (1, 1), (3, 9), (4, 1), (47, 1)] {
            let mut bytes = Command::Fence.encode();
            bytes[at] = bad;
            assert!(Command::decode(&bytes).is_err(), "byte {at} is {bad}");
        }
        for (at, bad) in [(0, 0), (0, 1), (0, 20), (2, 1), (4, 0), (4, 6), (7, 1), (16, 1)] {
            let mut bytes = answers()[3].encode();
            bytes[at] = bad;
            assert!(Answer::decode(&bytes).is_err(), "byte {at} is {bad}");
        }
    }

    /// For any bytes, a decoder returns an error or a value that encodes to the same bytes.
    #[test]
    fn access_bytes_decode_to_themselves_or_not_at_all() {
        let mut seed = 1u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33).to_le_bytes()[0]
        };
        let mut understood = 0;
        for round in 0..200_000 {
            let mut command = commands()[round % 7].encode();
            let mut answer = answers()[round % 4].encode();
            for _ in 0..round % 4 {
                command[usize::from(random()) % COMMAND] = random();
                answer[usize::from(random()) % ANSWER] = random();
            }
            if let Ok(decoded) = Command::decode(&command) {
                assert_eq!(decoded.encode(), command);
                understood += 1;
            }
            if let Ok(decoded) = Answer::decode(&answer) {
                assert_eq!(decoded.encode(), answer);
            }
        }
        assert!((60_000..200_000).contains(&understood), "{understood}");
    }
}

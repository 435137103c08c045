//! Records: the contents of a byte ring.
//!
//! ```text
//!   +0   mark  u64   splitmix64(key + position): "this record is here", stored last
//!   +8   word  u64   len (bits 0..18) | kind (18..22) | flags (22..26) | cpu (26..36) | stamp (36..64)
//!   +16  payload, `len` bytes, from +64 on if `len` is [`BULK`] or more; the next record starts at the next cache line
//! ```
//! A record of up to 48 bytes is one cache line, mark and all, so only one line is transferred. `key` is 64 random bits
//! that only the two ends know, and `position` counts the bytes of ring used since the ring began, so neither stale bytes
//! of an earlier lap nor payload chosen by a third party can pass for a mark.
//!
//! The stamp is the writer's time, 0 if the reader did not request it (`ORDER`). A reader that waits for several streams
//! takes their records in the order of the stamps; nothing else depends on a stamp, so no reader checks it.

pub use crate::mark::mark;
use crate::{DecodeError, zcopy};

/// Bytes of mark and word in front of the payload.
pub const HEADER: u64 = 16;
/// Payload from this length on starts on a cache line of its own, bytes: source, ring and target then have the same
/// alignment as programs' buffers, which processors copy fastest, and a write of 128 KB is exactly two records.
pub const BULK: u64 = 1024;
/// Longest payload of one record, bytes: large writes go out as several records, so that the reader copies one
/// while the writer fills the next.
pub const MAX_PAYLOAD: u64 = 64 * 1024;
/// Longest payload of one [`Kind::Message`] in a ring of [`crate::segment::RING_MIN`], bytes.
pub const MAX_MESSAGE: u64 = max_message(crate::segment::RING_MIN);
/// Longest payload of one [`Kind::Message`] in any ring, bytes: the longest IP packet that a kernel hands over, 64 KB
/// behind an IPv6 header, with [`crate::packet::HEAD`] before it.
pub const MAX_PACKET: u64 = MAX_PAYLOAD + 128;
/// Length of piggybacked credit, bytes.
const CREDIT_BYTES: u64 = 8;
/// Flag: the next record lies at the ring's present end, and from then on the ring is twice as long.
pub const FLAG_GROW: u8 = 1;
/// Flag: the record's last 8 bytes, behind the payload, are piggybacked credit: the position up to which the record's writer has
/// consumed the other direction, as in [`crate::segment::CREDIT`].
pub const FLAG_CREDIT: u8 = 2;
/// Flag: the writer may still append bytes to this record, until it stores the header word again with [`FLAG_GATHERED`] in
/// place of this flag. Only [`Kind::Data`] of 1 to [`LONGEST_OPEN`] bytes has one of these two flags, and then no other flag.
pub const FLAG_OPEN: u8 = 4;
/// Flag: this record was open and is closed now.
pub const FLAG_GATHERED: u8 = 8;
/// Longest payload of an open record, bytes: it begins right behind the header.
pub const LONGEST_OPEN: u64 = BULK - HEADER;
/// The bits of a processor's number that a record carries.
pub const CPU_MASK: u16 = 0x3ff;
/// Lowest bit of the kind in a record's header word; the length is below it.
const KIND_AT: u32 = 18;
const FLAGS_AT: u32 = 22;
const CPU_AT: u32 = 26;
const LEN_MASK: u64 = (1 << KIND_AT) - 1;
const OPEN: u64 = (FLAG_OPEN as u64) << FLAGS_AT;
const GATHERED: u64 = (FLAG_GATHERED as u64) << FLAGS_AT;
/// Lowest bit of the stamp in a record's header word.
const STAMP_AT: u32 = 36;
const STAMP_MASK: u32 = 0x0fff_ffff;
/// How far a stamp may lie ahead of the reader's clock; a stamp farther ahead is from before its bits wrapped.
const STAMP_AHEAD: u32 = (STAMP_MASK + 1) / 8;

/// What a record carries. The names are those of the SDP specification where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Bytes of the stream (SDP Data).
    Data = 1,
    /// The connecting side's first record.
    Hello = 2,
    /// The accepting side's first record.
    HelloAck = 3,
    /// End of the direction: the sender sends no more data (SDP DisConn).
    DisConn = 4,
    /// The stream is aborted (SDP AbortConn).
    AbortConn = 5,
    /// All later bytes of the direction travel by the kernel's TCP.
    Downgrade = 6,
    /// One message of a message channel (control, IP), with its boundaries.
    Message = 7,
    /// No content: fills the ring up to its end, where the next message would not fit.
    Filler = 8,
    /// A [`crate::zcopy::Descriptor`] of memory from which the receiver may fetch the bytes that follow, then bytes of the stream
    /// that come before those (SDP SrcAvail).
    SrcAvail = 9,
    /// A [`crate::zcopy::Descriptor`] of memory into which the receiver may write bytes of the other direction, then bytes of the
    /// stream, perhaps none (SDP SinkAvail).
    SinkAvail = 10,
}

impl Kind {
    /// The kind with this number.
    pub fn from_u8(number: u8) -> Result<Self, DecodeError> {
        Ok(match number {
            1 => Self::Data,
            2 => Self::Hello,
            3 => Self::HelloAck,
            4 => Self::DisConn,
            5 => Self::AbortConn,
            6 => Self::Downgrade,
            7 => Self::Message,
            8 => Self::Filler,
            9 => Self::SrcAvail,
            10 => Self::SinkAvail,
            _ => return Err(DecodeError::range("record kind")),
        })
    }

    /// Whether records of this kind have bytes of the stream.
    #[inline]
    pub const fn has_bytes(self) -> bool {
        matches!(self, Self::Data | Self::SrcAvail | Self::SinkAvail)
    }

    /// Payload bytes of this kind that precede the stream's bytes: the descriptor.
    #[inline]
    pub const fn prefix(self) -> u32 {
        match self {
            Self::SrcAvail | Self::SinkAvail => zcopy::DESCRIPTOR,
            _ => 0,
        }
    }
}

/// Longest payload of one [`Kind::Message`] in a ring of `ring` bytes: together with the filler before it, it fits although the
/// reader withholds credit for a quarter of the ring.
pub const fn max_message(ring: u64) -> u64 {
    let quarter = (ring / 4).saturating_sub(HEADER);
    if quarter < MAX_PACKET { quarter } else { MAX_PACKET }
}

/// By how much a record of `len` payload bytes advances the *stream offset*: its bytes of the stream, or 1 for a control record
/// (handshake, end of a direction, Downgrade). Both ends and their daemons count it from the stream's start over all circuits
/// that the stream uses.
pub fn units(kind: Kind, len: u32) -> u64 {
    match kind {
        Kind::Data => len.into(),
        Kind::SrcAvail | Kind::SinkAvail => len.saturating_sub(kind.prefix()).into(),
        Kind::Filler | Kind::Message => 0,
        Kind::Hello | Kind::HelloAck | Kind::DisConn | Kind::AbortConn | Kind::Downgrade => 1,
    }
}

/// A record's header word, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Payload, bytes.
    pub len: u32,
    /// What it carries.
    pub kind: Kind,
    /// Any of [`FLAG_GROW`] and [`FLAG_CREDIT`], or one of [`FLAG_OPEN`] and [`FLAG_GATHERED`].
    pub flags: u8,
    /// Number of the processor on which the writer ran, in [`CPU_MASK`], so that a reader on the same processor of the same machine
    /// does not spin.
    pub cpu: u16,
}

impl Header {
    /// The word as it is stored.
    pub fn to_word(self) -> u64 {
        (u64::from(self.len) & LEN_MASK)
            | (self.kind as u64) << KIND_AT
            | u64::from(self.flags & 0xf) << FLAGS_AT
            | u64::from(self.cpu & CPU_MASK) << CPU_AT
    }

    /// Checks a header word that a peer stored. `room` is the distance from the record's start to the ring's present end,
    /// bytes: a record never wraps.
    #[inline(always)]
    pub fn from_word(word: u64, room: u64) -> Result<Self, DecodeError> {
        let [part, cpu] = [word >> KIND_AT, word >> CPU_AT].map(|word| u16::from_le_bytes(low(word)));
        let [kind_and_flags, _] = part.to_le_bytes();
        let flags = kind_and_flags >> 4;
        let header = Self {
            len: u32::try_from(word & LEN_MASK).unwrap_or(u32::MAX),
            kind: Kind::from_u8(kind_and_flags & 0xf)?,
            flags,
            cpu: cpu & CPU_MASK,
        };
        let longest = match header.kind {
            Kind::Message | Kind::Filler => MAX_PACKET,
            _ => MAX_PAYLOAD,
        };
        if u64::from(header.len) > longest || header.len < header.kind.prefix() || header.span() > room {
            return Err(DecodeError::range("record length"));
        }
        if flags & !FLAG_GROW != 0 && !header.may_have_flags() {
            return Err(DecodeError::range("record flags"));
        }
        Ok(header)
    }

    /// Whether a record of this kind and length can have these flags.
    #[cold]
    fn may_have_flags(self) -> bool {
        match self.flags {
            FLAG_OPEN | FLAG_GATHERED => {
                self.kind == Kind::Data && (1..=LONGEST_OPEN).contains(&self.len.into())
            }
            flags => flags & !(FLAG_GROW | FLAG_CREDIT) == 0 && self.credit_at().is_some(),
        }
    }

    /// Checks a header word that was read again: the record was open, must be open or closed now, and must not have
    /// become shorter. `room` as in [`Self::from_word`].
    pub fn reread(self, word: u64, room: u64) -> Result<Self, DecodeError> {
        let next = Self::from_word(word, room)?;
        if !next.was_open() || next.len < self.len {
            return Err(DecodeError::range("word of an open record"));
        }
        Ok(next)
    }

    /// Whether more bytes may be appended.
    pub fn is_open(self) -> bool {
        self.flags & FLAG_OPEN != 0
    }

    /// Whether the record is open or was.
    pub fn was_open(self) -> bool {
        self.flags & (FLAG_OPEN | FLAG_GATHERED) != 0
    }

    /// Bytes of ring that the record takes, header and padding included.
    pub fn span(self) -> u64 {
        span(u64::from(self.len))
    }

    /// Where piggybacked credit lies, bytes from the record's start; `None` if the payload fills its last cache line.
    pub fn credit_at(self) -> Option<u64> {
        let at = self.span() - CREDIT_BYTES;
        (self.payload_at() + u64::from(self.len) <= at).then_some(at)
    }

    /// Where the payload begins, the descriptor included; bytes from the record's start.
    pub fn payload_at(self) -> u64 {
        payload_at(u64::from(self.len))
    }

    /// Where the stream's bytes begin, bytes from the record's start.
    pub fn bytes_at(self) -> u64 {
        self.payload_at() + u64::from(self.kind.prefix())
    }

    /// How many bytes of the stream the record has.
    pub fn bytes(self) -> u32 {
        self.len.saturating_sub(self.kind.prefix())
    }
}

/// Whether a header word is that of an open record.
#[inline]
pub fn is_open(word: u64) -> bool {
    word & OPEN != 0
}

/// The header word of the same record after it is closed.
#[inline]
pub fn closed(word: u64) -> u64 {
    word & !OPEN | GATHERED
}

/// The payload's length in a word, bytes.
#[inline]
pub fn length(word: u64) -> u64 {
    word & LEN_MASK
}

/// Where a payload of `len` bytes begins, bytes from the record's start.
pub fn payload_at(len: u64) -> u64 {
    if len < BULK { HEADER } else { crate::segment::LINE }
}

/// Bytes of ring that a record with a payload of `len` bytes takes, header and padding included.
pub fn span(len: u64) -> u64 {
    (payload_at(len) + len).next_multiple_of(crate::segment::LINE)
}

/// The longest payload of a record that takes `span` bytes of ring, at least [`HEADER`], at most.
pub fn payload_of(span: u64) -> u64 {
    match span.saturating_sub(crate::segment::LINE) {
        bulk if bulk >= BULK => bulk,
        _ => span.saturating_sub(HEADER).min(BULK - 1),
    }
}

/// The lowest two bytes.
fn low(word: u64) -> [u8; 2] {
    let [low, high, ..] = word.to_le_bytes();
    [low, high]
}

/// The header word with a stamp: the bits of the writer's `time` (of `crosslane_shm::clock`) for which there is room.
pub fn stamped(word: u64, time: u64) -> u64 {
    let time = (time & u64::from(STAMP_MASK)).max(1);
    word | time << STAMP_AT
}

/// The stamp of a record's word; 0 if it has none.
pub fn stamp(word: u64) -> u32 {
    u32::try_from(word >> STAMP_AT).unwrap_or(0)
}

/// Ranks stamps by age at the reader's time `now`: the lower, the older. A missing stamp (0) is the oldest.
pub fn rank(stamp: u32, now: u64) -> u32 {
    if stamp == 0 {
        return 0;
    }
    let now = u32::try_from(now & u64::from(STAMP_MASK)).unwrap_or(0);
    stamp.wrapping_sub(now).wrapping_sub(STAMP_AHEAD) & STAMP_MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_word_encodes_and_decodes() {
        let header = Header { len: 4711, kind: Kind::DisConn, flags: FLAG_GROW, cpu: CPU_MASK };
        let word = stamped(header.to_word(), u64::MAX);
        assert_eq!(Header::from_word(word, 8192), Ok(header));
        assert_eq!((stamp(word), stamp(header.to_word())), (STAMP_MASK, 0));
    }

    #[test]
    fn record_stamps_rank_by_age_where_they_wrap() {
        for now in [1_000_000, u64::from(STAMP_MASK) + 3, u64::MAX] {
            let at = |time: u64| rank(stamp(stamped(0, time)), now);
            let ahead = now.wrapping_add(u64::from(STAMP_AHEAD) / 2);
            let times = [now.wrapping_sub(900_000), now.wrapping_sub(2), now, now.wrapping_add(5), ahead];
            assert!(times.windows(2).all(|pair| at(pair[0]) < at(pair[1])), "{now}");
            assert!(rank(0, now) < at(times[0]));
        }
    }

    #[test]
    fn record_mark_is_never_zero_memory() {
        for key in [0, 1, u64::from(u32::MAX)] {
            assert_ne!(mark(key, 0), 0);
        }
    }

    #[test]
    fn record_payload_fills_its_span() {
        for lines in 1..2000 {
            let room = lines * crate::segment::LINE;
            let len = payload_of(room);
            assert_eq!(span(len), room);
            assert!(span(len + 1) > room);
        }
        assert_eq!((payload_of(1087), payload_of(0), span(128 * 1024 / 2)), (BULK - 1, 0, 64 * 1024 + 64));
    }

    #[test]
    fn record_lies_are_refused() {
        let word = |len: u64, kind: u64, flags: u64| len | kind << KIND_AT | flags << FLAGS_AT;
        assert!(Header::from_word(word(MAX_PAYLOAD, 1, 0), 1 << 20).is_ok());
        assert!(Header::from_word(word(MAX_PAYLOAD + 1, 1, 0), 1 << 20).is_err());
        assert!(Header::from_word(word(LEN_MASK, 1, 0), u64::MAX).is_err());
        for kind in [Kind::Message as u64, Kind::Filler as u64] {
            assert!(Header::from_word(word(MAX_PACKET, kind, 0), 1 << 20).is_ok());
            assert!(Header::from_word(word(MAX_PACKET + 1, kind, 0), 1 << 20).is_err());
        }
        assert!(Header::from_word(word(49, 1, 0), 64).is_err());
        assert!(Header::from_word(word(BULK, 1, 0), BULK + 48).is_err());
        assert!(Header::from_word(word(BULK, 1, 0), BULK + 64).is_ok());
        assert!(Header::from_word(word(48, 1, 0), 64).is_ok());
        assert!(Header::from_word(word(1, 0, 0), 64).is_err());
        assert!(Header::from_word(word(1, 1, 12), 64).is_err());
        for (len, kind, flags, good) in [
            (1, 1, 4, true),
            (LONGEST_OPEN, 1, 4, true),
            (0, 1, 4, false),
            (LONGEST_OPEN + 1, 1, 4, false),
            (LONGEST_OPEN, 1, 8, true),
            (LONGEST_OPEN + 1, 1, 8, false),
            (1, 2, 8, false),
            (1, 1, 10, false),
            (1, 1, 5, false),
            (1, 1, 6, false),
            (1, 8, 4, false),
            (100, 9, 4, false),
        ] {
            assert_eq!(
                Header::from_word(word(len, kind, flags), 1 << 20).is_ok(),
                good,
                "{len} {kind} {flags}"
            );
        }
        let open = Header { len: 10, kind: Kind::Data, flags: FLAG_OPEN, cpu: 0 };
        for (len, kind, flags, good) in [
            (10, 1, 4, true),
            (10, 1, 8, true),
            (11, 1, 4, true),
            (LONGEST_OPEN, 1, 8, true),
            (9, 1, 4, false),
            (9, 1, 8, false),
            (10, 1, 0, false),
            (LONGEST_OPEN + 1, 1, 8, false),
            (10, 1, 1, false),
            (10, 1, 2, false),
            (10, 8, 8, false),
        ] {
            assert_eq!(open.reread(word(len, kind, flags), 1 << 20).is_ok(), good, "{len} {kind} {flags}");
        }
        for (len, rides) in [(40, true), (41, false), (104, true), (105, false), (BULK, false)] {
            assert_eq!(
                Header::from_word(word(len, 1, u64::from(FLAG_CREDIT)), 1 << 20).is_ok(),
                rides,
                "{len}"
            );
        }
        for kind in [Kind::SrcAvail as u64, Kind::SinkAvail as u64] {
            assert!(Header::from_word(word(u64::from(zcopy::DESCRIPTOR), kind, 0), 64).is_ok());
            assert!(Header::from_word(word(u64::from(zcopy::DESCRIPTOR) - 1, kind, 0), 64).is_err());
        }
    }
}

//! How the two ports of a cable set it up: the ring study's procedure on eight 32-bit scratchpads.
//!
//! Each side writes its own eight words into the **peer's** scratchpads, [`MAGIC`] last, and rings doorbell
//! [`DOORBELL_SETUP`]. When it has read the peer's words it sets [`READY`] in its flags, and rings again. Once both are
//! ready, they use the control channel at the start of the window. With READY the flags echo the low 31 bits of the key
//! that was read (`READY | key << 1`), so that words of an earlier life never count as an answer.

use crate::{DecodeError, Epoch, HostId};

/// Scratchpads that set-up uses; a port has 16 or more.
pub const WORDS: usize = 8;
/// Doorbell of set-up.
pub const DOORBELL_SETUP: u32 = 0;
/// Doorbell of the control and IP channels.
pub const DOORBELL_CHANNEL: u32 = 1;
/// First word of a side that has written its other words.
pub const MAGIC: u32 = 0x584c_414e;
/// Flag: this side has read the other's words.
pub const READY: u32 = 1;

/// One side's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// [`crate::PROTOCOL_VERSION`] of that side.
    pub version: u32,
    /// Host id of that side.
    pub host: HostId,
    /// That side's proposal for the epoch; the larger of the two counts.
    pub epoch: Epoch,
    /// Bytes of that side's inbound memory.
    pub window: u64,
    /// Key of the marks in the control channel that that side *writes*.
    pub key: u32,
    /// 0, or [`READY`] with the echo of the other side's key.
    pub flags: u32,
}

impl Setup {
    /// The words in the order of the scratchpads.
    pub fn to_words(self) -> [u32; WORDS] {
        let [l0, l1, l2, l3, h0, h1, h2, h3] = self.window.to_le_bytes();
        let [low, high] = [u32::from_le_bytes([l0, l1, l2, l3]), u32::from_le_bytes([h0, h1, h2, h3])];
        [MAGIC, self.version, u32::from(self.host.0), self.epoch.0, low, high, self.key, self.flags]
    }

    /// Reads the peer's words: `Ok(None)` if it has not written them yet.
    pub fn from_words(words: [u32; WORDS]) -> Result<Option<Self>, DecodeError> {
        let [magic, version, host, epoch, low, high, key, flags] = words;
        if magic == 0 {
            return Ok(None);
        }
        if magic != MAGIC {
            return Err(DecodeError::Range("scratchpad magic"));
        }
        let host = u16::try_from(host).map_err(|_| DecodeError::Range("host id"))?;
        Ok(Some(Self {
            version,
            host: HostId(host),
            epoch: Epoch(epoch),
            window: u64::from(low) | u64::from(high) << 32,
            key,
            flags,
        }))
    }
}

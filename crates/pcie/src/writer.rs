//! Who writes into a window: a processor's stores, or a DMA engine.

use crate::{Cable, NANOSECOND};

/// Time between two lines that a core hands to the link: its fill buffers, 12 of 64 bytes, are each busy for 75 ns (assumed), which makes
/// 10.2 GB/s. It is what stands for the direct-access study's plateau at 16 lanes of generation 4, where 8 gave as much.
const LINE_GAP: u64 = 75 * NANOSECOND / 12;
/// From a store until it leaves the processor (assumed).
const STORE: u64 = 50 * NANOSECOND;
/// From the order to a DMA engine until its first packet: it reads a descriptor and the memory, two round trips (assumed).
const START: u64 = 1000 * NANOSECOND;

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// A processor's stores, combined into lines.
    Stores,
    /// A DMA engine, which fills packets.
    Dma {
        /// Bytes of a buffer of its own, through which all goes; `None`: it sends what it reads at once.
        buffer: Option<u64>,
    },
}

impl Writer {
    /// Time from the order to write until the first packet is at the link.
    pub fn start(self) -> u64 {
        match self {
            Self::Stores => STORE,
            Self::Dma { .. } => START,
        }
    }

    /// Least time between two packets of its own.
    pub fn gap(self) -> u64 {
        match self {
            Self::Stores => LINE_GAP,
            Self::Dma { .. } => 0,
        }
    }

    /// Payload of a full packet, bytes.
    pub fn payload(self, cable: &Cable) -> u64 {
        match self {
            Self::Stores => crate::LINE,
            Self::Dma { .. } => cable.mps.into(),
        }
    }

    /// Bytes that it reads before it sends them, of an order of `len` bytes: none if the order fits into its buffer, where the first are sent
    /// while the last are read. One that does not goes in pieces of the buffer, each of which is read when the one before is sent.
    pub(crate) fn piece(self, len: u64) -> Option<u64> {
        match self {
            Self::Dma { buffer: Some(buffer) } if len > buffer => Some(buffer),
            _ => None,
        }
    }
}

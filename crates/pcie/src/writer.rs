//! Who writes into a window: a processor's stores, or a DMA engine.

use crate::{Cable, NANOSECOND, Packets, SECOND};

/// Time between two lines that a core hands to the link: its fill buffers, 12 of 64 bytes, are each busy for 75 ns (assumed), which makes
/// 10.2 GB/s. It is what stands for the direct-access study's plateau at 16 lanes of generation 4, where 8 gave as much.
const LINE_GAP: u64 = 75 * NANOSECOND / 12;
/// From a store until it leaves the processor (assumed).
const STORE: u64 = 50 * NANOSECOND;
/// From the order to a DMA engine until its first packet: it reads a descriptor and the memory, two round trips (assumed).
const START: u64 = 1000 * NANOSECOND;
/// Bytes a second at which a processor fills an engine's own buffer again (assumed: one core's copy).
const REFILL: u64 = 8_000_000_000;

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// A processor's stores, combined into lines.
    Stores,
    /// A DMA engine with a buffer of its own, bytes. What is longer goes in parts, each of which is copied there before the engine is started
    /// again: the ring study's collapse above 1 MB.
    Dma {
        /// Bytes of its buffer.
        buffer: u64,
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

    /// The packets of `len` bytes to an address.
    pub fn packets(self, cable: &Cable, address: u64, len: u64) -> Packets {
        match self {
            Self::Stores => Packets::of_lines(address, len),
            Self::Dma { .. } => Packets::of_engine(address, len, cable.mps.into()),
        }
    }

    /// Bytes that go behind one start.
    pub fn part(self) -> u64 {
        match self {
            Self::Stores => u64::MAX,
            Self::Dma { buffer } => buffer,
        }
    }

    /// Time to get ready for a part of `len` bytes that is not the first: its copy, and a start.
    pub fn again(self, len: u64) -> u64 {
        match self {
            Self::Stores => 0,
            Self::Dma { .. } => {
                START
                    + u64::try_from(u128::from(len) * u128::from(SECOND) / u128::from(REFILL))
                        .unwrap_or(u64::MAX)
            }
        }
    }
}

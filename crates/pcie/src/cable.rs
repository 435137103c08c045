//! What a cable is: two adapters, and what lies between them.

use crate::{Generation, NANOSECOND, Writer};
use serde::{Deserialize, Serialize};

/// What a cable is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// A copper cable.
    Copper,
    /// A fibre, with a module at each end.
    Fibre,
}

impl Medium {
    /// Picoseconds that a signal takes for a metre: copper 3.9 to 5 ns, the middle taken; fibre 5 ns.
    pub fn delay_per_metre(self) -> u64 {
        match self {
            Self::Copper => 4_500,
            Self::Fibre => 5_000,
        }
    }

    /// Picoseconds that the modules at both ends take together: assumed, 10 ns each; copper has none.
    pub fn modules(self) -> u64 {
        match self {
            Self::Copper => 0,
            Self::Fibre => 20 * NANOSECOND,
        }
    }

    /// How far it reaches, millimetres: the media study's modules, PCUE copper and PCUO optical.
    pub fn reach(self) -> u32 {
        match self {
            Self::Copper => 10_000,
            Self::Fibre => 100_000,
        }
    }
}

/// A cable with all that decides how fast it is. Serialized as its text.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cable {
    /// Generation of the link.
    pub generation: Generation,
    /// 1, 2, 4, 8, 12 or 16.
    pub lanes: u8,
    /// Largest payload of a packet (MPS), bytes: 128 to 4096, a power of two.
    pub mps: u32,
    /// What it is made of.
    pub medium: Medium,
    /// Its length, millimetres.
    pub length: u32,
    /// Adapters and switches that a packet passes.
    pub hops: u8,
    /// Probability that a bit arrives wrong; a packet with one is sent again.
    pub bit_errors: f64,
    /// Who writes.
    pub writer: Writer,
    /// Bytes of payload that the far end of the cable has room for: posted data credits.
    pub credit_bytes: u64,
    /// Packets that it has room for: posted header credits.
    pub credit_packets: u32,
}

impl Cable {
    /// A cable of 1 m copper between two adapters, written to by a processor: what [`str::parse`] adds to a generation and lanes. The
    /// credits are assumed: 16 KB and 128 packets, enough for the widest links up to some 10 m.
    pub fn new(generation: Generation, lanes: u8) -> Self {
        Self {
            generation,
            lanes,
            mps: 256,
            medium: Medium::Copper,
            length: 1000,
            hops: 2,
            bit_errors: 0.0,
            writer: Writer::Stores,
            credit_bytes: 16 << 10,
            credit_packets: 128,
        }
    }

    /// Time from one end of the cable to the other, and through its modules.
    pub fn flight(&self) -> u64 {
        u64::from(self.length) * self.medium.delay_per_metre() / 1000 + self.medium.modules()
    }
}

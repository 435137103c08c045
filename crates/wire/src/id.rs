//! Ids and numbers as types of their own, so that none is mistaken for another.

use core::fmt;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// A machine in the network; the last part of its fabric address. 0 means "not known".
    HostId(u16)
);
number!(
    /// One NTB endpoint of a host, counted from 0 in the order of the configuration.
    PortId(u8)
);
number!(
    /// The number of a cable's life, raised at every link-up. 0 means "never up".
    Epoch(u32)
);
number!(
    /// A circuit's end that a program holds, unique within the life of the daemon process that made it.
    CircuitId(u64)
);
number!(
    /// One host's end of a channel of a circuit, unique within the life of its daemon process. An end of a circuit has
    /// one channel at a time; a host between has two.
    ChannelId(u64)
);
number!(
    /// A circuit that passes through a host, unique within the life of its daemon process.
    TransitId(u64)
);
number!(
    /// A wake event that a program registered with its daemon; unique within a host. 0 means "none".
    WaiterId(u32)
);

number!(
    /// Memory of a program that the far ends of its circuits may map. The program chooses the id so that no two on one
    /// host are equal. It proves nothing.
    BufferId(u64)
);

/// What the far end of a circuit may do with a program's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reach {
    /// Map it and load from it; the kernel allows stores only to its owner.
    Load,
    /// Map it and store into it.
    Store,
}

/// A page-aligned range of a port's inbound memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SegmentRange {
    /// Distance from the start of the window, bytes.
    pub offset: u64,
    /// Length, bytes.
    pub len: u64,
}

impl SegmentRange {
    /// Offset behind the last byte, or `None` if the sum overflows (a peer may send any range).
    pub fn end(self) -> Option<u64> {
        self.offset.checked_add(self.len)
    }

    /// Whether the range is page-aligned, not empty, and ends within `window` bytes.
    pub fn fits(self, window: u64) -> bool {
        self.len > 0
            && self.offset.is_multiple_of(crate::segment::PAGE)
            && self.len.is_multiple_of(crate::segment::PAGE)
            && self.end().is_some_and(|end| end <= window)
    }
}

/// The 4-tuple of the carrier TCP connection under a stream, as the **connecting** side sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tuple {
    /// Address and port of the side that called `connect`.
    pub client: SocketAddr,
    /// Address and port of the side that called `listen`.
    pub server: SocketAddr,
}

impl Tuple {
    /// A number by which each end names the stream to the other one's sleepers: the same at both ends, never 0, and not of this stream
    /// alone (FNV-1a of the addresses and ports).
    pub fn name(&self) -> u32 {
        let mut hash = 0x811c_9dc5_u32;
        for address in [self.client, self.server] {
            let ip = match address.ip().to_canonical() {
                IpAddr::V4(ip) => u128::from(u32::from(ip)),
                IpAddr::V6(ip) => u128::from(ip),
            };
            for byte in ip.to_be_bytes().into_iter().chain(address.port().to_be_bytes()) {
                hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
            }
        }
        hash.max(1)
    }
}

impl fmt::Display for Tuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}", self.client, self.server)
    }
}

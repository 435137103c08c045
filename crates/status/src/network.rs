//! Hosts, links and ports.

use crate::word::words;
use crosslane_wire::{Epoch, HostId};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Whether link states are signed and checked, and which were refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkStates {
    /// Whether this host signs its own.
    pub signed: bool,
    /// Whether it checks those of others.
    pub checked: bool,
    /// Hosts in whose name some were refused.
    pub refused: Vec<RefusedStates>,
}

/// Refused link states in one host's name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RefusedStates {
    /// In whose name.
    pub host: HostId,
    /// How many, since the keys were read.
    pub count: u64,
    /// Why the last one was refused, as a message.
    pub why: String,
}

/// Another host in reach.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Its id.
    pub id: HostId,
    /// Cables on the shortest path there.
    pub hops: Option<u8>,
    /// The name of our port by which that path begins.
    pub via: Option<String>,
    /// Its addresses in the fabric: IPv4, IPv6.
    pub addresses: Vec<IpAddr>,
    /// Whether its link state was signed by it.
    pub signed: bool,
    /// Paths there, one for each of our ports that leads there, the shortest first.
    pub ways: Vec<Path>,
}

/// A path to another host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Path {
    /// Cables.
    pub hops: u8,
    /// The name of our port by which it begins.
    pub via: String,
}

words! {
    /// The state of a cable's link, as one end sees it.
    #[derive(Default)]
    Link {
        /// Both daemons have agreed.
        Up = "up",
        /// The other end is not there, or does not answer.
        #[default]
        Down = "down",
        /// Switched off here.
        Cut = "cut",
        /// The two ends do not fit together.
        Refused = "refused",
    }
}

/// One of this host's ports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// Its name in the configuration.
    pub name: String,
    /// Its kind in the configuration.
    pub kind: String,
    /// The state of its cable.
    pub link: Link,
    /// Why it is not up, as a message.
    pub why: Option<String>,
    /// How often the cable came up.
    pub epoch: Epoch,
    /// The host at the other end, while the cable is up.
    pub peer: Option<HostId>,
    /// The window that the neighbour stores through, bytes.
    pub window: u64,
    /// How much of that is given out, bytes.
    pub window_used: u64,
    /// What was sent by this port: by the daemon, by streams of this host, and by circuits through it, bytes.
    pub tx_bytes: u64,
    /// What was received, bytes.
    pub rx_bytes: u64,
    /// Open stream ends of this host whose circuits begin here.
    pub streams: u64,
    /// Circuits through this host that pass here.
    pub transits: u64,
    /// Whether the neighbour does not answer although the cable is up.
    pub silent: bool,
    /// How well the times of the cable that it behaves like are kept, if it has one (the key `link`).
    pub pacing: Option<Pacing>,
}

/// How well a port keeps the times of a cable, in what it has sent since the daemon started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pacing {
    /// The cable, as in the configuration, with all its parts.
    pub cable: String,
    /// Bytes that have landed, those of rings and indices too.
    pub landed_bytes: u64,
    /// Those of them that landed more than 250 us behind their time: this machine did not keep up.
    pub late_bytes: u64,
    /// The most that any of them was behind its time, us.
    pub worst_us: f64,
    /// Bytes of the other direction whose acknowledgements went in between.
    pub acknowledged_bytes: u64,
}

impl Pacing {
    /// The part of the bytes that landed late.
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    pub fn late(&self) -> f64 {
        self.late_bytes as f64 / self.landed_bytes.max(1) as f64
    }
}

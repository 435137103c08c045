//! A daemon's report about itself, typed once: [`Status`] (`crosslane status --json`) and [`Explanation`] (the daemon's
//! part of `crosslane explain --json`). The daemon writes these types; the command, the lab and the benchmarks read
//! them. `docs/status-json.md` has every field, and a test compares it with the types.
#![forbid(unsafe_code)]

mod counter;
mod network;
mod quota;
mod session;
mod stream;
mod word;

pub use counter::Counters;
pub use network::{Host, Link, LinkStates, Pacing, Path, Port, RefusedStates};
pub use quota::{Holds, Payer, Pool, Quota, Requests, Use, WindowUse};
pub use session::{Note, Session};
pub use stream::{ChosenBy, Circuit, Death, Direction, Offload, OffloadThread, Role, State};

use crosslane_wire::HostId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use thiserror::Error;

/// The schema number of the documents. It is raised when a field is removed, or changes its name, type, unit or
/// meaning, and when a field gets a new word; a new field leaves it unchanged.
pub const SCHEMA: u32 = 1;

/// Why a text cannot be read as a document.
#[derive(Debug, Error)]
pub enum StatusError {
    /// It has another schema.
    #[error(
        "the daemon's document has schema {}, and this program reads schema {SCHEMA}: install the same release of both",
        found.map_or("0 (it names none)".to_owned(), |found| found.to_string())
    )]
    Schema {
        /// The number in the document, if there is one.
        found: Option<u32>,
    },
    /// It is not JSON, or lacks what it must have.
    #[error("the daemon's document cannot be read: {0}")]
    Json(#[from] serde_json::Error),
}

/// The status of a host, as far as its viewer may see it. `C` is a list of [`Circuit`]; the daemon writes one row after the other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status<C = Vec<Circuit>> {
    /// [`SCHEMA`].
    pub schema: u32,
    /// This host's id.
    pub host: HostId,
    /// The daemon's release.
    pub version: String,
    /// This host's addresses in the fabric: IPv4, IPv6.
    pub addresses: Vec<IpAddr>,
    /// Time since the daemon started, seconds.
    pub uptime_s: f64,
    /// Sessions of programs and tools that have greeted and have a connection.
    pub sessions: u64,
    /// Sessions whose connection has ended and that wait for their programs.
    pub lost_sessions: u64,
    /// Whether another host has the same id.
    pub duplicate_id: bool,
    /// Whether the kernel can tell network namespaces apart.
    pub namespaces: bool,
    /// Whether link states are signed and checked.
    pub link_states: LinkStates,
    /// Other hosts in reach.
    pub hosts: Vec<Host>,
    /// Pairs of hosts that a cable joins, as both say, in the whole network.
    pub links: Vec<(HostId, HostId)>,
    /// This host's ports, in the order of the configuration.
    pub ports: Vec<Port>,
    /// Where programs listen that take streams.
    pub listeners: Vec<SocketAddr>,
    /// Ends of circuits.
    pub circuits: C,
    /// What was counted since the daemon started.
    pub counters: Counters,
    /// What the offload engine has done; nothing before a program wanted it.
    pub offload: Option<Offload>,
    /// How scarce resources are divided.
    pub quota: Quota,
}

/// What a daemon knows of the streams of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explanation<C = Vec<Circuit>> {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The process that was asked for.
    pub pid: u32,
    /// The process that opened the sessions: that one, or its nearest ancestor that has any; 0 without sessions.
    pub session_pid: i32,
    /// Whether it is another user's process: then nothing else is reported.
    pub not_yours: bool,
    /// Its sessions.
    pub sessions: Vec<Session>,
    /// Ends of circuits that these sessions hold.
    pub circuits: C,
}

impl Status {
    /// Reads a status.
    ///
    /// # Errors
    /// It has another schema, or is none.
    pub fn parse(text: &str) -> Result<Self, StatusError> {
        parse(text)
    }

    /// The port of this name.
    pub fn port(&self, name: &str) -> Option<&Port> {
        self.ports.iter().find(|port| port.name == name)
    }

    /// The host of this id, if it is another one in reach.
    pub fn other_host(&self, id: HostId) -> Option<&Host> {
        self.hosts.iter().find(|host| host.id == id)
    }

    /// Circuits that carry a stream now.
    pub fn open_circuits(&self) -> impl Iterator<Item = &Circuit> {
        self.circuits.iter().filter(|circuit| circuit.state == State::Open)
    }
}

impl Explanation {
    /// Reads an explanation.
    ///
    /// # Errors
    /// It has another schema, or is none.
    pub fn parse(text: &str) -> Result<Self, StatusError> {
        parse(text)
    }
}

/// The document as JSON: on one line, or `{:#}` on many.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text =
            if f.alternate() { serde_json::to_string_pretty(self) } else { serde_json::to_string(self) };
        f.write_str(&text.map_err(|_| fmt::Error)?)
    }
}

/// The schema is read first: a document of another schema is not looked at further.
fn parse<T: DeserializeOwned>(text: &str) -> Result<T, StatusError> {
    #[derive(Deserialize)]
    struct Head {
        schema: Option<u32>,
    }
    match serde_json::from_str(text)? {
        Head { schema: Some(SCHEMA) } => Ok(serde_json::from_str(text)?),
        Head { schema } => Err(StatusError::Schema { found: schema }),
    }
}

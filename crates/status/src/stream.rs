//! Streams, and the engine that copies for them.

use crate::word::words;
use crosslane_wire::{CircuitId, HostId};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// One end of a circuit on this host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Circuit {
    /// Its number, unique within one life of the daemon.
    pub id: CircuitId,
    /// Address and port of the side that called `connect`.
    pub client: SocketAddr,
    /// Address and port of the side that accepted.
    pub server: SocketAddr,
    /// The host of the other end; this one, if that is here too.
    pub peer: HostId,
    /// Which side this end is.
    pub role: Role,
    /// The name of the program that opened it; empty if that is another user's.
    pub program: String,
    /// Its process; 0 if that is another user's.
    pub pid: i32,
    /// Its state.
    pub state: State,
    /// Cables from here to the other end; 0 inside this host.
    pub hops: u8,
    /// Hosts between that copy; the others hand its memory on.
    pub pumps: u8,
    /// How often its stream has moved to another circuit.
    pub generation: u32,
    /// The first circuit's end of the striped stream of which this is the second's.
    pub twin_of: Option<CircuitId>,
    /// Whether the far side has closed.
    pub far_closed: bool,
    /// Why it is dead, if it is.
    pub dead: Option<Death>,
    /// Payload sent, bytes.
    pub tx_bytes: u64,
    /// Payload received, bytes.
    pub rx_bytes: u64,
    /// Times that it woke the far side.
    pub wakes: u64,
    /// Times that its program slept for it.
    pub sleeps: u64,
    /// The mode that is chosen for its sends: `auto`, `bcopy`, `read-zcopy` or `write-zcopy`.
    pub transfer: String,
    /// Who chose that.
    pub transfer_by: ChosenBy,
    /// Whether the offload engine may copy for it.
    pub offload: bool,
    /// Who chose that.
    pub offload_by: ChosenBy,
    /// How its sent payload was moved.
    pub sent: Direction,
    /// How its received payload was moved.
    pub received: Direction,
}

impl Circuit {
    /// An open end of the side that connected, which has moved nothing.
    pub fn between(client: SocketAddr, server: SocketAddr) -> Self {
        Self {
            id: CircuitId(0),
            client,
            server,
            peer: HostId(0),
            role: Role::Client,
            program: String::new(),
            pid: 0,
            state: State::Open,
            hops: 1,
            pumps: 0,
            generation: 0,
            twin_of: None,
            far_closed: false,
            dead: None,
            tx_bytes: 0,
            rx_bytes: 0,
            wakes: 0,
            sleeps: 0,
            transfer: "auto".to_owned(),
            transfer_by: ChosenBy::Default,
            offload: false,
            offload_by: ChosenBy::Default,
            sent: Direction::default(),
            received: Direction::default(),
        }
    }
}

words! {
    /// A side of a connection.
    Role {
        /// The one that called `connect`.
        Client = "client",
        /// The one that accepted.
        Server = "server",
    }
}

words! {
    /// The state of an end.
    State {
        /// Announced, and not accepted yet.
        Pending = "pending",
        /// It has a stream.
        Open = "open",
        /// It has lost its circuit, or leaves it, and looks for another.
        Moving = "moving",
        /// One side has closed.
        Closing = "closing",
    }
}

words! {
    /// Why a circuit is dead.
    Death {
        /// Its cable was lost.
        Cable = "Cable",
        /// The far side broke it off.
        Abort = "Abort",
        /// The daemon goes down.
        Shutdown = "Shutdown",
        /// The protocol was broken.
        Violation = "Violation",
    }
}

words! {
    /// Who chose something.
    ChosenBy {
        /// Nobody.
        Default = "default",
        /// The program, by `setsockopt`.
        Program = "program",
        /// A rule of the configuration.
        Rule = "rule",
    }
}

/// How one direction of a stream was moved, counted by its own program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Direction {
    /// Payload that went by Bcopy, bytes.
    pub bcopy: u64,
    /// Payload that went by Read Zcopy, bytes.
    pub read_zcopy: u64,
    /// Payload that went by Write Zcopy, bytes.
    pub write_zcopy: u64,
    /// Payload of Transactions, bytes.
    pub transaction: u64,
    /// Payload that this end copied, bytes.
    pub copied: u64,
    /// Records with payload.
    pub records: u64,
    /// Messages without payload.
    pub control: u64,
    /// Announcements that were taken back or refused.
    pub cancelled: u64,
    /// Payload that the offload engine moved, bytes.
    pub offloaded: u64,
}

/// The work of the offload engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Offload {
    /// Its sending thread.
    pub send: OffloadThread,
    /// Its receiving thread.
    pub receive: OffloadThread,
}

/// The work of one thread of the engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OffloadThread {
    /// What copies; absent until the thread runs.
    pub copy: Option<String>,
    /// Payload, bytes.
    pub bytes: u64,
    /// How much of that was copied from, or to, registered buffers, bytes.
    pub registered: u64,
    /// Transfers that were taken.
    pub transfers: u64,
    /// Transfers that the kernel refused.
    pub refused: u64,
    /// Times that the thread slept.
    pub sleeps: u64,
}

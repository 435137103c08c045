//! Sessions of programs.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// A session of a program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// Its number, unique within one life of the daemon.
    pub id: u64,
    /// The process that opened it.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
    /// The program's name.
    pub program: String,
    /// Its wakers.
    pub waiters: u64,
    /// Ends of circuits that it holds.
    pub held: u64,
    /// Its connections that went over TCP, the oldest first; the last 256.
    pub notes: Vec<Note>,
}

/// A connection that went over TCP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Note {
    /// The program's descriptor; below 0 if it had none yet.
    pub fd: i32,
    /// The far address.
    pub remote: SocketAddr,
    /// The reason, a key of [`crate::Counters::plain`].
    pub why: String,
}

//! Hosts that are virtual machines, each with a kernel of its own, joined by cables that their kernels see as NTB bridges.
//!
//! The keeper starts QEMU where it would start a daemon. The machine's root is this machine's, by 9p and read-only below what the machine
//! writes (its memory), so that every program that is installed here runs there. Its first program is `crosslane-keeper machine`
//! ([`crate::guest`]), which starts the daemon, and programs for clients ([`client`]) that come by the ports of a virtual serial device.
//! Cables are files of shared memory ([`cable`]): QEMU's ivshmem devices, of which the kernel module `ntb_soft` makes bridges, and which
//! interrupt each other once the keeper has introduced them ([`server`]).

pub(crate) mod cable;
pub(crate) mod client;
pub(crate) mod frame;
pub(crate) mod image;
pub(crate) mod qemu;
pub(crate) mod server;

use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// How many programs may run at once in a machine for clients outside: ports of its serial device.
pub(crate) const PORTS: u32 = 24;

/// What a client asks of a machine, one request a connection.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// Run a program.
    Run(Program),
    /// The daemon's status, as JSON on the output.
    Status,
    /// End the daemon by this signal and wait until it is gone.
    Kill(i32),
    /// Start the daemon again.
    Start,
}

/// A program to run. Paths, arguments and environment are bytes, as the kernel has them.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Program {
    pub(crate) command: Vec<Vec<u8>>,
    /// `NAME=VALUE` each.
    pub(crate) environment: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) folder: Vec<u8>,
}

pub(crate) fn text(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

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
mod terminal;

use rustix::termios::{Winsize, tcgetwinsize, tcsetwinsize};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
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
    /// Its terminal, if its client has one.
    pub(crate) terminal: Option<Terminal>,
}

/// A terminal of a program in a machine: a pseudo-terminal there, which the client's own, in raw mode, is the outside of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Terminal {
    pub(crate) size: Size,
    /// Whether standard error is it, too.
    pub(crate) error: bool,
}

/// Of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Size {
    pub(crate) rows: u16,
    pub(crate) columns: u16,
}

impl Size {
    pub(crate) fn of(terminal: impl AsFd) -> io::Result<Self> {
        let size = tcgetwinsize(terminal)?;
        Ok(Self { rows: size.ws_row, columns: size.ws_col })
    }

    /// Gives a terminal this size; its programs hear of it.
    pub(crate) fn give(self, terminal: impl AsFd) -> io::Result<()> {
        let Self { rows: ws_row, columns: ws_col } = self;
        Ok(tcsetwinsize(terminal, Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 })?)
    }

    /// Content of a frame, and back.
    pub(crate) fn bytes(self) -> [u8; 4] {
        let ([a, b], [c, d]) = (self.rows.to_le_bytes(), self.columns.to_le_bytes());
        [a, b, c, d]
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let &[a, b, c, d] = bytes else { return None };
        Some(Self { rows: u16::from_le_bytes([a, b]), columns: u16::from_le_bytes([c, d]) })
    }
}

pub(crate) fn text(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

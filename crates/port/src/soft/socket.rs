//! Packets with descriptors over a Unix socket, without blocking.

use super::frame::MAX_FRAME;
use crate::DownReason;
use crosslane_passing::{self as passing, Foreign};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags};
use std::os::fd::BorrowedFd;

/// Most descriptors of one packet.
const MAX_DESCRIPTORS: usize = 1;

/// Result of a look at the socket.
#[derive(Debug)]
pub(super) enum Received {
    /// Nothing waits.
    Nothing,
    /// One packet.
    Packet {
        /// Its bytes.
        bytes: Vec<u8>,
        /// Its descriptors, of whatever kind.
        descriptors: Vec<Foreign>,
        /// Whether it had descriptors for which this process has no room.
        lost: bool,
    },
}

/// Receives one packet if one waits.
pub(super) fn receive(socket: &Foreign) -> Result<Received, DownReason> {
    let mut bytes = [0; MAX_FRAME + 1];
    let message = match retry_on_intr(|| receive_from(socket, &mut bytes)) {
        Ok(message) => message,
        Err(Errno::AGAIN) => return Ok(Received::Nothing),
        Err(Errno::CONNRESET) => return Err(DownReason::PeerGone),
        Err(errno) => return Err(DownReason::System { what: "recvmsg", errno }),
    };
    let descriptors = message.fds;
    if message.truncated || descriptors.len() > MAX_DESCRIPTORS || (message.lost && !descriptors.is_empty()) {
        return Err(DownReason::Violation("packet too long, or with too many descriptors".into()));
    }
    if message.bytes == 0 {
        return Err(DownReason::PeerGone);
    }
    Ok(Received::Packet { bytes: bytes[..message.bytes].to_vec(), descriptors, lost: message.lost })
}

fn receive_from(socket: &Foreign, bytes: &mut [u8]) -> Result<passing::Message, Errno> {
    passing::receive(socket, bytes, RecvFlags::DONTWAIT, socket.owner())
}

/// Sends one packet. `Ok(false)` if there is no room for it now.
pub(super) fn send(
    socket: &Foreign,
    bytes: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> Result<bool, DownReason> {
    match retry_on_intr(|| passing::send(socket, bytes, descriptor.as_slice(), SendFlags::DONTWAIT)) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN) => Ok(false),
        Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => Err(DownReason::PeerGone),
        Err(errno) => Err(DownReason::System { what: "sendmsg", errno }),
    }
}

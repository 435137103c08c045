//! Packets with descriptors over a Unix socket, without blocking.

use super::frame::MAX_FRAME;
use crate::DownReason;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Descriptors that fit one packet; no frame has more than one.
const MAX_DESCRIPTORS: usize = 2;

/// What a look at the socket gave.
#[derive(Debug)]
pub(super) enum Received {
    /// Nothing waits.
    Nothing,
    /// One packet.
    Packet {
        /// Its bytes.
        bytes: Vec<u8>,
        /// Its descriptors, of whatever kind.
        descriptors: Vec<OwnedFd>,
        /// Whether it had descriptors that this process has no room for.
        lost: bool,
    },
}

/// Receives one packet if one waits.
pub(super) fn receive(socket: BorrowedFd<'_>) -> Result<Received, DownReason> {
    let mut bytes = [0; MAX_FRAME + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let outcome = rustix::io::retry_on_intr(|| {
        recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)
    });
    let message = match outcome {
        Ok(message) => message,
        Err(Errno::AGAIN) => return Ok(Received::Nothing),
        Err(Errno::CONNRESET) => return Err(DownReason::PeerGone),
        Err(errno) => return Err(DownReason::System { what: "recvmsg", errno }),
    };
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    // The kernel cuts descriptors off where our buffer ends, or where this process may open no more.
    let cut = message.flags.contains(ReturnFlags::CTRUNC);
    let lost = cut && descriptors.is_empty();
    if message.flags.contains(ReturnFlags::TRUNC) || (cut && !lost) {
        discard(descriptors);
        return Err(DownReason::Violation("packet or descriptors cut off".into()));
    }
    if message.bytes == 0 {
        discard(descriptors);
        return Err(DownReason::PeerGone);
    }
    Ok(Received::Packet { bytes: bytes[..message.bytes].to_vec(), descriptors, lost })
}

/// Sends one packet. `Ok(false)` if there is no room for it now.
pub(super) fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> Result<bool, DownReason> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let rights: Vec<_> = descriptor.into_iter().collect();
    if !rights.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&rights));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match rustix::io::retry_on_intr(|| sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN) => Ok(false),
        Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => Err(DownReason::PeerGone),
        Err(errno) => Err(DownReason::System { what: "sendmsg", errno }),
    }
}

/// Closes descriptors of an unknown kind elsewhere: the last close of a file may wait for its file system, which may
/// be the peer's own.
pub(super) fn discard(descriptors: Vec<OwnedFd>) {
    if !descriptors.is_empty() {
        let closing = std::thread::Builder::new().name("discard".into());
        let _ = closing.spawn(move || drop(descriptors));
    }
}

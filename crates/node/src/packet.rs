//! Packets on the control socket, with the descriptors that ride with them.

use crosslane_wire::codec::MAX_MESSAGE;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Most descriptors in one packet.
pub const FDS_MAX: usize = 4;

/// What arrived.
#[derive(Debug)]
pub enum Received {
    /// A packet: so many bytes of the buffer.
    Packet(usize, Vec<OwnedFd>),
    /// Nothing now.
    Nothing,
    /// All other ends are closed.
    Closed,
    /// A packet that was cut off: too long.
    Truncated,
}

/// Receives one packet without blocking.
pub fn receive(socket: impl AsFd, buffer: &mut [u8; MAX_MESSAGE]) -> Received {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let outcome = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(buffer)], &mut control, flags) {
            Err(Errno::INTR) => {}
            outcome => break outcome,
        }
    };
    let message = match outcome {
        Ok(message) => message,
        Err(Errno::AGAIN) => return Received::Nothing,
        Err(_) => return Received::Closed,
    };
    let mut fds = Vec::new();
    for item in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = item {
            fds.extend(rights);
        }
    }
    // Descriptors that had no place are missing only: whoever is asked says what is lacking.
    if message.flags.contains(ReturnFlags::TRUNC) {
        return Received::Truncated;
    }
    if message.bytes == 0 && fds.is_empty() {
        return Received::Closed;
    }
    Received::Packet(message.bytes, fds)
}

/// Sends one packet without blocking; `Errno::AGAIN` if the other end does not read.
pub fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        match sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, flags) {
            Err(Errno::INTR) => {}
            outcome => return outcome.map(|_| ()),
        }
    }
}

//! Packets of a Unix socket, with the descriptors that are sent with them. The receiving thread never destroys a
//! stranger's descriptors, as long as this process may open [`SCM_MAX_FD`] more.

use crate::{Foreign, Owner};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

/// Most descriptors that a packet can have: the kernel's own limit.
pub const SCM_MAX_FD: usize = 253;

/// A packet that was received.
#[derive(Debug)]
pub struct Message {
    /// Number of its bytes in the buffer.
    pub bytes: usize,
    /// Its descriptors, of any kind.
    pub fds: Vec<Foreign>,
    /// Whether it was longer than the buffer.
    pub truncated: bool,
    /// Whether it had descriptors for which this process had no free numbers.
    pub lost: bool,
}

/// Receives one packet from a stranger. `flags`: `DONTWAIT` or none.
///
/// # Errors
/// Those of `recvmsg(2)`: `EAGAIN` if no packet waits, `EINTR` if a signal came.
pub fn receive(
    socket: impl AsFd,
    buffer: &mut [u8],
    flags: RecvFlags,
    owner: Owner,
) -> Result<Message, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SCM_MAX_FD))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let message = recvmsg(&socket, &mut [IoSliceMut::new(buffer)], &mut control, flags)?;
    let mut fds = Vec::new();
    for item in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = item {
            fds.extend(rights.map(|fd| Foreign::new(fd, owner)));
        }
    }
    Ok(Message {
        bytes: message.bytes,
        fds,
        truncated: message.flags.contains(ReturnFlags::TRUNC),
        lost: message.flags.contains(ReturnFlags::CTRUNC),
    })
}

/// Whether the next packet has descriptors. The packet stays in the queue, with its descriptors: this never blocks.
///
/// # Errors
/// Those of `recvmsg(2)`: `EAGAIN` if no packet waits.
pub fn has_descriptors(socket: impl AsFd) -> Result<bool, Errno> {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let mut control = RecvAncillaryBuffer::default();
    let looked = recvmsg(&socket, &mut [IoSliceMut::new(&mut [0; 1])], &mut control, flags)?;
    Ok(looked.flags.contains(ReturnFlags::CTRUNC))
}

/// Sends one packet. `flags`: `DONTWAIT` or none.
///
/// # Errors
/// Those of `sendmsg(2)`: `EAGAIN` if the other end does not read, `EINTR` if a signal came.
pub fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>], flags: SendFlags) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SCM_MAX_FD))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::TOOMANYREFS);
    }
    sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, flags | SendFlags::NOSIGNAL).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::os::fd::OwnedFd;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn packet_delivers_all_descriptors() {
        let (near, far) = pair();
        let fds = [far.as_fd(); SCM_MAX_FD];
        assert_eq!(has_descriptors(&near), Err(Errno::AGAIN));
        send(&far, b"many", &fds, SendFlags::DONTWAIT).unwrap();
        send(&far, b"none", &[], SendFlags::DONTWAIT).unwrap();
        assert_eq!(has_descriptors(&near), Ok(true));
        let mut bytes = [0; 8];
        let message = receive(&near, &mut bytes, RecvFlags::DONTWAIT, Owner::fresh()).unwrap();
        assert_eq!(
            (message.bytes, message.fds.len(), message.lost, message.truncated),
            (4, 253, false, false)
        );
        assert_eq!(has_descriptors(&near), Ok(false));
        let message = receive(&near, &mut bytes[..2], RecvFlags::DONTWAIT, Owner::fresh()).unwrap();
        assert_eq!((message.bytes, message.fds.len(), message.lost, message.truncated), (2, 0, false, true));
    }

    #[test]
    fn packet_send_finds_the_far_end_gone() {
        let (near, far) = pair();
        drop(far);
        assert_eq!(has_descriptors(&near), Ok(false));
        let message = receive(&near, &mut [0; 8], RecvFlags::DONTWAIT, Owner::fresh()).unwrap();
        assert_eq!((message.bytes, message.fds.len()), (0, 0));
        assert_eq!(send(&near, b"x", &[], SendFlags::DONTWAIT), Err(Errno::PIPE));
    }
}

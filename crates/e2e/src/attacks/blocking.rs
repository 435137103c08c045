//! Descriptors that block the process that closes them last: lingering sockets that came with a request, in excess, and
//! in queues that nobody reads.

use super::{LIFE, begun};
use anyhow::{Context, Result};
use crosslane_client::session::socket_path;
use crosslane_wire::codec::{self, MAX_MESSAGE};
use crosslane_wire::local::Request;
use crosslane_wire::{BufferId, CircuitId, Reach};
use rustix::io::IoSlice;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, sendmsg, socket_with, sockopt,
};
use std::io::Write;
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long a last close takes.
const LINGER: Duration = Duration::from_secs(8);
/// Descriptors of a packet, in turns: as many as a request may have, more, and many more.
const COUNTS: [usize; 3] = [1, 6, 60];
/// Between two packets.
const PAUSE: Duration = Duration::from_millis(20);

/// Sends such descriptors until it is ended.
///
/// # Errors
/// There is no daemon.
pub fn run(_words: &[String]) -> Result<()> {
    drop(open()?);
    begun();
    let (end, mut turn) = (Instant::now() + LIFE, 0);
    while Instant::now() < end {
        // A sender without descriptors or room goes on when it has some.
        let _ = attack(COUNTS[turn % COUNTS.len()], turn.is_multiple_of(2));
        std::thread::sleep(PAUSE);
        turn += 1;
    }
    Ok(())
}

/// One session, with two packets; `unread`: behind one that ends the session.
fn attack(count: usize, unread: bool) -> Result<()> {
    let session = open()?;
    let sockets = (0..count).map(|_| lingering()).collect::<Result<Vec<_>>>()?;
    let near: Vec<BorrowedFd<'_>> = sockets.iter().map(|(near, _)| near.as_fd()).collect();
    if unread {
        pass(&session, &[0; MAX_MESSAGE + 1], &[])?;
    }
    let (circuit, token, buffer) = (CircuitId(1), 0, BufferId(1));
    let request =
        codec::encode(&Request::ExportBuffer { circuit, token, buffer, len: 4096, reach: Reach::Load })?;
    let sent = pass(&session, &request, &near);
    // The last reference must be the daemon's: ours go at once, on a thread that may be too late and then waits instead.
    let (near, far): (Vec<_>, Vec<_>) = sockets.into_iter().unzip();
    let threads = std::thread::Builder::new();
    let _ = threads.spawn(move || {
        near.into_iter().for_each(drop);
        std::thread::sleep(LINGER);
        drop(far);
    });
    sent
}

/// A connection that is full and whose far end never reads.
fn lingering() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    // Little fits, so that many can be made.
    sockopt::set_socket_send_buffer_size(&near, 4096)?;
    sockopt::set_socket_recv_buffer_size(&far, 4096)?;
    near.set_nonblocking(true)?;
    while near.write(&[0; 65536]).is_ok() {}
    sockopt::set_socket_linger(&near, Some(LINGER))?;
    Ok((near, far))
}

fn pass(session: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(session, &[IoSlice::new(bytes)], &mut control, flags)?;
    Ok(())
}

fn open() -> Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new(socket_path())?).context("no daemon")?;
    Ok(socket)
}

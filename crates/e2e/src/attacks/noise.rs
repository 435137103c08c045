//! Sessions that send packets that are no requests, as fast as they are accepted: the example of an attack.

use super::{LIFE, begun};
use anyhow::{Context, Result};
use crosslane_client::session::socket_path;
use crosslane_wire::codec::MAX_MESSAGE;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with,
};
use std::os::fd::OwnedFd;
use std::time::Instant;

/// Sessions at a time.
const SESSIONS: usize = 8;

/// Sends noise until it is ended.
///
/// # Errors
/// There is no daemon.
pub fn run(_words: &[String]) -> Result<()> {
    let mut sessions = (0..SESSIONS).map(|_| open()).collect::<Result<Vec<_>>>()?;
    begun();
    let (end, mut word) = (Instant::now() + LIFE, 1_u8);
    while Instant::now() < end {
        for session in &mut sessions {
            word = word.wrapping_mul(37).wrapping_add(11);
            let packet = vec![word; usize::from(word).min(MAX_MESSAGE) + 1];
            // A session that was ended is opened again.
            if send(&*session, &packet, SendFlags::NOSIGNAL).is_err() {
                *session = open()?;
            }
        }
    }
    Ok(())
}

fn open() -> Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new(socket_path())?).context("no daemon")?;
    Ok(socket)
}

//! A text on its way to a program.

use crate::inbox::{Letter, Letterbox};
use crate::session_id::SessionId;
use crosslane_passing::{Foreign, aside, send};
use crosslane_wire::codec::{self, MAX_MESSAGE};
use crosslane_wire::local::Reply;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SendFlags;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Text in one packet, bytes; the rest of the packet is its head.
const PART: usize = MAX_MESSAGE - 64;
/// How long a program may take to read all of a text.
const READER_TIMEOUT: Duration = Duration::from_secs(5);

/// Has a text sent to a session; the letterbox hears what became of it.
pub(super) fn send_aside(
    letterbox: &Letterbox,
    (session, uid): (SessionId, u32),
    socket: &Arc<Foreign>,
    text: Arc<str>,
) {
    let (letterbox, socket) = (letterbox.clone(), socket.clone());
    aside::run(socket.owner(), move || {
        let heard = send_text(&socket, &text);
        drop(socket);
        letterbox.post(Letter::Told { session, uid, bytes: text.len(), heard });
    });
}

/// Sends a text in as many packets as it takes; `false` if the program does not read it in time, or is gone. Waits.
fn send_text(socket: &Foreign, text: &str) -> bool {
    let until = Instant::now() + READER_TIMEOUT;
    let mut rest = text;
    loop {
        let end =
            (0..=PART.min(rest.len())).rev().find(|at| rest.is_char_boundary(*at)).unwrap_or(rest.len());
        let (part, behind) = rest.split_at(end);
        rest = behind;
        let reply = Reply::Text { part: part.to_owned(), last: rest.is_empty() };
        if !codec::encode(&reply).is_ok_and(|bytes| send_until(socket, &bytes, until)) {
            return false;
        }
        if rest.is_empty() {
            return true;
        }
    }
}

fn send_until(socket: &Foreign, bytes: &[u8], until: Instant) -> bool {
    loop {
        match send(socket, bytes, &[], SendFlags::DONTWAIT) {
            Ok(()) => return true,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return false,
        }
        let left = until.saturating_duration_since(Instant::now());
        let timeout =
            Timespec { tv_sec: left.as_secs().try_into().unwrap_or(0), tv_nsec: left.subsec_nanos().into() };
        let ready = poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&timeout));
        if left.is_zero() || matches!(ready, Ok(0)) {
            return false;
        }
    }
}

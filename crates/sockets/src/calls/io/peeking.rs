//! `SO_PEEK_OFF` of a stream: peeks begin so far behind what was consumed, and each goes on where the last one ended. The kernel
//! has it for TCP since Linux 6.9; where it does not, it refuses the option before we hear of it.
//!
//! What a peek passes over is copied aside, as long as it is there: programs that peek so look at headers.

use super::{Outcome, must_not_wait};
use crate::descriptors::table::Held;
use crate::kernel::sockopt;
use crate::waiting::wait;
use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;
use crosslane_client::shared::Status;
use crosslane_stream::Direction;
use std::io::IoSliceMut;
use std::time::Instant;

/// More bytes than lie unread anywhere.
const FAR: usize = 64 << 20;

/// The program has given the option, or a socket that has it becomes a stream: what the kernel's socket says counts.
pub fn take(fd: c_int, end: &Held) {
    let offset = sockopt::number(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF);
    set(&end.shared().status, offset.and_then(|offset| u32::try_from(offset).ok()));
}

/// What `SO_PEEK_OFF` tells, if the kernel does not know.
pub fn told(end: &Held) -> Option<c_int> {
    offset(&end.shared().status).map(|offset| c_int::try_from(offset).unwrap_or(c_int::MAX))
}

/// A receive is over, on a stream that has the option.
#[cold]
pub fn received(fd: c_int, end: &Held, outcome: &Outcome) {
    let status = &end.shared().status;
    let Some(offset) = offset(status) else { return };
    match outcome {
        Outcome::Bytes(bytes) => {
            set(status, Some(offset.saturating_sub(u32::try_from(*bytes).unwrap_or(u32::MAX))));
        }
        // From now on the kernel keeps it.
        Outcome::Kernel => {
            let offset = c_int::try_from(offset).unwrap_or(c_int::MAX);
            sockopt::set_number(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF, offset);
            set(status, None);
        }
        Outcome::Errno(_) => {}
    }
}

/// A peek: `peek` fills buffers with all that is unread, of which there have to be `least` bytes if it may wait. `None`: as
/// if the stream had no such option.
#[cold]
pub fn peek(
    end: &Held,
    buffers: &mut [IoSliceMut<'_>],
    flags: c_int,
    mut peek: impl FnMut(&mut [IoSliceMut<'_>], usize) -> Outcome,
) -> Option<Outcome> {
    let status = &end.shared().status;
    let before = offset(status).filter(|_| end.rx() != Direction::Tcp)?;
    let skipped = (before as usize).min(FAR);
    let total: usize = buffers.iter().map(|buffer| buffer.len()).sum();
    let mut aside = vec![0; skipped];
    let mut all: Vec<IoSliceMut<'_>> = vec![IoSliceMut::new(&mut aside)];
    all.extend(buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)));
    let wanted = if flags & libc::MSG_WAITALL != 0 { total } else { 1 };
    let deadline = wait::deadline(status.receive_timeout.load(Relaxed));
    loop {
        let outcome = peek(&mut all, skipped.saturating_add(wanted));
        let Outcome::Bytes(bytes) = outcome else { return Some(outcome) };
        if bytes > skipped {
            advance(status, before, bytes - skipped);
            return Some(Outcome::Bytes(bytes - skipped));
        }
        if end.ready(crate::kernel::thread::tid()).read_closed {
            return Some(Outcome::Bytes(0));
        }
        if must_not_wait(end, flags) || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Some(Outcome::Errno(libc::EAGAIN));
        }
        // A signal ended the wait.
        if let Err(errno) = wait::interrupted(deadline.is_some()) {
            return Some(Outcome::Errno(errno));
        }
    }
}

/// `MSG_PEEK | MSG_TRUNC` of `len` bytes, of which the first was peeked: so many of the `unread` ones would have been.
pub fn counted(end: &Held, unread: usize, len: usize) -> usize {
    let status = &end.shared().status;
    let Some(offset) = offset(status) else { return unread.clamp(1, len) };
    // Behind the one that was peeked.
    let more = unread.saturating_sub(offset as usize).min(len - 1);
    advance(status, offset, more);
    1 + more
}

fn advance(status: &Status, offset: u32, bytes: usize) {
    set(
        status,
        Some(offset.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX)).min(i32::MAX.unsigned_abs())),
    );
}

fn offset(status: &Status) -> Option<u32> {
    status.peek_offset.load(Relaxed).checked_sub(1)
}

fn set(status: &Status, offset: Option<u32>) {
    status.peek_offset.store(offset.map_or(0, |offset| offset.saturating_add(1)), Relaxed);
}

/// Whether the stream has the option.
#[inline]
pub fn is_on(end: &Held) -> bool {
    end.shared().status.peek_offset.load(Relaxed) != 0
}

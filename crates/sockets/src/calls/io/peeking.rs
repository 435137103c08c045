//! `SO_PEEK_OFF` of a stream: a peek begins at an offset behind the consumed bytes, and moves it forward. The kernel
//! supports it for TCP since Linux 6.9; older kernels refuse the option before it reaches us.
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

/// Copies the kernel's value when the program sets the option, or when a socket that has it becomes a stream.
pub fn take(fd: c_int, end: &Held) {
    let offset = sockopt::number(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF);
    set(&end.shared().status, offset.and_then(|offset| u32::try_from(offset).ok()));
}

/// The value of `SO_PEEK_OFF` to report, if the kernel does not know it.
pub fn programs_value(end: &Held) -> Option<c_int> {
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
        // From now on the kernel keeps the offset.
        Outcome::Kernel => {
            let offset = c_int::try_from(offset).unwrap_or(c_int::MAX);
            sockopt::set_number(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF, offset);
            set(status, None);
        }
        Outcome::Errno(_) => {}
    }
}

/// Peeks. `peek` fills buffers with all unread bytes, at least `least` of them if it may wait. `None`: continue as if
/// the stream had no such option.
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

/// The result of `MSG_PEEK | MSG_TRUNC` for `len` bytes, the first of which was peeked, with `unread` bytes in the ring.
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

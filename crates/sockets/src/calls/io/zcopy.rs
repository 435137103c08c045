//! Large sends without the sender's copy: bytes that lie in a registered buffer (`crosslane_client::buffers`) are announced,
//! and the far program, which maps that buffer, fetches them. All other memory goes by the ring.
//!
//! Only for sends that may wait: the buffer belongs to the far side until all is fetched or the announcement is
//! cancelled. A reader that does not read, a signal or a timeout cancels it at once; the call then goes on, or ends,
//! like one through the ring.

use crate::daemon::waiters;
use crate::descriptors::table::Held;
use crate::kernel::thread;
use crate::waiting::wait::{self, WaitFor};
use core::cell::Cell;
use core::ffi::c_int;
use crosslane_client::Failure;
use crosslane_client::buffers::{Located, locate_bytes};
use crosslane_client::end::zcopy::announce::{Announcement, Behind};
use crosslane_client::link::announced::STALL;
use crosslane_shm::account::{self, Function};
use crosslane_shm::lock::take_busy;
use crosslane_stream::Transfer;
use crosslane_stream::chooser::{self, Chooser};
use crosslane_wire::Reach;
use std::time::Instant;

/// Bytes below which no send is announced.
const LEAST: usize = 8192;
/// Bytes from which on the two ways are compared.
const WORTHWHILE: usize = 32 * 1024;

/// What came of an announced send.
pub enum Sent {
    /// So many bytes are sent; the rest goes by the ring.
    Bytes(usize),
    /// So many bytes are sent, and the call ends with this error number if that is none.
    Ended(usize, c_int),
}

/// The ways to choose from, by their numbers in [`Chooser`].
const RING: usize = 0;
const ANNOUNCED: usize = 1;

/// Measurements of this process.
static CHOOSER: Chooser = Chooser::new();
/// Sends from a buffer before it is shared.
const USES: u32 = 2;

thread_local! {
    static RUN: Cell<Option<Run>> = const { Cell::new(None) };
}

/// A run: sends of one thread on one stream that are measured together.
#[derive(Clone, Copy)]
struct Run {
    stream: u32,
    len: usize,
    way: usize,
    sends: u32,
    bytes: u64,
    begin: Instant,
}

/// The buffer that `bytes` lie in, if a send of them that may wait is to be announced.
#[inline]
pub fn wanted(end: &Held, bytes: &[u8]) -> Option<Located> {
    if bytes.len() < LEAST {
        return None;
    }
    match end.transfer() {
        Transfer::ReadZcopy => locate_for_loads(bytes),
        Transfer::Auto if bytes.len() >= WORTHWHILE => {
            let buffer = locate_for_loads(bytes).filter(|buffer| buffer.uses >= USES)?;
            (end.may_announce() && way(end, bytes.len()) == ANNOUNCED).then_some(buffer)
        }
        _ => None,
    }
}

/// The buffer that `bytes` lie in, if there is one that far programs may load from.
fn locate_for_loads(bytes: &[u8]) -> Option<Located> {
    locate_bytes(bytes).filter(|buffer| buffer.reach == Reach::Load)
}

/// Chooses the way of this send of `len` bytes: that of the current run, or of a new one. The time between two sends
/// counts towards the run, whichever way it takes.
fn way(end: &Held, len: usize) -> usize {
    let now = Instant::now();
    let run = RUN.try_with(Cell::get).ok().flatten();
    let mut run = match run.filter(|run| run.stream == end.index && Chooser::alike(run.len, len)) {
        Some(run) if run.sends < chooser::RUN || run.bytes < chooser::RUN_BYTES => run,
        ended => {
            ended.inspect(|run| run.end(now));
            Run { stream: end.index, len, way: CHOOSER.begin(len), sends: 0, bytes: 0, begin: now }
        }
    };
    run.sends += 1;
    run.bytes += len as u64;
    let _ = RUN.try_with(|cell| cell.set(Some(run)));
    debug_assert!(run.way == RING || run.way == ANNOUNCED, "two ways are known");
    run.way
}

impl Run {
    /// Notes what the run took.
    fn end(&self, now: Instant) {
        let ns = u64::try_from(now.duration_since(self.begin).as_nanos()).unwrap_or(u64::MAX);
        CHOOSER.end(self.len, self.way, self.bytes, ns);
    }
}

/// Sends as much of `bytes`, which lie in `buffer`, as the far program fetches by Read Zcopy.
pub fn send(
    fd: c_int,
    end: &Held,
    bytes: &[u8],
    buffer: &Located,
    deadline: Option<Instant>,
) -> Result<Sent, Failure> {
    let wake = |waiter| waiters::wake(end, waiter);
    match Announcement::begin(end, thread::tid(), bytes, buffer, Behind::Nothing, wake)? {
        Ok(mut open) => await_fetch(fd, end, &mut open, deadline),
        Err(count) => Ok(match take_busy().map(|busy| wait::went_by(busy, deadline)) {
            Some(Err(errno)) => Sent::Ended(count, errno),
            _ => Sent::Bytes(count),
        }),
    }
}

fn await_fetch(
    fd: c_int,
    end: &Held,
    open: &mut Announcement,
    deadline: Option<Instant>,
) -> Result<Sent, Failure> {
    let _span = account::sending(Function::WaitSpace);
    let mut stalled = false;
    loop {
        if stalled && deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return end.withdraw(thread::tid(), open).map(Sent::Bytes);
        }
        if let Some(count) = open.try_advance(end, thread::tid(), stalled)? {
            return Ok(Sent::Bytes(count));
        }
        let soon = Instant::now() + STALL;
        let until = deadline.map_or(soon, |deadline| deadline.min(soon));
        let waited = match take_busy() {
            Some(busy) => wait::went_by(busy, deadline),
            None => wait::wait(fd, end, WaitFor::Answer(*open), Some(until)),
        };
        stalled = waited == Err(libc::EAGAIN);
        let errno = match waited {
            Ok(()) | Err(libc::EAGAIN) => continue,
            // The deadline was ours, not the program's.
            Err(libc::EINTR) => match wait::interrupted(deadline.is_some()) {
                Ok(()) => continue,
                Err(errno) => errno,
            },
            Err(errno) => errno,
        };
        return end.withdraw(thread::tid(), open).map(|count| Sent::Ended(count, errno));
    }
}

//! Large sends without the sender's copy: the buffer is announced, and the far program fetches it.
//!
//! Only for sends that may wait, since the buffer is the far side's until all is fetched or the announcement is taken
//! back. Whatever comes in between (a reader that does not read, a signal, a timeout) takes it back at once, and the call
//! goes on, or ends, as one through the ring would.

use crate::table::Held;
use crate::wait::{self, For};
use crate::{thread, waiters};
use core::cell::Cell;
use core::ffi::c_int;
use crosslane_client::Failure;
use crosslane_client::buffers::{Located, locate_bytes};
use crosslane_client::end::zcopy::announce::{Announcement, Attempt, Behind, Stand};
use crosslane_shm::account::{self, Function};
use crosslane_shm::process;
use crosslane_stream::Transfer;
use crosslane_stream::chooser::{self, Chooser};
use crosslane_wire::Reach;
use crosslane_wire::zcopy::Whose;
use std::time::{Duration, Instant};

/// How long a reader may fetch nothing before the announcement is taken back, and the ring, which has room for a while,
/// lets the sender go on.
const STALL: Duration = Duration::from_millis(5);

/// Bytes below which no send is announced.
const LEAST: usize = 8192;
/// Bytes from which on it is worth a look which way is better.
const WORTHWHILE: usize = 32 * 1024;

/// What came of an announced send.
pub enum Sent {
    /// So many bytes are sent; the rest goes by the ring.
    Bytes(usize),
    /// So many bytes are sent, and the call ends with this error number if that is none.
    Ended(usize, c_int),
}

/// Ways that are chosen among, as [`Chooser`] numbers them.
const RING: usize = 0;
const ANNOUNCED: usize = 1;

/// What was measured by this process: for its own memory, and for buffers that far programs map.
static CHOOSERS: [Chooser; 2] = [Chooser::new(), Chooser::new()];
/// Sends from a buffer before it is worth handing over.
const USES: u32 = 2;

thread_local! {
    static RUN: Cell<Option<Run>> = const { Cell::new(None) };
}

/// Sends of a thread on one stream that are measured together.
#[derive(Clone, Copy)]
struct Run {
    stream: u32,
    mapped: bool,
    len: usize,
    way: usize,
    sends: u32,
    bytes: u64,
    begin: Instant,
}

/// Whether a send of `len` bytes that may wait is to be announced.
#[inline]
pub fn is_wanted(end: &Held, bytes: &[u8]) -> bool {
    let len = bytes.len();
    if len < LEAST {
        return false;
    }
    match end.transfer() {
        Transfer::ReadZcopy => true,
        Transfer::Auto => len >= WORTHWHILE && end.may_announce() && way(end, bytes) == ANNOUNCED,
        Transfer::Bcopy | Transfer::WriteZcopy => false,
    }
}

/// The way that this send goes: that of the run under way, or of a new one. The time between two sends is counted with
/// them, whichever way they go.
fn way(end: &Held, bytes: &[u8]) -> usize {
    let (now, len) = (Instant::now(), bytes.len());
    let mapped = match locate_bytes(bytes) {
        Some(buffer) if buffer.uses < USES => return RING,
        Some(buffer) => buffer.reach == Reach::Load,
        None => false,
    };
    let chooser = &CHOOSERS[usize::from(mapped)];
    let run = RUN.try_with(Cell::get).ok().flatten();
    let mut run = match run
        .filter(|run| (run.stream, run.mapped) == (end.index, mapped) && Chooser::alike(run.len, len))
    {
        Some(run) if run.sends < chooser::RUN || run.bytes < chooser::RUN_BYTES => run,
        ended => {
            if let Some(run) = ended {
                let ns = now.duration_since(run.begin).as_nanos();
                CHOOSERS[usize::from(run.mapped)].end(
                    run.len,
                    run.way,
                    run.bytes,
                    u64::try_from(ns).unwrap_or(u64::MAX),
                );
            }
            let way = chooser.begin(len);
            Run { stream: end.index, mapped, len, way, sends: 0, bytes: 0, begin: now }
        }
    };
    run.sends += 1;
    run.bytes += len as u64;
    let _ = RUN.try_with(|cell| cell.set(Some(run)));
    debug_assert!(run.way == RING || run.way == ANNOUNCED, "two ways are known");
    run.way
}

/// Sends as much of `bytes` by Read Zcopy as the far program fetches.
pub fn send(fd: c_int, end: &Held, bytes: &[u8], deadline: Option<Instant>) -> Result<Sent, Failure> {
    let Some(place) = place(end, bytes) else { return Ok(Sent::Bytes(0)) };
    let (mut open, wake) = match end.announce(thread::tid(), bytes, place, Behind::Nothing)? {
        Attempt::Ring => return Ok(Sent::Bytes(0)),
        Attempt::Over(count, wake) => {
            waiters::ring(end, wake);
            return Ok(Sent::Bytes(count));
        }
        Attempt::Open(open, wake) => (open, wake),
    };
    waiters::ring(end, wake);
    let sent = await_fetch(fd, end, &mut open, deadline)?;
    if let Sent::Bytes(count) = sent
        && let Some(rest) = bytes.get(count..)
        && !process::can_read(rest)
    {
        // It was not fetched since it is not there any more, and would be no better by the ring.
        return Ok(Sent::Ended(count, libc::EFAULT));
    }
    Ok(sent)
}

fn await_fetch(
    fd: c_int,
    end: &Held,
    open: &mut Announcement,
    deadline: Option<Instant>,
) -> Result<Sent, Failure> {
    let _span = account::sending(Function::WaitSpace);
    let (mut before, mut stalled) = (0, false);
    loop {
        let now = Instant::now();
        match end.stand(thread::tid(), open)? {
            Stand::Over(count) => return Ok(Sent::Bytes(count)),
            Stand::Open(fetched) => {
                let late = deadline.is_some_and(|deadline| now >= deadline);
                if stalled && (late || fetched == before) {
                    return end.withdraw(thread::tid(), open).map(Sent::Bytes);
                }
                before = fetched;
            }
            Stand::Unwanted => return end.withdraw(thread::tid(), open).map(Sent::Bytes),
        }
        let until = deadline.map_or(now + STALL, |deadline| deadline.min(now + STALL));
        let waited = wait::wait(fd, end, For::Answer(*open), Some(until));
        stalled = waited == Err(libc::EAGAIN);
        let errno = match waited {
            Ok(()) | Err(libc::EAGAIN) => continue,
            // The limit of time was ours, not the program's.
            Err(libc::EINTR) => match wait::interrupted(deadline.is_some()) {
                Ok(()) => continue,
                Err(errno) => errno,
            },
            Err(errno) => errno,
        };
        return end.withdraw(thread::tid(), open).map(|count| Sent::Ended(count, errno));
    }
}

/// Where the far program finds these bytes: in a buffer that it may map, or in our process.
fn place(end: &Held, bytes: &[u8]) -> Option<(Whose, u64)> {
    if let Some(buffer) = shared(end, bytes) {
        return Some((Whose::Buffer(buffer.id.0), buffer.offset));
    }
    let me = process::identity()?;
    let whose = Whose::Process { pid: me.pid, proof: me.proof, proof_at: me.proof_at };
    Some((whose, bytes.as_ptr().expose_provenance() as u64))
}

/// The buffer that these bytes lie in, if there is one and the far end may map it.
fn shared(end: &Held, bytes: &[u8]) -> Option<Located> {
    let buffer = locate_bytes(bytes).filter(|buffer| buffer.reach == Reach::Load)?;
    end.share(&buffer).is_ok().then_some(buffer)
}

//! Receives into memory that the far program writes by itself: Write Zcopy, and Transactions by programs in C.
//!
//! Only into buffers that the program asked for by `xl_alloc` with `XL_ALLOC_OPEN`: the far program may store there at any
//! time, which nobody may do with memory that `malloc` gave.

use crate::daemon::waiters;
use crate::descriptors::table::Held;
use crate::kernel::thread;
use crate::waiting::wait::{self, WaitFor};
use core::ffi::c_int;
use crosslane_client::Failure;
use crosslane_client::buffers::{Located, locate};
use crosslane_shm::lock::take_busy;
use crosslane_stream::Transfer;
use crosslane_wire::Reach;
use std::time::Instant;

/// Bytes below which a plain receive offers nothing.
const LEAST: usize = 4096;

/// What came of an offer.
pub enum Landed {
    /// So many bytes were written into the buffer.
    Bytes(usize),
    /// Nothing was written, and what comes next comes by the ring. `true`: the request was sent.
    Ring(bool),
    /// The call ends with this error number.
    Errno(c_int),
}

/// Whether a receive into `buffer` that may wait should offer it.
#[inline]
pub fn is_wanted(end: &Held, buffer: &[u8]) -> bool {
    end.transfer() == Transfer::WriteZcopy && buffer.len() >= LEAST && place(buffer).is_some()
}

/// Sends `request`, which may be nothing, with an offer of `buffer`, and waits for what is written there.
pub fn receive(
    fd: c_int,
    end: &Held,
    request: &[u8],
    buffer: &[u8],
    deadline: Option<Instant>,
) -> Result<Landed, Failure> {
    let place = place(buffer).filter(|place| end.export_buffer(place).is_ok());
    #[expect(unsafe_code, reason = "the far side stores into memory that this call was given")]
    // SAFETY: the program's promise to `recv` and `xl_transact`: the memory is its until the call returns.
    let Some((place, line)) = place.and_then(|place| Some((place, unsafe { place.landing() }?))) else {
        return Ok(Landed::Ring(false));
    };
    let Some(wake) = end.offer(thread::tid(), request, (&place, &line), buffer.len())? else {
        return Ok(match take_busy().map(|busy| wait::went_by(busy, deadline)) {
            Some(Err(errno)) => Landed::Errno(errno),
            _ => Landed::Ring(false),
        });
    };
    waiters::wake(end, wake);
    let outcome = wait::wait_until(fd, end, WaitFor::Data, deadline, || end.has_landed(&line));
    Ok(match (end.take_offered(thread::tid(), &line)?, outcome) {
        (Some(count), _) => Landed::Bytes(count),
        (None, Ok(())) => Landed::Ring(true),
        (None, Err(errno)) => Landed::Errno(errno),
    })
}

fn place(buffer: &[u8]) -> Option<Located> {
    locate(buffer.as_ptr(), buffer.len()).filter(|place| place.reach == Reach::Store)
}

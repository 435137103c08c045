//! What `crosslane.h` offers programs beyond the C library's calls.

use super::hook;
use crate::calls::io::{self, Outcome};
use crate::descriptors::table;
use crate::kernel::real;
use core::ffi::{c_int, c_uint, c_void};
use crosslane_shm::buffer::{self, Kind};
use libc::{size_t, ssize_t};

/// `XL_ALLOC_OPEN`.
const OPEN: c_uint = 1;

hook! {
    /// Memory that the far ends of streams can copy out of by themselves, or, with `XL_ALLOC_OPEN`, into. `NULL` and
    /// `errno` if there is none.
    fn xl_alloc(len: size_t, flags: c_uint) -> *mut c_void {
        let kind = match flags {
            0 => Kind::Own,
            OPEN => Kind::Open,
            _ => {
                real::set_errno(libc::EINVAL);
                return core::ptr::null_mut();
            }
        };
        match buffer::alloc(len as u64, kind) {
            Ok(block) => block.at.as_ptr().cast(),
            Err(errno) => {
                real::set_errno(errno.raw_os_error());
                core::ptr::null_mut()
            }
        }
    }

    /// Gives back what `xl_alloc` gave; 0, or -1 and `EINVAL` if it did not.
    fn xl_free(memory: *mut c_void) -> c_int {
        if memory.is_null() || buffer::free(memory.cast()) { 0 } else { real::fail(libc::EINVAL) }
    }

    /// Sends a request and receives what comes next, like `send` and `recv`. With `XL_ALLOC_OPEN` memory the request
    /// offers it, and the far program writes the answer there itself.
    fn xl_transact(fd: c_int, request: *const c_void, len: size_t, answer: *mut c_void, room: size_t) -> ssize_t {
        if (request.is_null() && len > 0) || answer.is_null() || room == 0 {
            return real::fail(libc::EINVAL);
        }
        let Some(end) = table::stream(fd) else {
            // SAFETY: the program's promise to `send` and `recv`.
            let sent = unsafe { real::send(fd, request, len, 0) };
            if sent < 0 {
                return sent;
            }
            // SAFETY: as above.
            return unsafe { real::recv(fd, answer, room, 0) };
        };
        // SAFETY: the program's promise: memory of these lengths.
        let (request, answer) = unsafe {
            let request = if len == 0 { &[] } else { core::slice::from_raw_parts(request.cast(), len) };
            (request, core::slice::from_raw_parts_mut(answer.cast(), room))
        };
        match io::transact(fd, &end, request, answer) {
            Outcome::Kernel => real::fail(libc::EOPNOTSUPP),
            outcome => outcome.finish(|| -1),
        }
    }
}

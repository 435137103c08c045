//! What `libcrosslane_malloc.so` calls.

use super::hook;
use crate::daemon::pool;
use crate::kernel::real;
use core::ffi::{c_int, c_void};
use crosslane_shm::buffer;
use libc::size_t;

hook! {
    /// Memory for at least `size` bytes, aligned to 1 GB; null if there is none of this kind. `zeroed` is set to 1 if it
    /// holds nothing but zeros, else to 0. The error number stays.
    fn crosslane_buffer_alloc(size: size_t, zeroed: *mut c_int) -> *mut c_void {
        let errno = real::errno();
        let block = pool::alloc(size);
        real::set_errno(errno);
        let Some((at, is_zeroed)) = block else { return core::ptr::null_mut() };
        // SAFETY: the caller's own place.
        unsafe { zeroed.write(c_int::from(is_zeroed)) }
        at.cast()
    }

    /// Frees such memory; 0 if none begins there. The error number stays.
    fn crosslane_buffer_free(at: *mut c_void) -> c_int {
        c_int::from(pool::free(at.cast()))
    }

    /// Bytes of such memory; 0 if none begins there.
    fn crosslane_buffer_len(at: *const c_void) -> size_t {
        buffer::len_at(at.cast()).unwrap_or(0)
    }
}

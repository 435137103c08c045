//! The allocation functions of the C library that this library interposes.

use crate::{pool, real};
use core::ffi::{c_int, c_void};
use libc::size_t;

macro_rules! hook {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty $body:block)*) => {$(
        $(#[$meta])*
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $ret $body
    )*};
}

hook! {
    /// `malloc(3)`.
    fn malloc(size: size_t) -> *mut c_void {
        // SAFETY: plain number.
        pool::alloc(size, 0).map_or_else(|| unsafe { real::malloc(size) }, |block| block.at)
    }

    /// `calloc(3)`.
    fn calloc(count: size_t, size: size_t) -> *mut c_void {
        match count.checked_mul(size).and_then(|bytes| Some((pool::alloc(bytes, 0)?, bytes))) {
            Some((block, bytes)) => {
                if !block.zeroed {
                    // SAFETY: the block has this many bytes.
                    unsafe { block.at.cast::<u8>().write_bytes(0, bytes) }
                }
                block.at
            }
            // SAFETY: plain numbers.
            None => unsafe { real::calloc(count, size) },
        }
    }

    /// `free(3)`: `errno` is preserved.
    fn free(at: *mut c_void) -> () {
        if !pool::free(at) && !real::is_first(at) {
            // SAFETY: the program's promise.
            unsafe { real::free(at) }
        }
    }

    /// `realloc(3)`.
    fn realloc(at: *mut c_void, size: size_t) -> *mut c_void {
        // SAFETY: the program's promise.
        unsafe { resized(at, size) }
    }

    /// `reallocarray(3)`.
    fn reallocarray(at: *mut c_void, count: size_t, size: size_t) -> *mut c_void {
        match count.checked_mul(size) {
            // SAFETY: the program's promise.
            Some(bytes) => unsafe { resized(at, bytes) },
            None => {
                real::set_errno(libc::ENOMEM);
                core::ptr::null_mut()
            }
        }
    }

    /// `posix_memalign(3)`.
    fn posix_memalign(place: *mut *mut c_void, alignment: size_t, size: size_t) -> c_int {
        if alignment.is_power_of_two() && alignment.is_multiple_of(size_of::<*mut c_void>())
            && let Some(block) = aligned(alignment, size)
        {
            // SAFETY: the program's place for the result.
            unsafe { place.write(block.at) }
            return 0;
        }
        // SAFETY: the program's promise.
        unsafe { real::posix_memalign(place, alignment, size) }
    }

    /// `aligned_alloc(3)`.
    fn aligned_alloc(alignment: size_t, size: size_t) -> *mut c_void {
        // SAFETY: plain numbers.
        aligned(alignment, size).map_or_else(|| unsafe { real::aligned_alloc(alignment, size) }, |block| block.at)
    }

    /// `memalign(3)`.
    fn memalign(alignment: size_t, size: size_t) -> *mut c_void {
        // SAFETY: plain numbers.
        aligned(alignment, size).map_or_else(|| unsafe { real::memalign(alignment, size) }, |block| block.at)
    }

    /// `valloc(3)`.
    fn valloc(size: size_t) -> *mut c_void {
        // SAFETY: plain number.
        pool::alloc(size, 0).map_or_else(|| unsafe { real::valloc(size) }, |block| block.at)
    }

    /// `pvalloc(3)`: whole pages, as all buffers are.
    fn pvalloc(size: size_t) -> *mut c_void {
        // SAFETY: plain number.
        pool::alloc(size, 0).map_or_else(|| unsafe { real::pvalloc(size) }, |block| block.at)
    }

    /// `malloc_usable_size(3)`.
    fn malloc_usable_size(at: *mut c_void) -> size_t {
        match pool::len(at) {
            Some(len) => len,
            None if real::is_first(at) => real::first_len(at),
            // SAFETY: the program's promise.
            None => unsafe { real::malloc_usable_size(at) },
        }
    }
}

/// A buffer for an aligned allocation: its start is aligned to anything that a program may sensibly request.
fn aligned(alignment: usize, size: usize) -> Option<pool::Block> {
    if alignment.is_power_of_two() && alignment <= 1 << 30 { pool::alloc(size, 0) } else { None }
}

/// # Safety
/// `at` is null or the program's memory; the program gives it up unless the result is null.
unsafe fn resized(at: *mut c_void, size: usize) -> *mut c_void {
    let buffer = pool::len(at);
    if let Some(len) = buffer
        && size != 0
        && size <= len
        && size >= len / 2
    {
        return at;
    }
    if buffer.is_none() && !real::is_first(at) {
        // SAFETY: the caller's promise.
        return unsafe { resized_other(at, size) };
    }
    let held = buffer.unwrap_or_else(|| real::first_len(at));
    // SAFETY: `held` is the length of `at`; all else as the caller promised.
    unsafe {
        if size == 0 {
            free(at);
            return core::ptr::null_mut();
        }
        // A program that has grown an allocation will probably do so again.
        let room = if size > held { size / 4 } else { 0 };
        let new = pool::alloc(size, room).map_or_else(|| real::malloc(size), |block| block.at);
        moved(at, held.min(size), new)
    }
}

/// As [`resized`], for memory of the next allocator: it becomes a buffer if the new size is large and the old one was not.
///
/// # Safety
/// As [`resized`].
unsafe fn resized_other(at: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe {
        if !at.is_null()
            && let Some(block) = pool::alloc(size, size / 4)
        {
            let held = real::malloc_usable_size(at);
            return moved(at, held.min(size), block.at);
        }
        let fresh = pool::alloc(if at.is_null() { size } else { 0 }, 0);
        fresh.map_or_else(|| real::realloc(at, size), |block| block.at)
    }
}

/// Copies the old content into new memory and frees the old one; does nothing if `new` is null.
///
/// # Safety
/// Both have at least `len` bytes; `old` is given up.
unsafe fn moved(old: *mut c_void, len: usize, new: *mut c_void) -> *mut c_void {
    if !new.is_null() {
        let errno = real::errno();
        // SAFETY: the caller's promise.
        unsafe {
            core::ptr::copy_nonoverlapping(old.cast::<u8>().cast_const(), new.cast(), len);
            free(old);
        }
        real::set_errno(errno);
    }
    new
}

//! Buffers from the functions of `libcrosslane_sockets.so`.

use crate::{real, size};
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};
use libc::size_t;

/// Every buffer begins at a multiple of this, bytes; other allocations hardly ever do.
const ALIGNED: usize = 1 << 30;

type Alloc = unsafe extern "C" fn(size_t, *mut c_int) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void) -> c_int;
type Len = unsafe extern "C" fn(*const c_void) -> size_t;

static ALLOC: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static FREE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static LEN: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// Size from which on an allocation is large, bytes. Before the start, and if there are no buffers, none is.
static LARGE: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Memory for an allocation.
pub struct Block {
    /// Its start.
    pub at: *mut c_void,
    /// Whether all bytes are zero.
    pub zeroed: bool,
}

/// Finds the functions, and reads the size from the environment.
pub fn start() {
    // SAFETY: a C string, before there are threads that might change the environment.
    let text = unsafe { libc::getenv(size::VARIABLE.as_ptr()) };
    // SAFETY: plain number.
    if text.is_null() || unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return;
    }
    // SAFETY: a C string of the environment.
    let Some(large) = size::parse(unsafe { CStr::from_ptr(text) }.to_bytes()) else {
        return complain(c"crosslane: CROSSLANE_MALLOC is no size: malloc stays as it is\n");
    };
    let functions = [
        (&ALLOC, c"crosslane_buffer_alloc"),
        (&FREE, c"crosslane_buffer_free"),
        (&LEN, c"crosslane_buffer_len"),
    ];
    for (place, name) in functions {
        // SAFETY: a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        if found.is_null() {
            return complain(
                c"crosslane: libcrosslane_malloc.so without libcrosslane_sockets.so: malloc stays as it is\n",
            );
        }
        place.store(found, Relaxed);
    }
    LARGE.store(large, Relaxed);
}

/// A buffer for `bytes`, if that is large and a buffer is available, with `room` bytes more if possible.
#[inline]
pub fn alloc(bytes: usize, room: usize) -> Option<Block> {
    if bytes < LARGE.load(Relaxed) { None } else { large(bytes.checked_add(room)?) }
}

#[cold]
fn large(bytes: usize) -> Option<Block> {
    // SAFETY: `LARGE` was set after the functions of these names and types were found.
    let function: Alloc = unsafe { core::mem::transmute(ALLOC.load(Relaxed)) };
    let mut zeroed = 0;
    // SAFETY: a number and a place for another.
    let at = unsafe { function(bytes, &raw mut zeroed) };
    if at.is_null() { None } else { Some(Block { at, zeroed: zeroed != 0 }) }
}

/// Length, bytes, of the buffer that begins at `at`; `None` if there is none.
#[inline]
pub fn len(at: *const c_void) -> Option<usize> {
    if !at.addr().is_multiple_of(ALIGNED) || at.is_null() { None } else { buffer_len(at) }
}

#[cold]
fn buffer_len(at: *const c_void) -> Option<usize> {
    let function = LEN.load(Relaxed);
    if function.is_null() {
        return None;
    }
    // SAFETY: found under its name, with this type.
    let function: Len = unsafe { core::mem::transmute(function) };
    // SAFETY: the function uses only the address.
    match unsafe { function(at) } {
        0 => None,
        len => Some(len),
    }
}

/// Frees the buffer that begins at `at`; `false` if none does.
#[inline]
pub fn free(at: *mut c_void) -> bool {
    if !at.addr().is_multiple_of(ALIGNED) || at.is_null() { false } else { free_buffer(at) }
}

#[cold]
fn free_buffer(at: *mut c_void) -> bool {
    let function = FREE.load(Relaxed);
    if function.is_null() {
        return false;
    }
    // SAFETY: found under its name, with this type.
    let function: Free = unsafe { core::mem::transmute(function) };
    // SAFETY: the program gives up what begins there.
    unsafe { function(at) != 0 }
}

fn complain(line: &CStr) {
    let bytes = line.to_bytes();
    // SAFETY: this library's own bytes.
    unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) };
    real::set_errno(0);
}

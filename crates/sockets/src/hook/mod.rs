//! The C functions that programs call in place of the C library's. Each asks the table whether the descriptor is a
//! stream and hands over to a module above, or makes the kernel's call.

pub mod confinement;
pub mod connection;
pub mod descriptor;
pub mod exec;
pub mod raw;
pub mod receive;
pub mod send;
pub mod stdio;
pub mod transfer;

/// Defines hooked functions: exported from the library, but not from its unit tests.
macro_rules! hook {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty $body:block)*) => {$(
        $(#[$meta])*
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $ret $body
    )*};
}
pub(crate) use hook;

use libc::iovec;
use std::io::{IoSlice, IoSliceMut};

/// Most buffers of one call, as the kernel has it.
const IOV_MAX: usize = 1024;

/// The program's buffers as they come in `iovec`s; `None` if there are too many.
///
/// # Safety
/// `iov` must be valid for `count` entries, and each entry for loads of its length.
unsafe fn slices<'a>(iov: *const iovec, count: usize) -> Option<&'a [IoSlice<'a>]> {
    if count > IOV_MAX {
        return None;
    }
    if count == 0 || iov.is_null() {
        return Some(&[]);
    }
    // SAFETY: `IoSlice` is ABI compatible with `iovec` on Unix, by its documentation.
    Some(unsafe { core::slice::from_raw_parts(iov.cast(), count) })
}

/// Like [`slices`], for buffers that are filled.
///
/// # Safety
/// `iov` must be valid for `count` entries, and each entry for stores of its length, from this thread alone.
unsafe fn slices_mut<'a>(iov: *const iovec, count: usize) -> Option<&'a mut [IoSliceMut<'a>]> {
    if count > IOV_MAX {
        return None;
    }
    if count == 0 || iov.is_null() {
        return Some(&mut []);
    }
    // SAFETY: `IoSliceMut` is ABI compatible with `iovec` on Unix, by its documentation.
    Some(unsafe { core::slice::from_raw_parts_mut(iov.cast_mut().cast(), count) })
}

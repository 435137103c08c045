//! The C functions that programs call in place of the C library's. Each asks the table whether the descriptor is a
//! stream and hands over to a module above, or makes the kernel's call.

pub mod confinement;
pub mod connection;
pub mod descriptor;
pub mod environment;
pub mod exec;
pub mod exec_list;
pub mod fork;
pub mod memory;
pub mod raw;
pub mod receive;
pub mod send;
pub mod splice;
pub mod stdio;
pub mod transfer;
pub mod zcopy;

/// Defines hooked functions: exported from the library, but not from its unit tests.
macro_rules! hook {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty $body:block)*) => {$(
        $(#[$meta])*
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $ret $body
    )*};
}
pub(crate) use hook;

use core::ffi::c_int;
use libc::iovec;
use std::io::{IoSlice, IoSliceMut};

/// Most buffers of one call, as the kernel has it.
const IOV_MAX: usize = 1024;

/// Where the memory of programs ends, as the kernel gives it out.
const MEMORY_END: usize = if cfg!(target_arch = "x86_64") { 1 << 47 } else { 1 << 52 };

/// Whether so many bytes from there on can be a program's; else the kernel says `EFAULT`.
fn can_be_ours(base: *const core::ffi::c_void, len: usize) -> bool {
    base.addr().checked_add(len).is_some_and(|end| end <= MEMORY_END)
}

/// The program's buffers: in its own array, or in a copy without the empty ones that point to nothing.
enum Buffers<'a, T> {
    Theirs(*mut T, usize, core::marker::PhantomData<&'a T>),
    Ours(Vec<T>),
}

impl<T> core::ops::Deref for Buffers<'_, T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match self {
            // SAFETY: made by `buffers` from the program's array.
            Self::Theirs(first, count, _) => unsafe { core::slice::from_raw_parts(*first, *count) },
            Self::Ours(buffers) => buffers,
        }
    }
}

impl<T> core::ops::DerefMut for Buffers<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            // SAFETY: made by `buffers` from the program's array.
            Self::Theirs(first, count, _) => unsafe { core::slice::from_raw_parts_mut(*first, *count) },
            Self::Ours(buffers) => buffers,
        }
    }
}

/// The flags of `recv` and `send` for a call of `preadv2`'s kind; `None` if it is none that a socket takes.
fn flags_at(offset: libc::off_t, flags: c_int) -> Option<c_int> {
    match (offset, flags) {
        (-1, 0) => Some(0),
        (-1, libc::RWF_NOWAIT) => Some(libc::MSG_DONTWAIT),
        _ => None,
    }
}

/// The program's buffers as they come in `iovec`s, or the error number for it: `EINVAL` if there are too many or one has a
/// negative length, `EFAULT` for one that points to nothing.
///
/// # Safety
/// `iov` must be valid for `count` entries, and each entry for loads of its length.
unsafe fn slices<'a>(iov: *const iovec, count: usize) -> Result<Buffers<'a, IoSlice<'a>>, c_int> {
    // SAFETY: the caller's promise; `IoSlice` is ABI compatible with `iovec` on Unix, by its documentation.
    unsafe {
        buffers(iov, count, |iov| IoSlice::new(core::slice::from_raw_parts(iov.iov_base.cast(), iov.iov_len)))
    }
}

/// Like [`slices`], for buffers that are filled.
///
/// # Safety
/// `iov` must be valid for `count` entries, and each entry for stores of its length, from this thread alone.
unsafe fn slices_mut<'a>(iov: *const iovec, count: usize) -> Result<Buffers<'a, IoSliceMut<'a>>, c_int> {
    let one = |iov: &iovec| {
        // SAFETY: the caller's promise.
        IoSliceMut::new(unsafe { core::slice::from_raw_parts_mut(iov.iov_base.cast(), iov.iov_len) })
    };
    // SAFETY: the caller's promise; `IoSliceMut` is ABI compatible with `iovec` on Unix, by its documentation.
    unsafe { buffers(iov, count, one) }
}

/// # Safety
/// As [`slices`]; `T` is ABI compatible with `iovec`, and `one` makes it from one that points to something.
unsafe fn buffers<'a, T>(
    iov: *const iovec,
    count: usize,
    one: impl Fn(&iovec) -> T,
) -> Result<Buffers<'a, T>, c_int> {
    if count > IOV_MAX {
        return Err(libc::EINVAL);
    }
    if count == 0 {
        return Ok(Buffers::Ours(Vec::new()));
    }
    if iov.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: the caller's promise.
    let raw = unsafe { core::slice::from_raw_parts(iov, count) };
    if raw.iter().any(|iov| iov.iov_len > isize::MAX.unsigned_abs()) {
        return Err(libc::EINVAL);
    }
    if raw.iter().any(|iov| !can_be_ours(iov.iov_base, iov.iov_len)) {
        return Err(libc::EFAULT);
    }
    if raw.iter().all(|iov| !iov.iov_base.is_null()) {
        return Ok(Buffers::Theirs(iov.cast_mut().cast(), count, core::marker::PhantomData));
    }
    if raw.iter().any(|iov| iov.iov_base.is_null() && iov.iov_len > 0) {
        return Err(libc::EFAULT);
    }
    Ok(Buffers::Ours(raw.iter().filter(|iov| !iov.iov_base.is_null()).map(one).collect()))
}

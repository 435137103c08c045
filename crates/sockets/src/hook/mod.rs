//! The C functions that programs call in place of the C library's. Each asks the table whether the descriptor is a
//! stream and hands over to a module above, or makes the kernel's call.

pub mod ancillary;
mod closing;
pub mod connection;
pub mod descriptor;
pub mod environment;
pub mod epoll;
pub mod exec;
pub mod exec_list;
pub mod fork;
pub mod memory;
pub mod poll;
pub mod raw;
pub mod receive;
pub mod sandbox;
pub mod select;
pub mod send;
pub mod signal;
pub mod splice;
pub mod stdio;
pub mod transfer;
pub mod zcopy;

/// Defines hooked functions: exported from the library, but not from its unit tests. As with a system call, `errno`
/// changes only if the call fails, whatever we asked the kernel meanwhile: programs read it late. With `|kernel|` behind its
/// type a function has `kernel()`, the C library's own of the same name with the same arguments.
macro_rules! hook {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty $(|$kernel:ident|)? $body:block)*) => {$(
        $(#[$meta])*
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            $crate::hook::hook!(@kernel $name($($arg),*) $($kernel)?);
            $crate::kernel::real::keeping_errno(move || -> $ret { $body })
        }
    )*};
    (@kernel $name:ident($($arg:ident),*)) => {};
    (@kernel $name:ident($($arg:ident),*) $kernel:ident) => {
        // SAFETY: what the program promises to the function of this name.
        let $kernel = move || unsafe { $crate::kernel::real::$name($($arg),*) };
    };
}
pub(crate) use hook;

use crate::kernel::{real, user};
use core::ffi::{c_int, c_uint};
use core::mem::MaybeUninit;
use libc::iovec;
use std::io::{IoSlice, IoSliceMut};

/// Most buffers of one call, as the kernel has it.
const IOV_MAX: usize = 1024;

/// End of user memory: the kernel refuses buffers beyond it.
const MEMORY_END: usize = if cfg!(target_arch = "x86_64") { (1 << 47) - 4096 } else { 1 << 52 };
/// Most bytes of one call, as the kernel has it.
const LONGEST: usize = 0x7fff_f000;

/// Whether `len` bytes at `base` can be the program's; if not, the kernel says `EFAULT`.
fn can_be_ours(base: *const core::ffi::c_void, len: usize) -> bool {
    base.addr().checked_add(len).is_some_and(|end| end <= MEMORY_END)
}

/// Maps the flags of a `preadv2` without offset, of `bytes` bytes, to those of `recv` and `send`, or to an error
/// number, as the kernel does: most mean nothing to a socket, and with 0 bytes none is checked.
fn flags_of(flags: c_int, bytes: usize) -> Result<c_int, c_int> {
    /// Linux 6.9.
    const RWF_NOAPPEND: c_int = 0x20;
    const APPEND_OR_NOT: c_int = libc::RWF_APPEND | RWF_NOAPPEND;
    const KNOWN: c_int = libc::RWF_HIPRI
        | libc::RWF_DSYNC
        | libc::RWF_SYNC
        | libc::RWF_NOWAIT
        | libc::RWF_APPEND
        | RWF_NOAPPEND;
    match flags {
        _ if bytes == 0 => Ok(0),
        _ if flags & !KNOWN != 0 => Err(libc::EOPNOTSUPP),
        _ if flags & APPEND_OR_NOT == APPEND_OR_NOT => Err(libc::EINVAL),
        _ if flags & libc::RWF_NOWAIT != 0 => Ok(libc::MSG_DONTWAIT),
        _ => Ok(0),
    }
}

/// A pointer to nothing that is valid for empty slices.
const NOWHERE: *mut u8 = core::ptr::without_provenance_mut(1);

/// A program's buffer, which may be unmapped: the slice is only passed to guarded copies.
///
/// # Safety
/// If it is there it is the program's, for as long as the segment lives.
unsafe fn bytes<'a>(base: *const core::ffi::c_void, len: usize) -> &'a [u8] {
    let base = if base.is_null() { NOWHERE } else { base.cast() };
    // SAFETY: not null; the length was checked, or is below `isize::MAX`; see above.
    unsafe { core::slice::from_raw_parts(base, len.min(LONGEST)) }
}

/// Like [`bytes`], for a buffer that is filled.
///
/// # Safety
/// As [`bytes`], and from this thread alone.
unsafe fn bytes_mut<'a>(base: *mut core::ffi::c_void, len: usize) -> &'a mut [u8] {
    let base = if base.is_null() { NOWHERE } else { base.cast() };
    // SAFETY: as above.
    unsafe { core::slice::from_raw_parts_mut(base, len.min(LONGEST)) }
}

/// Does `one` with one message after the other until it fails, and tells each its length; how many these are, or -1.
fn each_message(
    messages: *mut libc::mmsghdr,
    count: c_uint,
    mut one: impl FnMut(*mut libc::msghdr) -> libc::ssize_t,
) -> c_int {
    let number = |count| c_int::try_from(count).unwrap_or(c_int::MAX);
    for done in 0..count {
        let entry = messages.wrapping_add(done as usize);
        let stored = c_uint::try_from(one(entry.cast())).map(|len| store_length(entry, len));
        if !matches!(stored, Ok(Ok(()))) {
            if let Ok(Err(errno)) = stored {
                real::set_errno(errno);
            }
            return if done > 0 { number(done) } else { -1 };
        }
    }
    number(count)
}

/// Stores the length of a message behind its header, in one of `mmsghdr`.
fn store_length(entry: *mut libc::mmsghdr, len: c_uint) -> Result<(), c_int> {
    const AT: usize = core::mem::offset_of!(libc::mmsghdr, msg_len);
    // SAFETY: the program's array.
    unsafe { user::store(entry.wrapping_byte_add(AT).cast(), &len) }
}

/// Buffers of a call that need no allocation, as the kernel has it.
const FEW: usize = 8;

/// The program's buffers, in an array of ours.
struct Buffers<T> {
    few: [T; FEW],
    many: Vec<T>,
    count: usize,
}

impl<T> core::ops::Deref for Buffers<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        if self.count <= FEW { &self.few[..self.count] } else { &self.many }
    }
}

impl<T> core::ops::DerefMut for Buffers<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        if self.count <= FEW { &mut self.few[..self.count] } else { &mut self.many }
    }
}

/// The program's `iovec`s as buffers of at most [`LONGEST`] bytes in all, or the error number: `EINVAL` if there are
/// too many or one has a negative length, `EFAULT` if the array or a buffer cannot be there.
///
/// # Safety
/// What is there of the buffers must be the program's for the call.
unsafe fn segments<'a>(iov: *const iovec, count: usize) -> Result<Buffers<IoSlice<'a>>, c_int> {
    // SAFETY: the caller's promise.
    buffers(iov, count, || IoSlice::new(&[]), |iov| IoSlice::new(unsafe { bytes(iov.iov_base, iov.iov_len) }))
}

/// Like [`segments`], for buffers that are filled.
///
/// # Safety
/// As [`segments`], from this thread alone.
unsafe fn segments_mut<'a>(iov: *const iovec, count: usize) -> Result<Buffers<IoSliceMut<'a>>, c_int> {
    // SAFETY: the caller's promise.
    let one = |iov: &iovec| IoSliceMut::new(unsafe { bytes_mut(iov.iov_base, iov.iov_len) });
    buffers(iov, count, || IoSliceMut::new(&mut []), one)
}

/// As [`segments`]: `none` makes an empty buffer, `one` makes that of an `iovec`.
fn buffers<T>(
    iov: *const iovec,
    count: usize,
    none: impl Fn() -> T,
    one: impl Fn(&iovec) -> T,
) -> Result<Buffers<T>, c_int> {
    if count > IOV_MAX {
        return Err(libc::EINVAL);
    }
    let mut made = Buffers { few: core::array::from_fn(|_| none()), many: Vec::new(), count };
    let (mut few, mut many) = ([const { MaybeUninit::<iovec>::uninit() }; FEW], Vec::new());
    let parts = if count <= FEW {
        &mut few[..count]
    } else {
        many.resize(count, MaybeUninit::uninit());
        &mut many[..]
    };
    if count == 0 {
        return Ok(made);
    }
    // SAFETY: any bytes are `iovec`s.
    let parts = unsafe { user::load_all(iov, parts) }?;
    let mut left = LONGEST;
    for (index, part) in parts.iter().enumerate() {
        let part = clipped(part, &mut left)?;
        if count <= FEW {
            made.few[index] = one(&part);
        } else {
            made.many.push(one(&part));
        }
    }
    Ok(made)
}

/// The part of an `iovec` that is used when `left` bytes remain; reduces `left`.
fn clipped(part: &iovec, left: &mut usize) -> Result<iovec, c_int> {
    if part.iov_len > isize::MAX.unsigned_abs() {
        return Err(libc::EINVAL);
    }
    if !can_be_ours(part.iov_base, part.iov_len) {
        return Err(libc::EFAULT);
    }
    let len = part.iov_len.min(*left);
    *left -= len;
    Ok(iovec { iov_base: part.iov_base, iov_len: len })
}

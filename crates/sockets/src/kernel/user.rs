//! Small arguments in the program's memory: addresses, arrays, events, times. A pointer to what is not there is `EFAULT`,
//! as the kernel says.

use crate::kernel::{fault, real};
use core::ffi::{c_char, c_int, c_long, c_void};
use core::mem::MaybeUninit;
use crosslane_shm::guarded::{self, Fault};
use libc::socklen_t;

/// Bytes that one look of [`is_there`] takes, and their alignment.
const LOOK: usize = 8;
/// Bytes that [`load`] reads at most: [`is_there`] looks at both ends, and no page is shorter.
const LONGEST: usize = 4096;

/// What lies at `from`, aligned or not.
///
/// # Errors
/// `EFAULT` if it is not there.
///
/// # Safety
/// What is there must be a valid `T`, whatever it is.
#[inline]
pub unsafe fn load<T: Copy>(from: *const T) -> Result<T, c_int> {
    const { assert!(size_of::<T>() <= LONGEST) };
    if !fault::is_caught() && !is_there(from.cast(), size_of::<T>()) {
        return Err(libc::EFAULT);
    }
    check(from)?;
    // SAFETY: it is there, or a fault is caught; the caller says that any bytes are valid.
    unsafe { guarded::load(from) }.map_err(errno_of)
}

/// Loads as many as `into` has room for, from `from` on, in a program that has streams, or may have some.
///
/// # Errors
/// `EFAULT` if they are not all there.
///
/// # Safety
/// What is there must be valid `T`s, whatever it is.
#[inline]
pub unsafe fn load_all<T: Copy>(from: *const T, into: &mut [MaybeUninit<T>]) -> Result<&mut [T], c_int> {
    fault::catch();
    let (target, len) = (into.as_mut_ptr().cast(), size_of_val(into));
    check(from)?;
    // SAFETY: memory of our own, which is filled if this succeeds, and the caller's promise.
    unsafe {
        guarded::copy(target, from.cast(), len).map_err(errno_of)?;
        Ok(core::slice::from_raw_parts_mut(target.cast(), into.len()))
    }
}

/// As [`load_all`] over what is there already.
///
/// # Errors
/// `EFAULT` if they are not all there.
///
/// # Safety
/// As [`load_all`].
pub unsafe fn load_over<T: Copy>(from: *const T, into: &mut [T]) -> Result<(), c_int> {
    // SAFETY: the caller's promise; nothing but valid `T`s is stored there.
    let into = unsafe { &mut *(core::ptr::from_mut(into) as *mut [MaybeUninit<T>]) };
    // SAFETY: as above.
    unsafe { load_all(from, into) }.map(drop)
}

/// Stores `value` at `to`, aligned or not. Before there is a stream only where the kernel has just stored.
///
/// # Errors
/// `EFAULT` if it is not there.
///
/// # Safety
/// If it is there, it is the caller's to be written.
#[inline]
pub unsafe fn store<T: Copy>(to: *mut T, value: &T) -> Result<(), c_int> {
    check(to)?;
    // SAFETY: the caller's promise.
    unsafe { guarded::store(to, value) }.map_err(errno_of)
}

/// As [`store`] of as many as `values` has.
///
/// # Errors
/// `EFAULT` if the place for them is not all there.
///
/// # Safety
/// As [`store`].
pub unsafe fn store_all<T: Copy>(to: *mut T, values: &[T]) -> Result<(), c_int> {
    check(to)?;
    // SAFETY: the caller's promise.
    unsafe { guarded::copy(to.cast(), values.as_ptr().cast(), size_of_val(values)) }.map_err(errno_of)
}

/// What a program gives with `setsockopt`.
#[derive(Clone, Copy, Debug)]
pub struct Value {
    at: *const c_void,
    len: socklen_t,
}

impl Value {
    /// `len` bytes at `at`.
    ///
    /// # Safety
    /// What is there of them is the program's, until its call returns.
    pub unsafe fn new(at: *const c_void, len: socklen_t) -> Self {
        Self { at, len }
    }

    /// Bytes.
    pub fn len(&self) -> socklen_t {
        self.len
    }

    /// The number that it is, whatever more there is.
    ///
    /// # Errors
    /// `EINVAL` if it is too short, `EFAULT` if it is not there.
    pub fn number(&self) -> Result<c_int, c_int> {
        if (self.len as usize) < size_of::<c_int>() || c_int::try_from(self.len).is_err() {
            return Err(libc::EINVAL);
        }
        // SAFETY: any bytes are a number.
        unsafe { load(self.at.cast::<c_int>()) }
    }

    /// Whether there is any byte of it.
    pub fn has_a_byte(&self) -> bool {
        self.len > 0 && is_there(self.at.cast(), 1)
    }
}

/// Where `getsockopt` puts a value, and its length.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    at: *mut c_void,
    len: *mut socklen_t,
}

impl Place {
    /// The value at `at`; `len` points to the length of the room, and gets the length used.
    ///
    /// # Safety
    /// What is there of both is the program's to be written, until its call returns.
    pub unsafe fn new(at: *mut c_void, len: *mut socklen_t) -> Self {
        Self { at, len }
    }

    /// Room, bytes.
    ///
    /// # Errors
    /// `EFAULT` if the length is not there.
    pub fn room(&self) -> Result<socklen_t, c_int> {
        // SAFETY: any bytes are a length.
        unsafe { load(self.len) }
    }

    /// Stores as much of `bytes` as `room` has room for, and how much that is.
    ///
    /// # Errors
    /// `EFAULT` if it is not there.
    pub fn store(&self, bytes: &[u8], room: socklen_t) -> Result<(), c_int> {
        let copied = bytes.len().min(room as usize);
        // SAFETY: the promise of `new`; no more than there is room for.
        unsafe {
            store_all(self.at.cast(), &bytes[..copied])?;
            store(self.len, &socklen_t::try_from(copied).unwrap_or(room))
        }
    }
}

/// Whether all `len` bytes at `at` can be loaded, in a program that has streams.
pub fn can_load(at: *const u8, len: usize) -> bool {
    !fault::is_caught() || guarded::is_there(at, len)
}

/// Refuses a null pointer, without a signal, which a thread may block.
fn check<T>(at: *const T) -> Result<(), c_int> {
    guarded::check(at.cast()).map_err(errno_of)
}

/// The error number of a fault.
fn errno_of(_: Fault) -> c_int {
    libc::EFAULT
}

/// Whether the `len` bytes at `at`, a page of them at most, can be loaded. A system call or two, of which a null pointer means
/// that there is no mask: nothing lies there.
pub fn is_there(at: *const u8, len: usize) -> bool {
    if at.is_null() {
        return false;
    }
    let Some(last) = at.addr().checked_add(len.max(1) - 1) else { return false };
    let word = |address: usize| address & !(LOOK - 1);
    has_word(word(at.addr())) && (word(last) == word(at.addr()) || has_word(word(last)))
}

/// A list that ends with null, of strings (`argv`, `envp`), is walked over: each page is looked at once in a row.
pub struct Walk {
    /// The page that was looked at last.
    page: usize,
}

impl Walk {
    /// The strings of `list`, without the null pointer at its end; of a null pointer none.
    ///
    /// # Errors
    /// `EFAULT` if the list, or a string of it, is not there to its end.
    pub fn over(list: *const *const c_char, mut each: impl FnMut(*const c_char)) -> Result<(), c_int> {
        let mut walk = Self { page: usize::MAX };
        for at in (0..).map(|index| list.wrapping_add(index)).take_while(|_| !list.is_null()) {
            if !walk.has(at.addr()) || !walk.has(at.addr() + size_of_val(&at) - 1) {
                return Err(libc::EFAULT);
            }
            // SAFETY: it is there.
            let string = unsafe { at.read_unaligned() };
            if string.is_null() {
                break;
            }
            if !walk.ends(string) {
                return Err(libc::EFAULT);
            }
            each(string);
        }
        Ok(())
    }

    /// Whether a string is there to its end.
    fn ends(&mut self, string: *const c_char) -> bool {
        (0..).map(|index| string.wrapping_add(index)).find_map(|at| match self.has(at.addr()) {
            // SAFETY: it is there.
            true => (unsafe { at.read() } == 0).then_some(true),
            false => Some(false),
        }) == Some(true)
    }

    fn has(&mut self, address: usize) -> bool {
        let page = address / LONGEST;
        let has = page == self.page || has_word(address & !(LOOK - 1));
        if has {
            self.page = page;
        }
        has
    }
}

/// Whether the [`LOOK`] bytes at an address can be loaded: the kernel loads a mask before it refuses what is to be done with it.
/// Every filter of system calls lets this one through.
fn has_word(address: usize) -> bool {
    /// To be done with the mask: nothing that there is.
    const NOTHING: c_long = -1;
    let (at, len) = (address.cast_signed() as c_long, LOOK as c_long);
    let errno = real::errno();
    // SAFETY: the kernel checks the address, and does nothing.
    let outcome = unsafe { real::syscall(libc::SYS_rt_sigprocmask, NOTHING, at, 0, len, 0, 0) };
    let there = outcome == 0 || real::errno() != libc::EFAULT;
    real::set_errno(errno);
    there
}

//! stdio on streams. glibc's own functions go past us, so a `FILE` over a stream calls our functions: one that the
//! program opens by `fdopen`, and the standard ones when a stream becomes descriptor 0, 1 or 2, as under inetd.

use super::{closing, hook, receive, send};
use crate::descriptors::table;
use crate::kernel::real;
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicU8, Ordering};
use libc::{size_t, ssize_t};

hook! {
    /// `fdopen(3)`.
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut libc::FILE |kernel| {
        match table::stream(fd) {
            // SAFETY: the program's promise to `fdopen`.
            Some(_) => unsafe { stdio(fd, mode) },
            None => kernel(),
        }
    }
}

unsafe extern "C" {
    static mut stdin: *mut libc::FILE;
    static mut stdout: *mut libc::FILE;
    static mut stderr: *mut libc::FILE;
    fn __flbf(file: *mut libc::FILE) -> c_int;
    fn __fpending(file: *mut libc::FILE) -> size_t;
    fn __fpurge(file: *mut libc::FILE);
}

/// Which of the standard files call us already, a bit each.
static REPLACED: AtomicU8 = AtomicU8::new(0);

/// `fd` is a stream now; if it is one of the first three, the file with that number calls us from here on. It does so
/// for good: our functions serve whatever has the number later.
pub fn became_stream(fd: c_int) {
    let (Ok(bit), mode) = (u8::try_from(fd), if fd == 0 { c"r" } else { c"w" }) else { return };
    if bit > 2 || REPLACED.fetch_or(1 << bit, Ordering::Relaxed) & (1 << bit) != 0 {
        return;
    }
    // SAFETY: the three variables are there to be assigned (glibc's manual), and hold open files.
    unsafe {
        let file = match bit {
            0 => &raw mut stdin,
            1 => &raw mut stdout,
            _ => &raw mut stderr,
        };
        let ours = stdio(fd, mode.as_ptr());
        if ours.is_null() {
            return;
        }
        if bit == 2 {
            libc::setvbuf(ours, core::ptr::null_mut(), libc::_IONBF, 0);
        } else if bit == 1 {
            hand_over(*file, ours);
        }
        *file = ours;
    }
}

/// Writes to `to` what was written to `from` and is not yet flushed, with the same buffering.
///
/// # Safety
/// Both are open files for output.
unsafe fn hand_over(from: *mut libc::FILE, to: *mut libc::FILE) {
    // SAFETY: the caller's promise; `pending` bytes lie at the write base, as glibc's public header has it.
    unsafe {
        if __flbf(from) != 0 {
            libc::setvbuf(to, core::ptr::null_mut(), libc::_IOLBF, 0);
        }
        let pending = __fpending(from);
        if pending > 0 {
            let base = from.cast::<u8>().add(WRITE_BASE).cast::<*const c_void>().read();
            libc::fwrite(base, 1, pending, to);
            __fpurge(from);
        }
    }
}

#[repr(C)]
struct CookieFunctions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: Option<unsafe extern "C" fn(*mut c_void, *mut i64, c_int) -> c_int>,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: CookieFunctions) -> *mut libc::FILE;
}

/// Where glibc keeps the descriptor's number in a `FILE`, bytes; so that `fileno` answers.
const FILENO: usize = 112;
/// Where glibc keeps the start of what is to be written in a `FILE`, bytes.
const WRITE_BASE: usize = 32;

unsafe fn stdio(fd: c_int, mode: *const c_char) -> *mut libc::FILE {
    let functions = CookieFunctions { read: stdio_read, write: stdio_write, seek: None, close: stdio_close };
    let cookie = usize::try_from(fd).unwrap_or(0) as *mut c_void;
    // SAFETY: `mode` is the program's; the functions take the cookie for what it is, a number.
    let file = unsafe { fopencookie(cookie, mode, functions) };
    if !file.is_null() && cfg!(all(target_env = "gnu", target_pointer_width = "64")) {
        // SAFETY: glibc's `struct _IO_FILE` has `_fileno` there, as its public header shows.
        unsafe { file.cast::<u8>().add(FILENO).cast::<c_int>().write(fd) };
    }
    file
}

unsafe extern "C" fn stdio_read(cookie: *mut c_void, buffer: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: stdio's buffer.
    unsafe { receive::read(number(cookie), buffer.cast(), len) }
}

unsafe extern "C" fn stdio_write(cookie: *mut c_void, buffer: *const c_char, len: size_t) -> ssize_t {
    // SAFETY: stdio's buffer.
    unsafe { send::write(number(cookie), buffer.cast(), len) }.max(0)
}

unsafe extern "C" fn stdio_close(cookie: *mut c_void) -> c_int {
    real::keeping_errno(|| closing::close(number(cookie)))
}

fn number(cookie: *mut c_void) -> c_int {
    c_int::try_from(cookie as usize).unwrap_or(-1)
}

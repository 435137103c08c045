//! This program and this process: its name, whose memory the tables are in, what it gave up.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crosslane_shm::lock;
use std::sync::OnceLock;

unsafe extern "C" {
    /// What glibc took from `argv[0]` at the start, without folders.
    static program_invocation_short_name: *const c_char;
}

/// The process that owns the tables.
static PID: AtomicU32 = AtomicU32::new(0);
/// Set once a system call filter is on: from then on no call may be made that a strict one forbids.
static SANDBOXED: AtomicBool = AtomicBool::new(false);

/// At load, and in the child of `fork`: this process owns the tables.
pub fn own() {
    PID.store(std::process::id(), Ordering::Relaxed);
}

/// The C library calls these at each `fork`: before it, and after it in either process.
pub fn at_fork(before: extern "C" fn(), in_parent: extern "C" fn(), in_child: extern "C" fn()) {
    // SAFETY: three functions that live as long as the library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

/// Whether we run in the process that made the tables, rather than in a child of `vfork` that borrows its memory.
pub fn is_owner() -> bool {
    PID.load(Ordering::Relaxed) == std::process::id()
}

/// Whether a system call filter is on.
pub fn sandboxed() -> bool {
    SANDBOXED.load(Ordering::Relaxed)
}

/// A system call filter comes on.
pub fn set_sandboxed() {
    lock::confine();
    SANDBOXED.store(true, Ordering::Relaxed);
}

/// Whether this program has more rights than the one that started it and chose its environment: settings from there do
/// not count then.
pub fn is_privileged() -> bool {
    // SAFETY: plain number.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// This program's name, as rules and people know it: the one that it was started by, not that of a file which several
/// names lead to (Debian's `redis-server` is a link to `redis-check-rdb`). First called at load, before the program
/// can write a title over it.
pub fn name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| invoked().or_else(executable).unwrap_or_else(|| "?".to_owned()))
}

fn invoked() -> Option<String> {
    // SAFETY: glibc sets the pointer before any library's start is called, to a C string of the program's arguments.
    let name = unsafe { program_invocation_short_name };
    if name.is_null() {
        return None;
    }
    // SAFETY: as above; it is copied before `main` can change it.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    // A login shell has a dash in front, a program that names itself a colon behind (`sshd: [accepted]`).
    let name = name.trim_start_matches('-').split([':', ' ']).next().unwrap_or_default();
    (!name.is_empty()).then(|| name.to_owned())
}

fn executable() -> Option<String> {
    Some(std::env::current_exe().ok()?.file_name()?.to_string_lossy().into_owned())
}

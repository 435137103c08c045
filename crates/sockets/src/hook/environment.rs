//! The environment of a program that is executed with streams open. Whatever environment the caller passes, the
//! variables that the library needs are added, and hidden again before the program's `main`.
//!
//! ```text
//!   CROSSLANE_INHERIT=7,300;LD_PRELOAD,CROSSLANE_SOCKET   descriptors that may be streams; variables that are there for us only
//!   CROSSLANE_GIVEN=...                                   the program's own LD_PRELOAD, where ours stands before it
//! ```
//! Where `LD_PRELOAD` names us by a plain path, children get a name that other C libraries' loaders do not find
//! ([`crosslane_client::preload`]): they would end a program that they cannot load us into.

use crate::kernel::{program, user};
use core::cell::Cell;
use core::ffi::{CStr, c_char, c_int};
use crosslane_client::preload;
use rustix::fd::RawFd;
use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::OnceLock;

const INHERIT: &str = "CROSSLANE_INHERIT";
const GIVEN: &str = "CROSSLANE_GIVEN";
const PRELOAD: &str = "LD_PRELOAD";
/// Where the daemon is; see `crosslane_client::session`.
const SOCKET: &str = "CROSSLANE_SOCKET";
/// What our file is called wherever it lies.
const LIBRARY: &str = "libcrosslane_sockets.so";

/// [`PRELOAD`] and [`SOCKET`] as they were when this program began: it may clear its environment.
static AT_START: OnceLock<[Option<OsString>; 2]> = OnceLock::new();

unsafe extern "C" {
    pub static environ: *mut *const c_char;
}

thread_local! {
    /// The environment for the next image. A child of `vfork` fills it in the memory of its parent's thread, where it is
    /// found again by the next one.
    static NEXT: Cell<Next> = Cell::default();
}

/// An environment in C's form.
#[derive(Default)]
struct Next {
    /// What of it is ours.
    texts: Vec<CString>,
    entries: Vec<*const c_char>,
}

/// At load, before the program's `main`: hides what is there for us, and returns the descriptors that may be streams.
pub fn start() -> Vec<RawFd> {
    let inherited = std::env::var(INHERIT).ok();
    let given = std::env::var_os(GIVEN);
    if !program::is_privileged()
        && let Some(careful) = std::env::var_os(PRELOAD).and_then(|list| preload::list(&list))
    {
        replace(&careful);
    }
    let _ = AT_START.set([PRELOAD, SOCKET].map(std::env::var_os));
    if inherited.is_none() && given.is_none() {
        return Vec::new();
    }
    // SAFETY: the loader runs us before the program's first thread.
    unsafe {
        std::env::remove_var(INHERIT);
        std::env::remove_var(GIVEN);
    }
    if program::is_privileged() {
        return Vec::new();
    }
    let inherited = inherited.unwrap_or_default();
    let (fds, added) = inherited.split_once(';').unwrap_or((&inherited, ""));
    for name in added.split(',').filter(|name| [PRELOAD, SOCKET].contains(name)) {
        // SAFETY: as above.
        unsafe { std::env::remove_var(name) };
    }
    if let Some(given) = given {
        // As it stands: `main` sees what it was given.
        replace(&given);
    }
    fds.split(',').filter_map(|fd| fd.parse().ok()).collect()
}

/// Another value of [`PRELOAD`], in the place where it stands: `main` may have the array's address.
fn replace(value: &OsString) {
    let Some(entry) = entry_of(PRELOAD, value.as_bytes()) else { return };
    for index in 0.. {
        // SAFETY: up to the null pointer that ends the environment, before the program's first thread.
        unsafe {
            let place = environ.add(index);
            if (*place).is_null() {
                return;
            }
            if value_of(CStr::from_ptr(*place), PRELOAD).is_some() {
                *place = CString::into_raw(entry);
                return;
            }
        }
    }
}

/// `envp` with the variables by which the new image learns of the descriptors `kept` and loads the library; valid until
/// this thread's next call. An unreadable `envp` is returned as it is, and the kernel reports the error.
pub fn with(envp: *const *const c_char, kept: &[c_int]) -> *const *const c_char {
    let mut next = Next { texts: Vec::new(), entries: NEXT.take().entries };
    if copy(&mut next.entries, envp).is_err() {
        NEXT.set(next);
        return envp;
    }
    let mut added = Vec::new();
    if !program::is_privileged() {
        next.preload(&mut added);
        let socket = AT_START.get().and_then(|[_, socket]| socket.as_ref());
        if let Some(socket) = socket.filter(|_| !next.entries.iter().any(|&entry| is(entry, SOCKET))) {
            next.append(entry_of(SOCKET, socket.as_bytes()));
            added.push(SOCKET);
        }
    }
    let fds: Vec<String> = kept.iter().map(c_int::to_string).collect();
    next.append(entry_of(INHERIT, format!("{};{}", fds.join(","), added.join(",")).as_bytes()));
    next.entries.push(core::ptr::null());
    let first = next.entries.as_ptr();
    NEXT.set(next);
    first
}

impl Next {
    fn append(&mut self, entry: Option<CString>) {
        self.entries.extend(entry.iter().map(|entry| entry.as_ptr()));
        self.texts.extend(entry);
    }

    /// Has the loader of the new image preload what this one preloaded, if we are in that list.
    fn preload(&mut self, added: &mut Vec<&'static str>) {
        let is_ours = |value: &[u8]| value.windows(LIBRARY.len()).any(|part| part == LIBRARY.as_bytes());
        let Some([Some(wanted), _]) = AT_START.get() else { return };
        if !is_ours(wanted.as_bytes()) {
            return;
        }
        let Some(place) = self.entries.iter().position(|&entry| is(entry, PRELOAD)) else {
            self.append(entry_of(PRELOAD, wanted.as_bytes()));
            added.push(PRELOAD);
            return;
        };
        // SAFETY: an environment's entries are C strings.
        let there =
            value_of(unsafe { CStr::from_ptr(self.entries[place]) }, PRELOAD).unwrap_or_default().to_vec();
        if is_ours(&there) {
            return;
        }
        if let Some(both) = entry_of(PRELOAD, &[wanted.as_bytes(), b":", &there].concat()) {
            self.entries[place] = both.as_ptr();
            self.texts.push(both);
            self.append(entry_of(GIVEN, &there));
        }
    }
}

/// All of `envp` but what is ours.
fn copy(entries: &mut Vec<*const c_char>, envp: *const *const c_char) -> Result<(), c_int> {
    entries.clear();
    user::Walk::over(envp, |entry| {
        if !is(entry, INHERIT) && !is(entry, GIVEN) {
            entries.push(entry);
        }
    })
}

/// Whether an entry is of this variable.
fn is(entry: *const c_char, name: &str) -> bool {
    // SAFETY: an environment's entries are C strings.
    value_of(unsafe { CStr::from_ptr(entry) }, name).is_some()
}

fn value_of<'a>(entry: &'a CStr, name: &str) -> Option<&'a [u8]> {
    entry.to_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

fn entry_of(name: &str, value: &[u8]) -> Option<CString> {
    CString::new(OsString::from_vec([name.as_bytes(), b"=", value].concat()).into_vec()).ok()
}

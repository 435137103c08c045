//! Programs that make system calls by themselves, past the functions that we stand for, and programs with `io_uring`.
//!
//! What such a program waits for or moves by itself cannot be a stream: it would wait for ever at a carrier socket. So
//! the code of the program and its libraries is scanned ([`scan`]) before the first connection or listener that would
//! be one. Decision 27 says what follows from what is found, and what it costs.
//!
//! ```text
//!   waits, accepts, sends or receives by itself   all its connections are TCP
//!   may have rings (liburing, or it made one)     TCP, but for listeners that it waits for by poll, select or epoll:
//!                                                 whoever does that does not have its sockets in a ring
//!   neither                                       streams
//! ```

mod decode;
mod scan;

use crate::daemon::{process, rules};
use crate::descriptors::table::{self, Kind};
use crate::kernel::loaded::{self, Object};
use crate::kernel::{program, real, said, thread};
use crate::socket::listener;
use core::ffi::{c_int, c_long};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use crosslane_client::session::{FILES, OWN_CALLS_VARIABLE};
use crosslane_shm::lock::Locked;
use scan::{Number, REACH};
use std::sync::OnceLock;

/// Libraries that stand where the calls are made, or that make them for files of their own.
const LEFT_OUT: [&str; 12] = [
    "libc.so",
    "ld-linux",
    "linux-vdso",
    "libpthread.so",
    "librt.so",
    "libcrosslane_",
    "libasan.so",
    "libtsan.so",
    "liblsan.so",
    "libubsan.so",
    "libhwasan.so",
    "libmsan.so",
];
/// The variable by which libuv uses rings: it works without them, and would put streams into them.
const LIBUV: &[u8] = b"UV_USE_IO_URING";

/// Calls that wait for sockets, or that only sockets know, and their names.
const WAITS: [(c_long, &str); 17] = [
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_poll, "poll"),
    (libc::SYS_ppoll, "ppoll"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_select, "select"),
    (libc::SYS_pselect6, "pselect6"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_epoll_wait, "epoll_wait"),
    (libc::SYS_epoll_pwait, "epoll_pwait"),
    (libc::SYS_epoll_pwait2, "epoll_pwait2"),
    (libc::SYS_accept, "accept"),
    (libc::SYS_accept4, "accept4"),
    (libc::SYS_recvfrom, "recvfrom"),
    (libc::SYS_recvmsg, "recvmsg"),
    (libc::SYS_recvmmsg, "recvmmsg"),
    (libc::SYS_sendto, "sendto"),
    (libc::SYS_sendmsg, "sendmsg"),
    (libc::SYS_sendmmsg, "sendmmsg"),
    (libc::SYS_splice, "splice"),
    (libc::SYS_sendfile, "sendfile"),
];
/// Calls that move bytes of any descriptor...
const MOVES: [(c_long, &str); 4] = [
    (libc::SYS_read, "read"),
    (libc::SYS_write, "write"),
    (libc::SYS_readv, "readv"),
    (libc::SYS_writev, "writev"),
];
/// ...which are for descriptors of their own where these are made too.
const MAKES: [c_long; 7] = [
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_pipe2,
    libc::SYS_eventfd2,
    libc::SYS_memfd_create,
    libc::SYS_timerfd_create,
    libc::SYS_signalfd4,
];
const RINGS: [c_long; 2] = [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter];

/// What is known of this program, worst last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
enum Verdict {
    /// It calls the C library.
    #[default]
    Followed = 1,
    /// It may have rings.
    Rings = 2,
    /// It makes calls by itself.
    Own = 3,
}

/// What was found in one object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Found {
    /// A call that waits for sockets, or moves what may be theirs.
    call: Option<&'static str>,
    rings: bool,
}

/// Objects that were looked through, by their places.
static SEEN: Locked<Vec<(usize, usize)>> = Locked::new(Vec::new());
/// How many objects had been loaded then, and 1; 0 before the first look.
static LOADED: AtomicU64 = AtomicU64::new(0);
static VERDICT: AtomicU32 = AtomicU32::new(Verdict::Followed as u32);
/// This program has waited for a listener by a call that is followed.
static WAITED: AtomicBool = AtomicBool::new(false);
static SAID: AtomicBool = AtomicBool::new(false);
static FOR_FILES: OnceLock<bool> = OnceLock::new();

/// At load: a program may clear its environment.
pub fn start() {
    let _ = FOR_FILES.set(
        !program::is_privileged() && std::env::var_os(OWN_CALLS_VARIABLE).is_some_and(|value| value == FILES),
    );
}

/// In the child of `fork` the lock is free.
pub fn forked_child() {
    SEEN.reset();
}

/// Whether a connection that could be a stream has to stay TCP.
pub fn keep_plain() -> bool {
    match verdict() {
        Verdict::Followed => false,
        Verdict::Rings => !WAITED.load(Relaxed),
        Verdict::Own => true,
    }
}

/// Whether the listener `fd` must stay TCP, at least for now. Records that as the reason for its connections.
pub fn keep_listener_plain(fd: c_int) -> bool {
    let kept = verdict() != Verdict::Followed;
    if kept {
        table::enter(fd, Kind::Shy, 0);
    }
    kept
}

/// Whether listeners that are TCP here may be known to the daemon by another descriptor, or by another process.
pub fn may_have_listeners() -> bool {
    verdict() == Verdict::Rings
}

/// The program waits for `fd`, a listener that is TCP for now, by poll, select or epoll.
#[cold]
pub fn waited_for(fd: c_int) {
    if verdict() == Verdict::Rings {
        let errno = real::errno();
        WAITED.store(true, Relaxed);
        listener::register(fd);
        real::set_errno(errno);
    }
}

/// Whether a ring that the program asks for is refused, as by a kernel without rings: streams could be in it, or libuv asks.
pub fn refuses_ring() -> bool {
    let wants_streams = || process::welcome().is_some_and(|welcome| rules::may_have_streams(&welcome.rules));
    if is_for_files() || !process::connected() || !wants_streams() {
        return false;
    }
    table::entries().any(|(_, entry)| matches!(entry.kind, Kind::Stream | Kind::Unknown)) || has_libuv()
}

/// The program has made a ring: its connections are TCP from now on, and its listeners.
pub fn made_ring() {
    if is_for_files() {
        return;
    }
    VERDICT.fetch_max(Verdict::Rings as u32, Relaxed);
    take_listeners_back();
}

/// Before an `accept`: libraries loaded since the listener was registered may make their own calls.
pub fn before_accept() {
    let _ = verdict();
}

/// Withdraws all listeners: they get no more connections that are streams.
fn take_listeners_back() {
    for (fd, _) in table::entries().filter(|(_, entry)| entry.kind == Kind::Listener) {
        listener::unlisten(fd);
        table::enter(fd, Kind::Shy, 0);
    }
}

fn is_for_files() -> bool {
    FOR_FILES.get().copied().unwrap_or(false)
}

fn verdict() -> Verdict {
    if is_for_files() {
        return Verdict::Followed;
    }
    if LOADED.load(Relaxed) != loaded::count() + 1 {
        look();
    }
    let verdict = match VERDICT.load(Relaxed) {
        1 => Verdict::Followed,
        2 => Verdict::Rings,
        _ => Verdict::Own,
    };
    if verdict == Verdict::Rings {
        say(
            "may put its sockets into io_uring, which streams cannot be in; using TCP, but for listeners that it waits for by poll, select or epoll",
        );
    }
    verdict
}

/// Looks through the objects that are new.
#[cold]
fn look() {
    let before = VERDICT.load(Relaxed);
    look_at_new_objects();
    if VERDICT.load(Relaxed) > before {
        take_listeners_back();
    }
}

fn look_at_new_objects() {
    let _ = SEEN.with(thread::tid(), |seen| {
        let loaded = loaded::count();
        let this = look as fn() as usize;
        for object in loaded::all() {
            let Some(place) = object.place().filter(|place| !seen.contains(place)) else { continue };
            seen.push(place);
            if !object.has(this) && !LEFT_OUT.iter().any(|name| object.name().starts_with(name)) {
                judge(&object);
            }
        }
        LOADED.store(loaded + 1, Relaxed);
    });
}

fn judge(object: &Object) {
    let found = found(|each| object.code(REACH, |bytes, known| scan::calls(bytes, known, &mut *each)));
    if let Some(call) = found.call {
        VERDICT.fetch_max(Verdict::Own as u32, Relaxed);
        let place = if object.path.is_empty() { "the program" } else { object.name() };
        say(&format!(
            "makes system calls of its own ({call}, in {place}), which streams cannot follow; using TCP"
        ));
    } else if found.rings {
        VERDICT.fetch_max(Verdict::Rings as u32, Relaxed);
    }
}

/// Judges an object's calls, which `calls` passes one by one.
fn found(calls: impl FnOnce(&mut dyn FnMut(Number) -> bool)) -> Found {
    let named = |list: &[(c_long, &'static str)], number| {
        list.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
    };
    let (mut found, mut moves, mut makes) = (Found::default(), None, false);
    calls(&mut |number| {
        match number {
            Number::Any => found.call = Some("any"),
            Number::Is(number) => {
                let number = c_long::from(number);
                found.call = found.call.or_else(|| named(&WAITS, number));
                moves = moves.or_else(|| named(&MOVES, number));
                makes |= MAKES.contains(&number);
                found.rings |= RINGS.contains(&number);
            }
            Number::Unknown => {}
        }
        found.call.is_none()
    });
    found.call = found.call.or(moves.filter(|_| !makes));
    found
}

fn has_libuv() -> bool {
    let this = look as fn() as usize;
    loaded::has_function(c"uv_loop_init")
        || loaded::all().iter().any(|object| !object.has(this) && object.says(LIBUV))
}

/// One line, once in a program.
fn say(what: &str) {
    if !SAID.swap(true, Relaxed) {
        said::say(&format!("{what} ({OWN_CALLS_VARIABLE}={FILES} if those are for files only)"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(numbers: &[c_long]) -> Found {
        let numbers = numbers.iter().map(|&number| Number::Is(u32::try_from(number).unwrap()));
        found(|each| {
            let _ = numbers.clone().all(each);
        })
    }

    #[test]
    fn own_calls_decide_what_is_supported() {
        let none = Found::default();
        assert_eq!(of(&[]), none);
        assert_eq!(of(&[libc::SYS_futex, libc::SYS_mmap]), none);
        assert_eq!(of(&[libc::SYS_read, libc::SYS_openat, libc::SYS_write]), none);
        assert_eq!(of(&[libc::SYS_futex, libc::SYS_read]), Found { call: Some("read"), rings: false });
        assert_eq!(of(&[libc::SYS_openat, libc::SYS_epoll_pwait2]).call, Some("epoll_pwait2"));
        assert_eq!(of(&[libc::SYS_io_uring_setup, libc::SYS_mmap]), Found { call: None, rings: true });
        assert_eq!(found(|each| assert!(!each(Number::Any))).call, Some("any"));
        assert_eq!(found(|each| assert!(each(Number::Unknown))), none);
    }

    #[test]
    fn own_calls_are_in_the_c_library_and_not_in_this_program() {
        assert!(loaded::count() >= 2);
        let all = loaded::all();
        let this = own_calls_are_in_the_c_library_and_not_in_this_program as fn();
        let (mut libc, mut program) = (Vec::new(), Vec::new());
        for object in &all {
            let place = if object.name() == "libc.so.6" { &mut libc } else { &mut program };
            if object.name() == "libc.so.6" || object.has(this as usize) {
                let mut push = |number| {
                    place.push(number);
                    true
                };
                object.code(REACH, |bytes, known| scan::calls(bytes, known, &mut push));
            }
        }
        for number in [libc::SYS_epoll_pwait, libc::SYS_accept4, libc::SYS_recvfrom, libc::SYS_ppoll] {
            let number = u32::try_from(number).unwrap();
            assert!(libc.contains(&Number::Is(number)), "{number} is not among {libc:?}");
        }
        assert!(!program.contains(&Number::Any), "{program:?}");
    }
}

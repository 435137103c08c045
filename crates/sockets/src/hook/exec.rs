//! `exec`: streams that the new program inherits are found again there; and what else ends the library's sight.
//!
//! The new image looks which of its descriptors are TCP sockets, and asks the daemon at their first use
//! (`Request::Adopt`), in a session of its own. Nothing of the old one goes along, so nobody can speak in its name: the daemon
//! keeps an end as long as the kernel says that a process holds its connection. The numbers of descriptors that are too high to
//! be looked for come by the environment, and with them what the library needs to be there at all ([`environment`]). Children by
//! `posix_spawn`, `system`, `popen` and `vfork` run no handlers of `fork`, so nobody counts what they hold: streams are
//! lent to them ([`end_of_life::lent`]).

use super::environment::{self, environ};
use super::hook;
use crate::descriptors::table::{self, Entry, Held, Kind};
use crate::kernel::{fault, program, real, sockopt};
use crate::socket::end_of_life;
use crate::waiting::epoll;
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use libc::pid_t;
use rustix::fd::RawFd;

/// Descriptors below this are looked at when a program starts.
const LOOKED_AT: RawFd = 256;

hook! {
    /// `execve(2)`.
    fn execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
        // SAFETY: the program's promise to `execve`.
        leaving(envp, |envp| unsafe { real::execve(path, argv, envp) })
    }

    /// `execv(3)`.
    fn execv(path: *const c_char, argv: *const *const c_char) -> c_int {
        // SAFETY: the program's promise to `execv`.
        unsafe { leaving(environ.cast(), |envp| real::execve(path, argv, envp)) }
    }

    /// `execvp(3)`.
    fn execvp(file: *const c_char, argv: *const *const c_char) -> c_int {
        // SAFETY: the program's promise to `execvp`.
        unsafe { leaving(environ.cast(), |envp| real::execvpe(file, argv, envp)) }
    }

    /// `execvpe(3)`.
    fn execvpe(file: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
        // SAFETY: the program's promise to `execvpe`.
        leaving(envp, |envp| unsafe { real::execvpe(file, argv, envp) })
    }

    /// `fexecve(3)`.
    fn fexecve(fd: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
        // SAFETY: the program's promise to `fexecve`.
        leaving(envp, |envp| unsafe { real::fexecve(fd, argv, envp) })
    }

    /// `execveat(2)`.
    fn execveat(at: c_int, path: *const c_char, argv: *const *const c_char, envp: *const *const c_char, flags: c_int) -> c_int {
        // SAFETY: the program's promise to `execveat`.
        leaving(envp, |envp| unsafe { real::execveat(at, path, argv, envp, flags) })
    }

    /// `posix_spawn(3)`.
    fn posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
        // SAFETY: the program's promise to `posix_spawn`.
        spawning(envp, |envp| unsafe { real::posix_spawn(pid, path, actions, attributes, argv, envp) })
    }

    /// `posix_spawnp(3)`.
    fn posix_spawnp(pid: *mut pid_t, file: *const c_char, actions: *const c_void, attributes: *const c_void, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
        // SAFETY: the program's promise to `posix_spawnp`.
        spawning(envp, |envp| unsafe { real::posix_spawnp(pid, file, actions, attributes, argv, envp) })
    }

    /// `posix_spawn_file_actions_adddup2(3)`: a child will have this descriptor, even if its flags say close-on-exec.
    fn posix_spawn_file_actions_adddup2(actions: *mut c_void, fd: c_int, to: c_int) -> c_int |kernel| {
        if let Some(end) = table::stream(fd) {
            end_of_life::lent(&end);
            epoll::shared();
            LENT.store(true, Relaxed);
        }
        kernel()
    }

    /// `system(3)`.
    fn system(command: *const c_char) -> c_int |kernel| {
        lend(&inheritance().0);
        fault::executing(kernel)
    }

    /// `popen(3)`.
    fn popen(command: *const c_char, mode: *const c_char) -> *mut libc::FILE |kernel| {
        lend(&inheritance().0);
        fault::executing(kernel)
    }
}

/// At load: which descriptors may be streams; and stdio over those that are.
pub fn resume() {
    let inherited = environment::start();
    open_descriptors().for_each(suspect);
    for fd in 0..3 {
        if table::stream(fd).is_some() {
            super::stdio::became_stream(fd);
        }
    }
    inherited.into_iter().for_each(suspect);
}

/// The open ones among the first descriptors, found by one system call.
fn open_descriptors() -> impl Iterator<Item = RawFd> {
    let mut fds: Vec<libc::pollfd> =
        (0..LOOKED_AT).map(|fd| libc::pollfd { fd, events: 0, revents: 0 }).collect();
    // SAFETY: an array of its own length. Fails beyond the limit on descriptors: then there are only few.
    if unsafe { real::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, 0) } < 0 {
        fds.truncate(3);
    }
    fds.into_iter().filter(|fd| fd.revents & libc::POLLNVAL == 0).map(|fd| fd.fd)
}

fn suspect(fd: RawFd) {
    if sockopt::is_tcp(fd) {
        table::enter(fd, Kind::Unknown, 0);
    }
}

/// Calls `exec` with the environment that the new image needs; restores what was given up if it fails.
fn leaving(envp: *const *const c_char, exec: impl FnOnce(*const *const c_char) -> c_int) -> c_int {
    let exec = |envp| fault::executing(|| exec(envp));
    let (kept, lost) = inheritance();
    if kept.is_empty() && lost.is_empty() {
        return exec(envp);
    }
    if !program::is_owner() {
        // A child of `vfork`: the tables are its parent's, but its descriptors are its own.
        lend(&kept);
        let environment = environment::with(envp, &kept);
        drop((kept, lost));
        return exec(environment);
    }
    lost.iter().for_each(end_of_life::unreferred);
    let environment = environment::with(envp, &kept);
    let outcome = exec(environment);
    let errno = real::errno();
    lost.iter().for_each(end_of_life::referred);
    real::set_errno(errno);
    outcome
}

/// Calls `spawn`, which makes a child that runs another program, with the environment that this one needs.
fn spawning(envp: *const *const c_char, spawn: impl FnOnce(*const *const c_char) -> c_int) -> c_int {
    let spawn = |envp| fault::executing(|| spawn(envp));
    let (kept, _) = inheritance();
    let asked_for = LENT.swap(false, Relaxed);
    if kept.is_empty() && !asked_for || !program::is_owner() {
        return spawn(envp);
    }
    lend(&kept);
    spawn(environment::with(envp, &kept))
}

/// A stream was lent to a child by an action, whatever its descriptor's flags say.
static LENT: AtomicBool = AtomicBool::new(false);

/// Streams behind `kept` get holders that nobody counts.
fn lend(kept: &[c_int]) {
    for &fd in kept {
        if let Some(Entry { kind: Kind::Stream, index }) = table::look(fd)
            && let Some(end) = table::at(index)
        {
            end_of_life::lent(&end);
            epoll::shared();
        }
    }
}

/// Descriptors that the new image will have and that may be streams or listeners there, and the streams whose
/// descriptors exec closes.
fn inheritance() -> (Vec<c_int>, Vec<Held>) {
    let (mut kept, mut lost) = (Vec::new(), Vec::new());
    for (fd, entry) in table::entries() {
        if !matches!(entry.kind, Kind::Stream | Kind::Unknown | Kind::Listener) {
            continue;
        }
        // SAFETY: F_GETFD takes no argument.
        let flags = unsafe { real::fcntl(fd, libc::F_GETFD, core::ptr::null_mut()) };
        if flags >= 0 && flags & libc::FD_CLOEXEC == 0 {
            kept.push(fd);
        } else if entry.kind == Kind::Stream {
            lost.extend(table::at(entry.index));
        }
    }
    (kept, lost)
}

//! `fork`: each stream gets one more holder, and the child a library of its own.
//!
//! The C library's handlers are used, since it forks by itself too (`daemon`, `forkpty`). Our locks are taken before,
//! so that no other thread is in the middle of a change that the child would inherit half done.

use crate::daemon::{offload_session, process, waiters};
use crate::descriptors::internal_fds;
use crate::descriptors::table::{self, Held};
use crate::kernel::{fault, program, real, thread};
use crate::socket::{deferral, end_of_life, own_calls};
use crate::waiting::{epoll, fd_limit};
use core::cell::RefCell;
use core::mem::ManuallyDrop;
use crosslane_client::buffers::far;
use crosslane_client::link::Spinner;
use crosslane_shm::buffer;
use crosslane_shm::lock::{self, Guard};
use std::collections::BTreeMap;

/// State that the handlers of one `fork` share.
struct Forking {
    streams: Vec<Held>,
    guards: Vec<Guard<'static>>,
}

thread_local! {
    static FORKING: RefCell<Option<ManuallyDrop<Forking>>> = const { RefCell::new(None) };
    /// Streams of the last `fork` that this thread made through our hook.
    static LAST: RefCell<Option<Vec<Held>>> = const { RefCell::new(None) };
}

/// At load: the C library calls us at each `fork`.
pub fn start() {
    program::at_fork(before, in_parent, in_child);
}

/// Called by our hook before `fork`; the hook passes the outcome to [`ended`].
pub fn begins() {
    let _ = LAST.try_with(|last| *last.borrow_mut() = Some(Vec::new()));
}

/// The `fork` announced by [`begins`] returned in the parent.
pub fn ended(failed: bool) {
    let streams = LAST.try_with(|last| last.borrow_mut().take()).ok().flatten().unwrap_or_default();
    if failed {
        streams.iter().for_each(end_of_life::unreferred);
    }
}

/// Wraps a `fork` that calls no handlers. It returns 0 in the child, and a negative value on failure. A child that
/// starts elsewhere calls [`in_child`] itself.
pub fn around<T: Copy + Default + PartialOrd>(fork: impl FnOnce() -> T) -> T {
    begins();
    before();
    let pid = fork();
    if pid == T::default() {
        in_child();
    } else {
        let errno = real::errno();
        in_parent();
        ended(pid < T::default());
        real::set_errno(errno);
    }
    pid
}

extern "C" fn before() {
    buffer::before_fork();
    let mut guards = epoll::before_fork();
    guards.extend(far::before_fork(thread::tid()));
    guards.extend(waiters::before_fork());
    guards.extend(process::before_fork());
    let streams = table::streams();
    streams.iter().for_each(end_of_life::referred);
    let forking = ManuallyDrop::new(Forking { streams, guards });
    let _ = FORKING.try_with(|cell| *cell.borrow_mut() = Some(forking));
}

extern "C" fn in_parent() {
    buffer::after_fork_in_parent();
    let Some(forking) = take() else { return };
    let Forking { streams, guards } = ManuallyDrop::into_inner(forking);
    drop(guards);
    let _ = LAST.try_with(|last| {
        if let Some(last) = last.borrow_mut().as_mut() {
            *last = streams;
        }
    });
}

/// Runs in the child of a `fork`. The guards are the parent's: the locks are made anew here.
pub extern "C" fn in_child() {
    process::after_fork();
    lock::after_fork();
    fault::after_fork();
    buffer::after_fork_in_child();
    far::after_fork();
    waiters::after_fork();
    epoll::forked_child();
    deferral::forked_child();
    own_calls::forked_child();
    fd_limit::after_fork();
    offload_session::after_fork();
    Spinner::forget_all();
    let _ = LAST.try_with(|last| last.borrow_mut().take());
    if let Some(forking) = take() {
        let Forking { streams, guards } = ManuallyDrop::into_inner(forking);
        guards.into_iter().for_each(core::mem::forget);
        correct(&streams);
    }
    table::forked(internal_fds::close);
}

fn take() -> Option<ManuallyDrop<Forking>> {
    FORKING.try_with(|cell| cell.borrow_mut().take()).ok().flatten()
}

/// Other threads of the parent may have opened or closed descriptors between our count and the `fork`.
fn correct(counted: &[Held]) {
    let mut difference: BTreeMap<u32, (i32, Option<Held>)> = BTreeMap::new();
    let present = table::streams();
    for (held, by) in present.iter().map(|held| (held, 1)).chain(counted.iter().map(|held| (held, -1))) {
        let entry = difference.entry(held.index).or_insert((0, None));
        entry.0 += by;
        entry.1 = Some(held.clone());
    }
    for (by, held) in difference.into_values() {
        let Some(held) = held else { continue };
        (0..by).for_each(|_| end_of_life::referred(&held));
        (by..0).for_each(|_| end_of_life::unreferred(&held));
    }
}

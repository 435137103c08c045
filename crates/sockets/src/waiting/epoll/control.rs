//! `epoll_ctl`, with the kernel's errors.

use super::candidate::{self, Candidate};
use super::interest;
use super::registry;
use super::set::{Set, State};
use crate::descriptors::table::{self, Held, Kind};
use crate::kernel::{polling, real, sockopt};
use crate::socket::own_calls;
use core::ffi::c_int;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, epoll_event};

const EXCLUSIVE: c_int = libc::EPOLLEXCLUSIVE;
/// What may come with `EPOLLEXCLUSIVE`.
const WITH_EXCLUSIVE: u32 = (EXCLUSIVE
    | libc::EPOLLIN
    | libc::EPOLLOUT
    | libc::EPOLLERR
    | libc::EPOLLHUP
    | libc::EPOLLWAKEUP
    | libc::EPOLLET)
    .cast_unsigned();

/// `epoll_ctl`: `event` is the program's, or the error number if it is not there, and `kernel` makes the kernel's call.
pub fn control(
    epfd: c_int,
    operation: c_int,
    fd: c_int,
    event: impl Fn() -> Result<epoll_event, c_int>,
    kernel: impl Fn() -> c_int,
) -> c_int {
    match table::look(fd).map(|entry| entry.kind) {
        Some(Kind::Stream | Kind::Unknown) => match table::stream(fd) {
            Some(held) if operation == EPOLL_CTL_DEL => stream(epfd, operation, fd, &held, None, kernel),
            // It is looked at before anything else.
            Some(held) => match event() {
                Ok(wanted) => stream(epfd, operation, fd, &held, Some(&wanted), kernel),
                Err(errno) => real::fail(errno),
            },
            None => kernel(),
        },
        Some(Kind::Epoll) => {
            if operation != EPOLL_CTL_DEL {
                // What is ready now counts, whatever of it is asked for.
                super::show(fd);
            }
            nested(epfd, operation, fd, kernel())
        }
        None | Some(Kind::Sdp | Kind::Chosen) => plain(epfd, operation, fd, event, kernel()),
        Some(Kind::Shy) => {
            own_calls::waited_for(fd);
            kernel()
        }
        Some(_) => kernel(),
    }
}

/// A socket in the kernel's part has become a stream.
pub fn move_over(fd: c_int, held: &Held, candidate: &Candidate) {
    let Candidate { epfd, wanted } = *candidate;
    // It fails if the kernel removed the socket by itself: it was closed meanwhile.
    if polling::remove(epfd, fd).is_err() {
        return;
    }
    if let Some(set) = registry::of(epfd) {
        let _ = change(set, epfd, |state| add(set, state, epfd, fd, held, &wanted));
    }
}

fn stream(
    epfd: c_int,
    operation: c_int,
    fd: c_int,
    held: &Held,
    wanted: Option<&epoll_event>,
    kernel: impl Fn() -> c_int,
) -> c_int {
    let Some(set) = registry::of(epfd) else {
        return if operation == EPOLL_CTL_ADD && wanted.is_some() {
            in_unknown_set(epfd, fd, held, wanted)
        } else {
            kernel()
        };
    };
    let outcome = change(set, epfd, |state| {
        state.revive(fd, held);
        match (operation, wanted) {
            (EPOLL_CTL_ADD, Some(wanted)) => add(set, state, epfd, fd, held, wanted).map(|()| true),
            (EPOLL_CTL_MOD, Some(wanted)) => modify(state, fd, wanted),
            (EPOLL_CTL_DEL, _) if state.find(fd).is_some() => {
                state.remove(fd);
                Ok(true)
            }
            _ => Ok(false),
        }
    });
    match outcome {
        Ok(true) => 0,
        Ok(false) => kernel(),
        Err(errno) => real::fail(errno),
    }
}

/// A set whose creation we have not seen: it came by exec or from another process.
fn in_unknown_set(epfd: c_int, fd: c_int, held: &Held, wanted: Option<&epoll_event>) -> c_int {
    // A set that does not hold the stream says ENOENT, anything else says what it is.
    match polling::control(epfd, EPOLL_CTL_MOD, fd, epoll_event { events: 0, u64: 0 }) {
        Ok(()) => return real::fail(libc::EEXIST),
        Err(libc::ENOENT) => {}
        Err(errno) => return real::fail(errno),
    }
    let (Some(set), Some(wanted)) = (registry::create(epfd), wanted) else { return real::fail(libc::ENOMEM) };
    set.looks();
    change(set, epfd, |state| add(set, state, epfd, fd, held, wanted)).map_or_else(real::fail, |()| 0)
}

fn add(
    set: &Set,
    state: &mut State,
    epfd: c_int,
    fd: c_int,
    held: &Held,
    wanted: &epoll_event,
) -> Result<(), c_int> {
    if wanted.events & EXCLUSIVE.unsigned_abs() != 0 && wanted.events & !WITH_EXCLUSIVE != 0 {
        return Err(libc::EINVAL);
    }
    let place = state.place_of(fd);
    if state.is_in(place) {
        return Err(libc::EEXIST);
    }
    // Many sets live for one wait only, for which the rings suffice: they need no wakeup set.
    if set.is_looked_at() || state.wakeup_set.is_some() || !interest::is_in_rings(held, wanted) {
        state.make_wakeup_set(epfd)?;
    }
    state.insert(place, fd, held, wanted)
}

/// `Ok(false)`: not ours, the kernel knows the error.
fn modify(state: &mut State, fd: c_int, wanted: &epoll_event) -> Result<bool, c_int> {
    let inner = state.inner();
    if wanted.events & EXCLUSIVE.unsigned_abs() != 0 {
        return Err(libc::EINVAL);
    }
    match state.find(fd) {
        None => Ok(false),
        Some(interest) if interest.is_exclusive() => Err(libc::EINVAL),
        Some(interest) => {
            interest.modify(wanted, inner);
            Ok(true)
        }
    }
}

/// Changes the interests; a thread that sleeps in the set looks again.
fn change<T>(set: &Set, epfd: c_int, work: impl FnOnce(&mut State) -> Result<T, c_int>) -> Result<T, c_int> {
    let outcome = set.with(|state| {
        let was_shadowed = set.is_shadowed();
        let outcome = work(state);
        set.count(state);
        if set.is_shadowed() && if was_shadowed { set.take_locked_look() } else { set.take_look() } {
            let _ = state.make_wakeup_set(epfd);
            state.kick();
        }
        set.kick(state);
        outcome
    });
    outcome.unwrap_or(Err(libc::ENOMEM))
}

fn nested(epfd: c_int, operation: c_int, fd: c_int, outcome: c_int) -> c_int {
    if outcome == 0
        && let (Some(outer), Some(inside)) = (registry::of(epfd), registry::of(fd))
    {
        let _ = change(outer, epfd, |state| {
            match operation {
                EPOLL_CTL_ADD => state.nest(fd, inside),
                EPOLL_CTL_DEL => state.unnest(fd),
                _ => {}
            }
            Ok(())
        });
    }
    outcome
}

/// After the kernel's call for a descriptor that is nothing to us yet: a fresh TCP socket may become a stream.
fn plain(
    epfd: c_int,
    operation: c_int,
    fd: c_int,
    event: impl Fn() -> Result<epoll_event, c_int>,
    outcome: c_int,
) -> c_int {
    if outcome != 0 || registry::of(epfd).is_none() {
        return outcome;
    }
    let note = |keep: fn(c_int, Candidate)| {
        if let Ok(wanted) = event() {
            keep(fd, Candidate { epfd, wanted });
        }
    };
    match operation {
        EPOLL_CTL_ADD if sockopt::is_fresh_tcp(fd) => note(candidate::note),
        EPOLL_CTL_MOD => note(candidate::changed),
        EPOLL_CTL_DEL => candidate::removed(fd, epfd),
        _ => {}
    }
    outcome
}

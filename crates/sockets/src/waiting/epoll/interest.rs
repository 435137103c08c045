//! One stream in one set: what the program wants to know of it, and what was reported.

use super::bits::{ALWAYS, ERR, ET, HUP, IN, ONESHOT, OUT, PRI, QUIET, RDHUP, bit};
use super::cold::Looked;
use crate::descriptors::table::{self, Held};
use crate::kernel::thread::tid;
use crate::waiting::wait;
use core::ffi::c_int;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use crosslane_client::ready::Seen;
use crosslane_client::{End, Ready};
use crosslane_shm::arm::Armed;
use crosslane_stream::Direction;
use crosslane_wire::WaiterId;
use libc::epoll_event;
use rustix::fd::RawFd;
use std::time::Instant;

/// An interest.
pub struct Interest {
    /// The descriptor by which the inner set knows the stream.
    pub(super) carrier: c_int,
    /// Whether that is a duplicate of our own.
    pub(super) is_duplicate: bool,
    /// Tells it from others that were in the same place before.
    pub(super) key: u64,
    pub(super) held: Held,
    pub(super) wanted: u32,
    data: u64,
    /// The events that the inner set was asked for.
    pub(super) asked: u32,
    /// The kernel's events that are not yet reported.
    pub(super) kernel: u32,
    /// Nothing is reported: a one-shot that fired, or removed by the program.
    pub(super) asleep: bool,
    /// Removed by the program. The carrier socket stays in the inner set, so that adding it again needs no system call:
    /// some programs do both for each message.
    out: bool,
    /// Added or modified: whatever is ready now is news.
    pub(super) fresh: bool,
    /// Something arrived that is not yet reported (edge-triggered).
    edge: bool,
    /// Up to where arrivals were seen.
    seen: Option<Seen>,
    /// Sends without room that were answered by `EPOLLOUT`.
    blocked: u32,
    /// Receives that another process kept from the ring, and that were answered by `EPOLLIN`.
    missed: u32,
    /// Readiness at the last look.
    last: u32,
    /// Where the reader was when the far side was asked for a wake, which it rings once.
    armed: Option<(u32, u64)>,
    armed_room: bool,
    /// The generation of the circuit in which room was last asked for, unless a wake came since.
    asked_room: Option<u32>,
    /// When there was news, or the stream was not to become cold, in time of looks.
    pub(super) since: Looked,
}

impl Interest {
    /// A new interest, which is not yet in the inner set.
    pub fn new(fd: c_int, held: Held, key: u64, wanted: &epoll_event) -> Self {
        // A connection that is made by now is reported with all others, not after them as the kernel's news.
        wait::is_connected(fd, &held);
        let blocked = held.shared().sending.blocked.load(Relaxed);
        let missed = held.shared().receiving.missed.load(Relaxed);
        Self {
            carrier: fd,
            is_duplicate: false,
            key,
            held,
            wanted: wanted.events,
            data: wanted.u64,
            asked: 0,
            kernel: 0,
            asleep: false,
            out: false,
            fresh: true,
            edge: false,
            seen: None,
            blocked,
            missed,
            last: 0,
            armed: None,
            armed_room: false,
            asked_room: None,
            since: Looked::default(),
        }
    }

    /// Whether the inner set knows its stream by the program's descriptor `fd`.
    pub fn goes_by(&self, fd: c_int) -> bool {
        self.carrier == fd && !self.is_duplicate
    }

    /// The place of its stream in the table of ends.
    pub fn stream(&self) -> u32 {
        self.held.index
    }

    /// Whether its events carry this key.
    pub fn has_key(&self, key: u64) -> bool {
        self.key == key
    }

    /// The stream.
    pub fn end(&self) -> &Held {
        &self.held
    }

    /// The event for the program.
    pub fn event(&self, events: u32) -> epoll_event {
        epoll_event { events, u64: self.data }
    }

    /// Whether it was added with `EPOLLEXCLUSIVE`, which cannot be modified.
    pub fn is_exclusive(&self) -> bool {
        self.wanted & bit(libc::EPOLLEXCLUSIVE) != 0
    }

    /// Whether the program took it out.
    pub fn is_out(&self) -> bool {
        self.out
    }

    /// `EPOLL_CTL_DEL`.
    pub fn take_out(&mut self, inner: RawFd, waiter: Option<WaiterId>) {
        self.out = true;
        self.asleep = true;
        if self.asked != QUIET {
            self.ask_kernel(inner);
        }
        if let Some(waiter) = waiter {
            self.disarm(waiter);
        }
    }

    /// `EPOLL_CTL_ADD` of what was taken out.
    pub fn put_back(&mut self, wanted: &epoll_event, inner: RawFd) {
        self.out = false;
        self.kernel &= HUP;
        self.last = 0;
        self.edge = false;
        self.modify(wanted, inner);
    }

    /// `EPOLL_CTL_MOD`: wants something else, and edges are new again.
    pub fn modify(&mut self, wanted: &epoll_event, inner: RawFd) {
        self.wanted = wanted.events;
        self.data = wanted.u64;
        self.asleep = false;
        self.fresh = true;
        self.ask_kernel(inner);
    }

    /// In the child of `fork`: wakes and the inner set are the parent's.
    pub fn forget_parent(&mut self) {
        self.armed = None;
        self.armed_room = false;
        self.asked_room = None;
    }

    /// A wake has named it: the far side must be asked again.
    pub fn named(&mut self) {
        self.armed = None;
        self.asked_room = None;
    }

    /// Asks the far side for wakes and looks once more: `true` if nothing is there, so that it rings by name for whatever comes from
    /// now on. See [`super::cold`].
    pub fn cool(&mut self, waiter: WaiterId, again: bool, requests: &mut Armed<Instant>) -> bool {
        if self.asleep {
            return true;
        }
        let may = self.held.in_flight_ns() == 0
            && self.held.twin().is_none()
            && is_receiving(&self.held)
            && self.held.shared().counters.refs.load(Relaxed) <= table::descriptors(&self.held);
        may && self.arm(waiter, again, requests) && self.is_idle()
    }

    /// The events to report now; 0 is none. One load or two if nothing happened.
    #[inline]
    pub fn take(&mut self, inner: RawFd, tid: u32) -> u32 {
        if self.asleep || self.is_idle() { 0 } else { self.look(inner, tid, true) }
    }

    /// As [`take`](Self::take), but what it returns remains to be reported.
    pub fn peek(&mut self, inner: RawFd, tid: u32) -> u32 {
        if self.asleep || self.is_idle() { 0 } else { self.look(inner, tid, false) }
    }

    #[inline]
    fn is_idle(&mut self) -> bool {
        let odd = self.fresh || self.edge || self.kernel != 0 || self.asked & !PRI != QUIET;
        if odd || !self.held.is_steady() || !is_plain(&self.held) {
            return false;
        }
        if self.wanted & ET == 0 {
            return self.wanted & OUT == 0 && !self.held.maybe_readable();
        }
        if self.held.arrivals(&mut self.seen) || self.has_missed() {
            self.edge = true;
            return false;
        }
        self.blocked == self.held.shared().sending.blocked.load(Relaxed) && self.held.is_steady()
    }

    /// Whether a receive was kept from what lies in the ring since this was asked last.
    fn has_missed(&mut self) -> bool {
        let missed = self.held.shared().receiving.missed.load(Relaxed);
        core::mem::replace(&mut self.missed, missed) != missed
    }

    #[cold]
    #[inline(never)]
    fn look(&mut self, inner: RawFd, tid: u32, take: bool) -> u32 {
        // In the ring where the stream goes on, not in an old one.
        self.held.attend(tid);
        // Edges are looked at before readiness: what comes in between is reported at the next look, not lost.
        if self.wanted & ET != 0 {
            let news = self.held.arrivals(&mut self.seen) | self.has_missed();
            self.edge |= news && !self.is_tcp_only();
        }
        let blocked = self.held.shared().sending.blocked.load(Acquire);
        let mut bits = self.bits(tid);
        if self.asked != self.registration() {
            self.fresh = true;
            self.ask_kernel(inner);
            if self.held.rx() == Direction::Tcp || self.held.tx() == Direction::Tcp {
                self.look_at_kernel();
                bits = self.bits(tid);
            }
        }
        if self.held.maybe_readable() {
            self.armed = None;
        }
        if self.wanted & ET != 0 {
            // A handshake arrives as well, but programs must not see it.
            self.edge &= bits & (IN | RDHUP | ALWAYS) != 0;
            let risen = bits & !self.last & (RDHUP | HUP | ERR) != 0;
            let room = bits & OUT != 0 && self.blocked != blocked;
            if !(self.edge || self.fresh || risen || room || self.kernel & !HUP != 0) {
                self.last = bits;
                return 0;
            }
        }
        if take && bits & self.wanted != 0 && self.has_news_of_both() {
            // One event reports everything, as the kernel's do.
            self.look_at_kernel();
            bits = self.bits(tid);
        }
        let reported = bits & (self.wanted | ALWAYS);
        if take {
            self.note_reported(inner, bits, reported, blocked);
        }
        reported
    }

    fn note_reported(&mut self, inner: RawFd, bits: u32, reported: u32, blocked: u32) {
        self.fresh = false;
        self.edge = false;
        self.last = bits;
        if self.wanted & ET != 0 || !self.is_connecting() {
            self.kernel &= HUP;
        }
        // Room that is missing now is an edge when it comes.
        self.blocked = if bits & OUT != 0 { blocked } else { blocked.wrapping_sub(1) };
        if self.wanted & ONESHOT != 0 && reported != 0 {
            self.asleep = true;
            self.ask_kernel(inner);
        }
    }

    /// Readiness, whether wanted or not.
    fn bits(&self, tid: u32) -> u32 {
        if self.is_connecting() {
            return self.kernel;
        }
        let (rx, tx) = (self.held.rx(), self.held.tx());
        let mut rings = ALWAYS;
        if rx != Direction::Tcp {
            rings |= IN | RDHUP;
        }
        if tx != Direction::Tcp {
            rings |= OUT;
        }
        bits_of(self.held.ready(tid)) & rings | self.kernel & (!rings | HUP)
    }

    /// Whether its `connect` is not known to have ended.
    pub fn is_connecting(&self) -> bool {
        self.held.shared().status.connecting.load(Relaxed) != 0
    }

    /// Whether both the rings and the carrier socket may be ready for something that is wanted.
    fn has_news_of_both(&self) -> bool {
        self.wanted & PRI != 0 || self.held.rx() == Direction::Tcp || self.held.tx() == Direction::Tcp
    }

    fn is_tcp_only(&self) -> bool {
        self.held.rx() == Direction::Tcp
    }

    /// Asks the far side for wakes, unless it was asked since the last arrival, or since the last wake (`again`): that
    /// wake may have answered this request, for bytes that had been taken already when it was made. `false` if another
    /// waiter is to be rung. A new request is added to `requests`.
    pub fn arm(&mut self, waiter: WaiterId, again: bool, requests: &mut Armed<Instant>) -> bool {
        if again {
            self.armed = None;
            self.asked_room = None;
        }
        if self.asleep || self.is_connecting() {
            return true;
        }
        let mut armed = true;
        if self.wanted & (IN | RDHUP) != 0 && is_receiving(&self.held) {
            let position = self.held.wake_mark();
            let is_armed =
                self.armed == Some(position) && self.held.shared().waiting.data.load(Relaxed) == waiter.0;
            if !is_armed {
                wait::make_good(&self.held);
                armed = self.held.want_data(waiter);
                self.armed = armed.then_some(position);
                if armed {
                    requests.arm(self.held.in_flight_ns(), Instant::now);
                }
            }
        }
        if self.wanted & OUT != 0 && self.held.tx() == Direction::Open && self.is_blocked() {
            armed &= self.arm_room(waiter, requests);
        }
        armed
    }

    /// The same for room. A request that may be under way and has no answer yet is not made anew: it would be under way
    /// for ever.
    fn arm_room(&mut self, waiter: WaiterId, requests: &mut Armed<Instant>) -> bool {
        let (in_flight_ns, (circuit, _)) = (self.held.in_flight_ns(), self.held.wake_mark());
        let owner = &self.held.shared().waiting.room;
        if in_flight_ns > 0 && self.asked_room == Some(circuit) && owner.load(Relaxed) == waiter.0 {
            return true;
        }
        self.armed_room = self.held.want_room(waiter);
        self.asked_room = self.armed_room.then_some(circuit);
        if self.armed_room {
            requests.arm(in_flight_ns, Instant::now);
        }
        self.armed_room
    }

    /// A wake that was asked for has rung or is not needed now. Others may want one.
    #[inline]
    pub fn disarm(&mut self, waiter: WaiterId) {
        self.armed = None;
        self.asked_room = None;
        self.held.unwant_data(waiter);
        if self.armed_room {
            self.armed_room = false;
            self.held.unwant_room(waiter);
        }
    }

    fn is_blocked(&self) -> bool {
        !self.held.has_room(tid()) || self.blocked != self.held.shared().sending.blocked.load(Relaxed)
    }
}

/// Whether both directions are open and nothing has ended: then the rings tell everything.
#[inline]
fn is_plain(end: &End) -> bool {
    let status = &end.shared().status;
    let odd = status.reset.load(Relaxed)
        | status.fin.load(Relaxed)
        | status.read_shut.load(Relaxed)
        | status.connecting.load(Relaxed);
    odd == 0
        && status.rx.load(Relaxed) == Direction::Open as u32
        && status.tx.load(Relaxed) == Direction::Open as u32
}

/// Whether the rings tell everything that is wanted, as long as the far side lives.
pub fn is_in_rings(end: &End, wanted: &epoll_event) -> bool {
    is_plain(end) && wanted.events & PRI == 0
}

fn is_receiving(end: &End) -> bool {
    matches!(end.rx(), Direction::Open | Direction::Handshake)
}

fn bits_of(ready: Ready) -> u32 {
    let bit = |is: bool, bits: u32| if is { bits } else { 0 };
    bit(ready.readable, IN)
        | bit(ready.writable, OUT)
        | bit(ready.read_closed, RDHUP)
        | bit(ready.hung_up, HUP)
        | bit(ready.error, ERR)
}

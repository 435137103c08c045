//! The end of a stream: by one circuit, or striped over two of them ([`crosslane_wire::stripe`]).
//!
//! ```text
//!   End --one circuit--> CircuitEnd                    what is not said here is the first circuit's
//!    \---- striped ----> CircuitEnd, CircuitEnd        the bytes that went before say which one has the next byte
//! ```
//! Each circuit moves, keeps and sends again by itself. What asks for data goes to the end that has the next byte to be received, what
//! asks for room to the one by which the next byte is sent; sleepers ask both to wake them, and what ends a direction is sent by both.
//! What is sent or received next is counted by both circuits' own offsets, with the first one's lock held, so the second one's is never
//! contended; a word in the first one's state has the sum for those who only look.

mod ready;
mod receive;
mod send;

use super::flight::Aloft;
use super::{CircuitEnd, Daemon, Failure, Transferred};
use crate::Grant;
use crate::end::chosen::Statistics;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use crosslane_shm::buffer::Located;
use crosslane_shm::lock::forget_busy;
use crosslane_shm::slot::Slot;
use crosslane_shm::submission::Way;
use crosslane_stream::Direction;
use crosslane_wire::WaiterId;
use crosslane_wire::local::Request;
use crosslane_wire::record::Kind;
use crosslane_wire::stripe::{Side, place};
use std::time::{Duration, Instant};

/// What the handshake record counts in a stream offset.
const HANDSHAKE: u64 = 1;

/// One process's reference to the end of a stream.
#[derive(Debug)]
pub struct End {
    first: CircuitEnd,
    twin: Slot<CircuitEnd>,
}

impl core::ops::Deref for End {
    type Target = CircuitEnd;

    #[inline(always)]
    fn deref(&self) -> &CircuitEnd {
        &self.first
    }
}

/// The far waiters of both circuits that must be woken.
#[derive(Default)]
struct Wakes {
    first: Option<WaiterId>,
    second: Option<WaiterId>,
}

impl Wakes {
    fn add(&mut self, side: Side, waiter: Option<WaiterId>) {
        let of = if side == Side::First { &mut self.first } else { &mut self.second };
        *of = waiter.or(*of);
    }

    /// Wakes the second circuit's; the first one's is the caller's to wake. No lock may be held.
    fn ring(self, twin: &CircuitEnd) -> Option<WaiterId> {
        if let Some(waiter) = self.second {
            twin.daemon.ring(twin, waiter);
        }
        self.first
    }
}

/// How far a call of several pieces is.
struct Progress {
    wanted: usize,
    done: usize,
}

impl Progress {
    /// Counts a piece, of which so many bytes were moved and so many wanted. Whether the call is over: bytes that were moved count,
    /// whatever fails later.
    fn is_over(&mut self, piece: Result<(usize, usize), Failure>) -> Result<bool, Failure> {
        match piece {
            Ok((moved, wanted)) => {
                self.done += moved;
                Ok(moved < wanted || self.done >= self.wanted)
            }
            Err(failure) if self.done == 0 || failure.is_violation() => Err(failure),
            Err(_) => {
                forget_busy();
                Ok(true)
            }
        }
    }
}

impl End {
    /// As [`CircuitEnd::begin`].
    ///
    /// # Errors
    /// The handshake record cannot be sent.
    pub fn begin(
        grant: Grant,
        status: &'static AtomicU32,
        daemon: &'static dyn Daemon,
    ) -> Result<Self, Failure> {
        CircuitEnd::begin(grant, status, daemon).map(Self::of)
    }

    /// As [`CircuitEnd::prepare`].
    pub fn prepare(grant: &Grant) {
        CircuitEnd::prepare(grant);
    }

    /// As [`CircuitEnd::resume`].
    pub fn resume(grant: Grant, status: &'static AtomicU32, daemon: &'static dyn Daemon) -> Self {
        Self::of(CircuitEnd::resume(grant, status, daemon))
    }

    fn of(first: CircuitEnd) -> Self {
        Self { first, twin: Slot::default() }
    }

    /// The stream is striped from now on; before any byte was sent or received by this process.
    pub fn stripe(&self, twin: CircuitEnd) {
        for end in [&self.first, &twin] {
            end.is_striped.store(true, Relaxed);
        }
        self.twin.fill(twin);
    }

    /// The end of the second circuit of a striped stream.
    #[inline(always)]
    pub fn twin(&self) -> Option<&CircuitEnd> {
        self.twin.get()
    }

    /// The end that has the next byte to be received, and how many bytes of it follow there.
    #[inline]
    fn receiving(&self) -> (&CircuitEnd, u64) {
        let Some(twin) = self.twin() else { return (&self.first, u64::MAX) };
        self.choose(twin, place(self.first.shared.receiving.striped.load(Relaxed)))
    }

    /// The end by which the next byte is sent, and how many bytes of it follow there.
    #[inline]
    fn sending(&self) -> (&CircuitEnd, u64) {
        let Some(twin) = self.twin() else { return (&self.first, u64::MAX) };
        self.choose(twin, place(self.first.shared.sending.striped.load(Relaxed)))
    }

    /// Bytes sent by both circuits, with the first one's lock of sending: by what each has sent, since a holder may have been killed
    /// before it stored the sum.
    fn count_sent(&self, twin: &CircuitEnd) -> u64 {
        let payload = |end: &CircuitEnd| {
            let ended = end.tx() != Direction::Open;
            end.sent().saturating_sub(HANDSHAKE + u64::from(ended))
        };
        payload(&self.first).wrapping_add(payload(twin))
    }

    /// The same of what was received, with the locks of receiving of both.
    fn count_received(&self, twin: &CircuitEnd) -> u64 {
        let payload = |end: &CircuitEnd| {
            let ended = matches!(end.rx(), Direction::Ended | Direction::Tcp);
            end.shared.consumer.units().saturating_sub(HANDSHAKE + u64::from(ended))
        };
        payload(&self.first).wrapping_add(payload(twin))
    }

    fn choose<'a>(&'a self, twin: &'a CircuitEnd, (side, left): (Side, u64)) -> (&'a CircuitEnd, u64) {
        (if side == Side::First { &self.first } else { twin }, left)
    }

    /// What becomes of the whole stream by what one circuit says.
    #[cold]
    fn heed(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Reset => {
                self.break_off(libc::ECONNRESET);
            }
            failure if failure.is_violation() => self.first.give_up(&failure.to_string()),
            _ => {}
        }
        failure
    }

    /// State of the receiving direction.
    #[inline]
    pub fn rx(&self) -> Direction {
        self.receiving().0.rx()
    }

    /// The reason for which the daemon has declared a circuit dead, never 0; `None` if it has not.
    #[inline]
    pub fn dead(&self) -> Option<u32> {
        self.first.dead().or_else(|| self.twin()?.dead())
    }

    /// As [`CircuitEnd::in_flight_ns`], of the circuit whose stores are under way longer.
    #[inline]
    pub fn in_flight_ns(&self) -> u32 {
        let twin = self.twin().map_or(0, CircuitEnd::in_flight_ns);
        self.first.in_flight_ns().max(twin)
    }

    /// As [`CircuitEnd::has_fin`], where the next bytes come.
    #[inline]
    pub fn has_fin(&self) -> bool {
        self.receiving().0.has_fin()
    }

    /// As [`CircuitEnd::is_moving`], where the next bytes come.
    pub fn is_moving(&self) -> bool {
        self.receiving().0.is_moving()
    }

    /// As [`CircuitEnd::note_fin`], for both circuits.
    pub fn note_fin(&self, heard_before: impl FnOnce() -> Duration) {
        let Some(twin) = self.twin() else { return self.first.note_fin(heard_before) };
        let (before, now) = (heard_before(), Instant::now());
        self.first.note_fin(|| before);
        twin.note_fin(|| before + now.elapsed());
    }

    /// As [`CircuitEnd::break_off`], for both circuits.
    pub fn break_off(&self, errno: i32) -> bool {
        if let Some(twin) = self.twin() {
            twin.break_off(errno);
        }
        self.first.break_off(errno)
    }

    /// As [`CircuitEnd::deafen`], for both circuits.
    pub fn deafen(&self) {
        self.each(CircuitEnd::deafen);
    }

    /// As [`CircuitEnd::leave`], for both circuits.
    pub fn leave(&self) {
        self.each(CircuitEnd::leave);
    }

    /// As [`CircuitEnd::attend`], for both circuits.
    pub fn attend(&self, tid: u32) {
        self.each(|end| end.attend(tid));
    }

    /// As [`CircuitEnd::refresh`], for both circuits.
    pub fn refresh(&self, tid: u32) {
        self.each(|end| end.refresh(tid));
    }

    /// As [`CircuitEnd::forget_waiters`], for both circuits.
    pub fn forget_waiters(&self) {
        self.each(CircuitEnd::forget_waiters);
    }

    /// As [`CircuitEnd::await_sent`], for both circuits.
    pub fn await_sent(&self, tid: u32) {
        self.each(|end| end.await_sent(tid));
    }

    /// As [`CircuitEnd::limit_sending`], for both circuits.
    pub fn limit_sending(&self, bytes: u64) {
        self.each(|end| end.limit_sending(bytes));
    }

    fn each(&self, does: impl Fn(&CircuitEnd)) {
        does(&self.first);
        if let Some(twin) = self.twin() {
            does(twin);
        }
    }

    /// As [`CircuitEnd::fin_may_go`], of both circuits.
    pub fn fin_may_go(&self) -> bool {
        self.first.fin_may_go() && self.twin().is_none_or(CircuitEnd::fin_may_go)
    }

    /// Bytes moved so far, and by which way.
    pub fn statistics(&self) -> Statistics {
        let first = self.first.statistics();
        self.twin().map_or(first, |twin| first.and(twin.statistics()))
    }

    /// The ids of its circuits, each with the token that proves the right to close it.
    pub fn circuits(&self) -> impl Iterator<Item = (crosslane_wire::CircuitId, u64)> + '_ {
        [Some(&self.first), self.twin()].into_iter().flatten().map(|end| (end.circuit, end.token))
    }

    /// Whether the two programs can map each other's buffers; never of a striped stream, whose bytes all go through rings.
    #[inline]
    pub fn allows_zero_copy(&self) -> bool {
        self.twin().is_none() && self.first.allows_zero_copy()
    }

    /// As [`CircuitEnd::may_announce`].
    #[inline]
    pub fn may_announce(&self) -> bool {
        self.twin().is_none() && self.first.may_announce()
    }

    /// As [`CircuitEnd::suits_engine`].
    #[inline]
    pub fn suits_engine(&self, bytes: usize) -> bool {
        self.twin().is_none() && self.first.suits_engine(bytes)
    }

    /// As [`CircuitEnd::launch`].
    ///
    /// # Errors
    /// The direction is over.
    pub fn launch(
        &self,
        tid: u32,
        way: Way,
        spans: impl Iterator<Item = (u64, usize)> + Clone,
    ) -> Result<Option<Aloft>, Failure> {
        if self.twin().is_some() { Ok(None) } else { self.first.launch(tid, way, spans) }
    }

    /// As [`CircuitEnd::export_buffer`].
    ///
    /// # Errors
    /// It cannot be exported.
    pub fn export_buffer(&self, located: &Located) -> Result<(), super::BufferError> {
        if self.twin().is_some() { Err(super::BufferError::Never) } else { self.first.export_buffer(located) }
    }

    /// Aborts the stream for a reason found at this end, and has the daemon reset the far side.
    #[cold]
    pub fn give_up(&self, why: &str) {
        if let Some(twin) = self.twin() {
            twin.break_off(libc::ECONNRESET);
        }
        self.first.give_up(why);
    }

    /// As [`CircuitEnd::end_sending`]: by both circuits. A call that failed with [`Failure::WouldBlock`] may be repeated, also if one of
    /// them has ended.
    ///
    /// # Errors
    /// As for [`CircuitEnd::end_sending`].
    pub fn end_sending(&self, tid: u32) -> Result<Transferred, Failure> {
        self.turn(|end| end.end_sending(tid))
    }

    /// As [`CircuitEnd::send_control`], by both circuits; see [`Self::end_sending`].
    ///
    /// # Errors
    /// As for [`CircuitEnd::send_control`].
    pub fn send_control(&self, tid: u32, kind: Kind) -> Result<Transferred, Failure> {
        self.turn(|end| end.send_control(tid, kind))
    }

    fn turn(
        &self,
        turns: impl Fn(&CircuitEnd) -> Result<Transferred, Failure>,
    ) -> Result<Transferred, Failure> {
        let first = turns(&self.first);
        let Some(twin) = self.twin() else { return first };
        let second = turns(twin);
        if let Ok(Transferred { wake: Some(waiter), .. }) = second {
            twin.daemon.ring(twin, waiter);
        }
        match (first, second) {
            (first @ Err(Failure::WouldBlock | Failure::Reentered), _) => first,
            (_, second @ Err(Failure::WouldBlock | Failure::Reentered)) => second,
            // An earlier call has ended it by the first circuit.
            (Err(Failure::Ended | Failure::Tcp), Ok(_)) => Ok(Transferred { bytes: 0, wake: None }),
            (first, _) => first,
        }
    }

    /// The request by which the daemon forgets the end: `Close` of the first circuit closes both.
    pub fn closing(&self, abort: bool) -> Request {
        Request::Close { circuit: self.first.circuit, token: self.first.token, abort }
    }
}

//! One end (endpoint) of a stream: it stores sent bytes into the neighbour's memory and copies received bytes out of its own. A
//! [`CircuitEnd`] does this by one circuit, and is all that most streams need; an [`End`] has one, or two of them ([`striped`]).
//! While the stream's circuit lives, no call here waits or makes a system call, except mapping the segments at the start.
//!
//! ```text
//!   does the status word have the value for which this end is steady?  --yes-->  only the rings are used
//!      | no
//!   moving: fetch the newer segments from the daemon, receive the bytes of the old ring that count,
//!   send again the bytes that the far end lacks
//! ```

pub mod apart;
pub mod chosen;
mod exchange;
pub mod flight;
mod generations;
mod gone;
mod keeping;
mod moving;
mod offload;
mod order;
mod ping_pong;
pub mod ready;
mod receive;
mod resend;
mod send;
pub mod striped;
mod walk;
pub mod zcopy;

use crate::Grant;
use crate::offload::Offload;
use crate::segments::Next;
use crate::shared::{Shared, SharedState};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32};
use crosslane_shm::account::{self, Function};
use crosslane_shm::buffer::Located;
use crosslane_shm::guarded::{self, Fault};
use crosslane_shm::lock::{NotTaken, Reentered};
use crosslane_shm::ring::{Duplex, Violation};
use crosslane_shm::wake::FarWaker;
use crosslane_shm::{FarBuffer, Inbound, Load, Store, arm, wait};
use crosslane_stream::zcopy::InvalidReference;
use crosslane_stream::{Direction, OutOfOrder, Side};
use crosslane_wire::local::{Request, STATUS_ALIVE, STATUS_MOVING, status_reason};
use crosslane_wire::segment::{
    ORDER, RETENTION_MIN, RING_MIN, STATE, STATE_ATTACHED, STATE_DEAF, STATE_GONE, STATE_NONE, WANT_DATA,
    WANT_ROOM,
};
use crosslane_wire::{BufferId, CircuitId, Tuple, WaiterId};
use exchange::Exchange;
use generations::{Generation, Generations};
use offload::OffloadState;
use order::Orders;
use std::net::SocketAddr;
use std::time::Instant;
pub use striped::End;
use thiserror::Error;

/// Lookups of far waiters that may fail before this end makes no more of them.
const FAILED_LOOKUPS_MAX: u32 = 16;

/// Why a call moved no bytes.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// No data, or no room, now.
    #[error("nothing to do now")]
    WouldBlock,
    /// Receiving: end of file. Sending: this direction was shut down.
    #[error("the stream has ended")]
    Ended,
    /// Sending: the far end is gone, and no earlier send has noticed. The call returns this many bytes to the program as
    /// sent; then its connection must be reset.
    #[error("nobody is left to read {0} bytes")]
    Unheard(usize),
    /// This direction travels by the kernel's TCP.
    #[error("downgraded to TCP")]
    Tcp,
    /// The stream was aborted.
    #[error("the stream was reset")]
    Reset,
    /// The peer broke the protocol; this end has aborted the stream.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// The peer sent a record out of order; this end has aborted the stream.
    #[error(transparent)]
    OutOfOrder(#[from] OutOfOrder),
    /// The peer's word about announced memory is impossible; this end has aborted the stream.
    #[error(transparent)]
    InvalidReference(#[from] InvalidReference),
    /// The stream moved to another circuit, and the count of arrived bytes that the daemon gave is impossible; this end
    /// has aborted the stream.
    #[error("the stream cannot go on: {told} units are said to have arrived, {known} are possible")]
    Discontinued {
        /// Stream offset that the daemon gave.
        told: u64,
        /// Stream offset that this end knows of.
        known: u64,
    },
    /// A page of the program's buffer is not mapped.
    #[error("the buffer is not mapped")]
    Fault,
    /// The caller is a signal handler that interrupted a call on the same stream, or a request to the daemon.
    #[error("re-entered from a signal handler")]
    Reentered,
}

impl Failure {
    /// Whether the peer or a daemon sent something impossible.
    pub fn is_violation(&self) -> bool {
        matches!(
            self,
            Self::Violation(_) | Self::OutOfOrder(_) | Self::InvalidReference(_) | Self::Discontinued { .. }
        )
    }
}

impl From<Fault> for Failure {
    fn from(_: Fault) -> Self {
        Self::Fault
    }
}

impl From<NotTaken> for Failure {
    /// A lock that another process keeps for too long counts as "nothing to do"; waiting callers find the difference by
    /// `crosslane_shm::lock::take_busy`.
    fn from(why: NotTaken) -> Self {
        match why {
            NotTaken::Reentered => Self::Reentered,
            NotTaken::Busy => Self::WouldBlock,
        }
    }
}

impl From<Reentered> for Failure {
    fn from(_: Reentered) -> Self {
        Self::Reentered
    }
}

/// Outcome of a send or receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transferred {
    /// Payload bytes.
    pub bytes: usize,
    /// The far waiter that the caller must wake now.
    pub wake: Option<WaiterId>,
}

/// Requests of an end to the daemon: about moves of its circuit, about wakers, buffers and the engine.
pub trait Daemon: Sync + core::fmt::Debug {
    /// Gets the next segments of the end after those of `generation`.
    fn next(&self, circuit: CircuitId, token: u64, generation: u32) -> Result<Next, ResumeError>;

    /// Sends a message that has no answer; `false` if that failed.
    fn tell(&self, _request: &Request) -> bool {
        true
    }

    /// Wakes a waiter at the far side of `end`, by the program's own wakers if it has some for that; else through the daemon.
    fn ring(&self, end: &CircuitEnd, waiter: WaiterId) {
        end.wake_by_daemon(Some(waiter));
    }

    /// Wakes the far side's waiter through the daemon; `false` if that failed.
    fn wake(&self, circuit: CircuitId, token: u64, waiter: WaiterId) -> bool {
        self.tell(&Request::Wake { circuit, token, waiter })
    }

    /// Gets the waker of the far side's waiter; `None` if only daemons can wake it.
    fn waker(&self, _circuit: CircuitId, _token: u64, _waiter: WaiterId) -> Option<FarWaker> {
        None
    }

    /// Lets the far end map a buffer of this program.
    fn export_buffer(&self, _circuit: CircuitId, _token: u64, _located: &Located) -> Result<(), BufferError> {
        Err(BufferError::Never)
    }

    /// Gets a buffer of the far program.
    fn far_buffer(
        &self,
        _circuit: CircuitId,
        _token: u64,
        _buffer: BufferId,
    ) -> Result<FarBuffer, BufferError> {
        Err(BufferError::Never)
    }

    /// The submission queue and wakers shared with the daemon's engine, if there is an engine and it can reach this process.
    fn offload(&self) -> Option<&'static Offload> {
        None
    }

    /// The engine's handle for a buffer of this program; 0 if the engine does not take it.
    fn register_buffer(&self, _located: &Located) -> u32 {
        0
    }

    /// The engine's handle for the end's rings of `generation`; 0 if the engine does not take them.
    fn register_rings(&self, _circuit: CircuitId, _token: u64, _generation: u32) -> u32 {
        0
    }
}

/// Why a buffer cannot be exported, or a far one not mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferError {
    /// This is a signal handler that interrupted another request; a later call may succeed.
    Later,
    /// The circuit has several cables, the far program did not export the buffer, or there is no daemon to ask: use the ring.
    Never,
}

/// Why the daemon gave no segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumeError {
    /// This is a signal handler that interrupted another request; a later call may succeed.
    Reentered,
    /// There are none, or this process cannot get them: the stream is over.
    Never,
}

/// One process's reference to the end of a circuit: the mapped segments, and the state shared with other processes.
#[derive(Debug)]
pub struct CircuitEnd {
    shared: SharedState,
    generations: Generations,
    status: &'static AtomicU32,
    daemon: &'static dyn Daemon,
    side: Side,
    tuple: Tuple,
    circuit: CircuitId,
    token: u64,
    exchange: Exchange,
    offload_state: OffloadState,
    orders: Orders,
    /// Whether it is one of the two of a striped stream.
    is_striped: AtomicBool,
}

impl CircuitEnd {
    /// Begins a new stream on a granted circuit and sends the handshake record. `status` is the circuit's word on the
    /// daemon's status page.
    pub fn begin(
        grant: Grant,
        status: &'static AtomicU32,
        daemon: &'static dyn Daemon,
    ) -> Result<Self, Failure> {
        let end = Self::resume(grant, status, daemon);
        let (shared, segments) = (&end.shared, &end.generations.tx().segments);
        shared.status.circuit.store(end.circuit.0, Relaxed);
        shared.status.token.store(end.token, Relaxed);
        shared.status.client.store(u32::from(end.side == Side::Client), Relaxed);
        shared.status.tx.store(Direction::Open as u32, Relaxed);
        segments.outbound.store_u32(ORDER, 0);
        segments.outbound.store_u32(STATE, STATE_ATTACHED);
        let handshake = end.side.handshake();
        let greeted = shared.producer.push_control(&segments.outbound, &segments.inbound, handshake, 0)?;
        debug_assert!(greeted, "a fresh ring has room");
        end.generations.mark_steady(end.generations.tx().word());
        // The handshake tells the far side's daemon that this end has taken the circuit: the pump of a host between must forward it now.
        if segments.way.relayed {
            end.wake_by_daemon(end.data_waiter(end.generations.tx()));
        }
        Ok(end)
    }

    /// Prepares the state of a new stream: must come before [`Self::begin`].
    pub fn prepare(grant: &Grant) {
        let (shared, segments) = (&grant.state, &grant.segments);
        let (generation, max) = (segments.generation, segments.ring_max);
        let cap = RING_MIN.min(max);
        shared.begin();
        shared.kept.cap.store(RETENTION_MIN, Relaxed);
        shared.producer.resume(generation, cap, max, segments.tx_key, 0);
        shared.consumer.resume(generation, cap, max, segments.rx_key, 0);
    }

    /// Opens an end of a stream that another process began.
    pub fn resume(grant: Grant, status: &'static AtomicU32, daemon: &'static dyn Daemon) -> Self {
        guarded::prepare();
        Self {
            shared: grant.state,
            generations: Generations::new(grant.segments),
            status,
            daemon,
            side: if grant.client { Side::Client } else { Side::Server },
            tuple: grant.tuple,
            circuit: grant.circuit,
            token: grant.token,
            exchange: Exchange::new(),
            offload_state: OffloadState::default(),
            orders: Orders::default(),
            is_striped: AtomicBool::new(false),
        }
    }

    /// State shared with the other processes that hold this end.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The addresses and ports of the connection.
    pub fn tuple(&self) -> Tuple {
        self.tuple
    }

    /// The far end's address and port.
    pub fn peer(&self) -> SocketAddr {
        if self.side == Side::Client { self.tuple.server } else { self.tuple.client }
    }

    /// This end's own address and port.
    pub fn local(&self) -> SocketAddr {
        if self.side == Side::Client { self.tuple.client } else { self.tuple.server }
    }

    /// The end's id at the daemon.
    pub fn circuit(&self) -> CircuitId {
        self.circuit
    }

    /// Secret that proves to the daemon the right to close the end.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Whether this is the connecting or the accepting end.
    pub fn side(&self) -> Side {
        self.side
    }

    /// Calls `ready` until it returns `true` or `ns` have passed; returns whether it did. On a relayed circuit the thread yields the
    /// processor in between: if the hosts are one machine, a pump may need the processor on which this thread, or the far side's, spins.
    #[inline]
    pub fn spin(&self, ns: u32, ready: impl FnMut() -> bool) -> bool {
        if self.relayed().is_some() { wait::spin_and_yield(ns, ready) } else { wait::spin(ns, ready) }
    }

    /// The generation of the circuit, if it is relayed: its waiters then belong to the next host on the path.
    pub fn relayed(&self) -> Option<u32> {
        let tx = self.generations.tx();
        tx.segments.way.relayed.then_some(tx.number())
    }

    /// The newest generation, if its stores go through a queue: then so do wakes, by numbers that are of this generation only.
    pub(crate) fn queued(&self) -> Option<u32> {
        let newest = self.generations.newest();
        (!newest.segments.outbound.is_direct()).then(|| newest.number())
    }

    /// Wakes the far waiter whose waker has this number, behind what this end has stored.
    pub(crate) fn wake_queued(&self, number: u64) {
        self.generations.newest().segments.outbound.wake(number);
    }

    /// Whether the two programs can map each other's buffers on the present circuit.
    #[inline]
    pub fn allows_zero_copy(&self) -> bool {
        self.generations.tx().segments.way.zero_copy
    }

    /// Whether who stores into the newest generation's segment runs on this machine's processors.
    #[inline]
    pub(crate) fn has_near_writer(&self) -> bool {
        self.generations.newest().segments.inbound.is_near()
    }

    /// Posted-write latency bound of the newest generation, ns: how long a store of this end (a `WANT` word) and a store
    /// of the far side that missed it may be under way together. 0 where memory is coherent.
    #[inline]
    pub fn in_flight_ns(&self) -> u32 {
        let segments = &self.generations.newest().segments;
        arm::flight_ns(segments.posted_out_ns, segments.posted_in_ns)
    }

    /// By which both ends name the stream in wakes: [`Tuple::name`].
    pub fn name(&self) -> u32 {
        self.tuple.name()
    }

    /// State of the receiving direction.
    #[inline]
    pub fn rx(&self) -> Direction {
        direction(&self.shared.status.rx)
    }

    /// State of the sending direction.
    #[inline]
    pub fn tx(&self) -> Direction {
        direction(&self.shared.status.tx)
    }

    /// Whether the circuit lives and both directions use its rings: then a call need look at nothing but the rings.
    #[inline]
    pub fn is_steady(&self) -> bool {
        self.generations.is_steady(self.status.load(Acquire))
    }

    /// The reason for which the daemon has declared the circuit dead, never 0; `None` if it has not.
    #[inline]
    pub fn dead(&self) -> Option<u32> {
        match status_reason(self.status.load(Acquire)) {
            STATUS_ALIVE | STATUS_MOVING => None,
            reason => Some(reason),
        }
    }

    /// Whether the far side has ever attached to the circuit. A connecting end attaches before its SYN, so for an
    /// accepted connection the answer is final. Where stores are posted, waits until an earlier one must have landed.
    pub fn was_attached(&self) -> bool {
        let newest = self.generations.newest();
        let is_attached = || newest.number() > 0 || newest.segments.inbound.load_u32(STATE) != STATE_NONE;
        let in_flight = newest.segments.landed_after();
        is_attached() || !in_flight.is_zero() && wait::look_until(Instant::now() + in_flight, is_attached)
    }

    /// Whether this end may ask the daemon for wakers of the far side's waiters. After `FAILED_LOOKUPS_MAX` failed lookups it
    /// does not, since a far side that names waiters which do not exist would cost one request to the daemon after the other.
    fn asks_for_wakers(&self) -> bool {
        self.shared.status.unfound.load(Relaxed) < FAILED_LOOKUPS_MAX
    }

    /// Asks the daemon for the waker of a far waiter; a lookup that fails is counted.
    pub(crate) fn find_waker(&self, waiter: WaiterId) -> Option<FarWaker> {
        if !self.asks_for_wakers() {
            return None;
        }
        let waker = self.daemon.waker(self.circuit, self.token, waiter);
        if waker.is_none() {
            self.shared.status.unfound.fetch_add(1, Relaxed);
        }
        waker
    }

    /// Has the daemon wake a far waiter, if there is one; if that fails, the next record or credit wakes it again.
    pub(crate) fn wake_by_daemon(&self, waiter: Option<WaiterId>) {
        if let Some(waiter) = waiter
            && !self.daemon.wake(self.circuit, self.token, waiter)
        {
            self.wake_again();
        }
    }

    /// Makes the next record or credit wake the far waiter again, since it could not be woken.
    fn wake_again(&self) {
        self.shared.sending.rung.store(0, Relaxed);
        self.shared.receiving.rung.store(0, Relaxed);
    }

    /// Tells the far side that this end, which sends no more, does not receive any more either.
    pub fn deafen(&self) {
        self.tell_state(STATE_DEAF);
    }

    /// Tells the far side that this end is closed.
    pub fn leave(&self) {
        self.tell_state(STATE_GONE);
    }

    /// Stores the `STATE` word, after all earlier stores.
    fn tell_state(&self, state: u32) {
        let outbound = &self.generations.newest().segments.outbound;
        outbound.store_fence();
        outbound.store_u32(STATE, state);
    }

    /// Aborts the stream because the far side or the kernel has reset it; the program gets `errno` once. Returns whether
    /// the stream was not yet aborted.
    pub fn break_off(&self, errno: i32) -> bool {
        let status = &self.shared.status;
        let first = status.reset.swap(1, Relaxed) == 0;
        if first {
            status.error.store(errno.unsigned_abs(), Relaxed);
        }
        first
    }

    /// Aborts the stream for a reason found at this end, `why`, and has the daemon reset the far side, which would wait for ever.
    #[cold]
    pub fn give_up(&self, why: &str) {
        if self.break_off(libc::ECONNRESET) {
            let (circuit, token, text) = (self.circuit, self.token, why.to_owned());
            self.daemon.tell(&Request::Violated { circuit, token, text });
        }
    }

    /// The receiving direction of channel `tx`, from which the sender reads credit and on which it piggybacks credit; no
    /// piggybacking if a host between relays the records.
    #[inline]
    fn credits<'a>(&'a self, tx: &'a Generation) -> Duplex<'a, Inbound> {
        Duplex { words: &tx.segments.inbound, consumer: &self.shared.consumer, rides: tx.segments.way.rides }
    }

    /// The far waiter to wake for data, unless it was woken for this request already. Call this after the data was
    /// stored: it fences before it loads the `WANT` word.
    #[inline(always)]
    fn data_waiter(&self, tx: &Generation) -> Option<WaiterId> {
        let _span = account::sending(Function::Acknowledge);
        tx.segments.outbound.fence();
        answer(tx.segments.inbound.load_u64(WANT_DATA), &self.shared.sending.rung)
    }

    /// The far waiter to wake for room.
    fn room_waiter(&self, rx: &Generation) -> Option<WaiterId> {
        let _span = account::receiving(Function::Acknowledge);
        rx.segments.outbound.fence();
        answer(rx.segments.inbound.load_u64(WANT_ROOM), &self.shared.receiving.rung)
    }

    /// Aborts the stream if `outcome` says that the peer broke the protocol.
    #[inline(always)]
    fn guarded<T>(&self, outcome: Result<T, Failure>) -> Result<T, Failure> {
        outcome.inspect_err(|failure| self.note_failure(failure))
    }

    #[cold]
    fn note_failure(&self, failure: &Failure) {
        if failure.is_violation() {
            self.give_up(&failure.to_string());
            self.shared.status.rx.store(Direction::Aborted as u32, Relaxed);
            self.shared.status.tx.store(Direction::Aborted as u32, Relaxed);
        }
    }
}

/// Edges that this process has counted, of all its ends.
static EDGES: AtomicU32 = AtomicU32::new(0);

/// A number that changes when a call of this process on any end finds no room, or is kept from the ring: edges that no wake tells.
pub fn edges() -> u32 {
    EDGES.load(Acquire)
}

/// Counts one more edge.
#[cold]
fn note(edges: &AtomicU32) {
    edges.fetch_add(1, Relaxed);
    EDGES.fetch_add(1, Release);
}

fn direction(word: &AtomicU32) -> Direction {
    Direction::from_u8(u8::try_from(word.load(Relaxed)).unwrap_or(u8::MAX))
}

fn add(counter: &core::sync::atomic::AtomicU64, bytes: usize) {
    counter.store(counter.load(Relaxed).wrapping_add(bytes as u64), Relaxed);
}

/// The waiter in a `WANT` word; `None` if this request was answered before.
fn answer(want: u64, rung: &core::sync::atomic::AtomicU64) -> Option<WaiterId> {
    if want == 0 || want == rung.load(Relaxed) {
        return None;
    }
    rung.store(want, Relaxed);
    let [w0, w1, w2, w3, ..] = want.to_le_bytes();
    Some(WaiterId(u32::from_le_bytes([w0, w1, w2, w3])))
}

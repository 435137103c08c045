//! One end of a stream: bytes into the neighbour's memory, bytes out of our own. While the stream's circuit lives, no
//! call here waits, and none but the mapping at the start is a system call.
//!
//! ```text
//!   status word is the one that all is settled for?  --yes-->  the rings, and nothing else
//!      | no
//!   moving: catch up with the daemon (the segments after ours), receive what counts of the old ring,
//!   resend what the far end has not got
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
mod walk;
pub mod zcopy;

use crate::Grant;
use crate::offload::Offload;
use crate::segments::Next;
use crate::shared::{Shared, SharedState};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use crosslane_shm::account::{self, Function};
use crosslane_shm::buffer::Located;
use crosslane_shm::guarded::{self, Fault};
use crosslane_shm::lock::{NotTaken, Reentered};
use crosslane_shm::ring::{Duplex, Violation};
use crosslane_shm::{FarBuffer, Inbound, Load, Store, arm, wait};
use crosslane_stream::zcopy::InvalidReference;
use crosslane_stream::{Direction, OutOfOrder, Side};
use crosslane_wire::local::{STATUS_ALIVE, STATUS_MOVING, status_reason};
use crosslane_wire::segment::{
    ORDER, RETENTION_MIN, RING_MIN, STATE, STATE_ATTACHED, STATE_DEAF, STATE_GONE, STATE_NONE, WANT_DATA,
    WANT_ROOM,
};
use crosslane_wire::{BufferId, CircuitId, Tuple, WaiterId};
use exchange::Exchange;
use generations::{Generation, Generations};
use offload::OffloadState;
use order::Orders;
use std::time::Instant;
use thiserror::Error;

/// Far waiters that may be asked for in vain.
const FAILED_LOOKUPS_MAX: u32 = 16;

/// Why nothing was moved.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// No data, or no room, now.
    #[error("nothing to do now")]
    WouldBlock,
    /// Receiving: end of file. Sending: this direction was shut down.
    #[error("the stream has ended")]
    Ended,
    /// Sending: the far end has gone, and nobody had noticed by a send before. To the program so many bytes are sent; then
    /// its connection is to be reset.
    #[error("nobody is left to read {0} bytes")]
    Unheard(usize),
    /// This direction travels by the kernel's TCP.
    #[error("downgraded to TCP")]
    Tcp,
    /// The stream was broken off.
    #[error("the stream was reset")]
    Reset,
    /// The peer broke the protocol; the stream is broken off now.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// The peer sent a record out of order; the stream is broken off now.
    #[error(transparent)]
    OutOfOrder(#[from] OutOfOrder),
    /// The peer said of announced memory what cannot be; the stream is broken off now.
    #[error(transparent)]
    InvalidReference(#[from] InvalidReference),
    /// The stream moved to another circuit, and what is said of how far it had come cannot be; broken off now.
    #[error("the stream cannot go on: {told} units are said to have arrived, {known} are possible")]
    Discontinued {
        /// What was said.
        told: u64,
        /// What is known here.
        known: u64,
    },
    /// The program's buffer is not in its memory.
    #[error("the buffer is not mapped")]
    Fault,
    /// A signal handler came in between a call on the same stream, or between a request to the daemon.
    #[error("re-entered from a signal handler")]
    Reentered,
}

impl Failure {
    /// Whether the peer, or a daemon, said what cannot be.
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
    /// A lock that another process keeps for too long is as if there were nothing to do; `crosslane_shm::lock::take_busy`
    /// tells the difference to those who wait.
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

/// What was moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transferred {
    /// Payload bytes.
    pub bytes: usize,
    /// A waiter of the far side's that must be rung now.
    pub wake: Option<WaiterId>,
}

/// What an end asks of the daemon: when its circuit has moved, and of buffers.
pub trait Daemon: Sync + core::fmt::Debug {
    /// The segments of the end after those of `generation`.
    fn next(&self, circuit: CircuitId, token: u64, generation: u32) -> Result<Next, ResumeError>;

    /// Rings the far side's waiter; `false` if that failed.
    fn wake(&self, circuit: CircuitId, token: u64, waiter: WaiterId) -> bool;

    /// This end was broken off, for the reason `why`: the far end is to be reset.
    fn broken_off(&self, _circuit: CircuitId, _token: u64, _why: &str) {}

    /// The stream outgrew its segment of `generation`: it may move to a longer one.
    fn grow(&self, _circuit: CircuitId, _token: u64, _generation: u32) {}

    /// Lets the far end have a buffer of this program.
    fn export_buffer(&self, _circuit: CircuitId, _token: u64, _located: &Located) -> Result<(), BufferError> {
        Err(BufferError::Never)
    }

    /// A buffer of the far program.
    fn far_buffer(
        &self,
        _circuit: CircuitId,
        _token: u64,
        _buffer: BufferId,
    ) -> Result<FarBuffer, BufferError> {
        Err(BufferError::Never)
    }

    /// What this process shares with the daemon's engine, if it has one and may be reached by it.
    fn offload(&self) -> Option<&'static Offload> {
        None
    }

    /// The engine's name for a buffer of this program; 0 if it does not take it.
    fn register_buffer(&self, _located: &Located) -> u32 {
        0
    }

    /// The engine's name for the end's rings of `generation`; 0 if it does not take them.
    fn register_rings(&self, _circuit: CircuitId, _token: u64, _generation: u32) -> u32 {
        0
    }
}

/// Why a buffer cannot be shared or had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferError {
    /// A signal handler came in between another request; later it may be.
    Later,
    /// The circuit is too long, the far program did not open it, or there is no asking: send by the ring.
    Never,
}

/// Why there are no segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumeError {
    /// A signal handler came in between another request; later there will be.
    Reentered,
    /// There are none, or they cannot be had: the stream is over.
    Never,
}

/// One process's hold on one end: the mapped segments and the state shared with other processes.
#[derive(Debug)]
pub struct End {
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
}

impl End {
    /// Begins a new stream on a granted circuit, and greets the far side. `life` is the circuit's word on the
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
        // The far side's daemon knows by the handshake that the circuit was taken: no host between may sleep over it.
        if segments.way.relayed
            && let Some(waiter) = end.data_waiter(end.generations.tx())
            && !end.daemon.wake(end.circuit, end.token, waiter)
        {
            end.wake_again();
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

    /// Takes hold of a stream that another process began.
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
        }
    }

    /// State shared with the other processes that hold this end.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The connection.
    pub fn tuple(&self) -> Tuple {
        self.tuple
    }

    /// The end's name with the daemon.
    pub fn circuit(&self) -> CircuitId {
        self.circuit
    }

    /// Proof for closing it.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Which end this is.
    pub fn side(&self) -> Side {
        self.side
    }

    /// Calls `ready` until it holds or `ns` have passed; whether it held. On a relayed circuit other threads may run in between: if
    /// the hosts are one machine, a pump may need the processor that this thread, or its far side, spins on.
    #[inline]
    pub fn spin(&self, ns: u32, ready: impl FnMut() -> bool) -> bool {
        if self.relayed().is_some() { wait::spin_and_yield(ns, ready) } else { wait::spin(ns, ready) }
    }

    /// The generation of the circuit, if it is relayed: its waiters are those of the host between that comes next.
    pub fn relayed(&self) -> Option<u32> {
        let tx = self.generations.tx();
        tx.segments.way.relayed.then_some(tx.number())
    }

    /// Whether both programs can map each other's buffers by the present circuit.
    #[inline]
    pub fn allows_zero_copy(&self) -> bool {
        self.generations.tx().segments.way.zero_copy
    }

    /// How long a store of ours to the far side and then one of the far side's to us may be under way together, ns, in the newest
    /// generation: a `WANT` word, and what it is not answered for. 0 where memory is coherent.
    #[inline]
    pub fn in_flight_ns(&self) -> u32 {
        let segments = &self.generations.newest().segments;
        arm::flight_ns(segments.posted_out_ns, segments.posted_in_ns)
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

    /// Whether the circuit lives and everything goes by it: then there is nothing but the rings to look at.
    #[inline]
    pub fn is_steady(&self) -> bool {
        self.generations.is_steady(self.status.load(Acquire))
    }

    /// Whether the daemon has declared the circuit dead: the reason, not 0.
    #[inline]
    pub fn dead(&self) -> Option<u32> {
        match status_reason(self.status.load(Acquire)) {
            STATUS_ALIVE | STATUS_MOVING => None,
            reason => Some(reason),
        }
    }

    /// Whether the far side ever took the circuit. A connecting side does so before its SYN, so when its connection
    /// is accepted this is final, once what was stored before it has landed.
    pub fn was_attached(&self) -> bool {
        let newest = self.generations.newest();
        let is_attached = || newest.number() > 0 || newest.segments.inbound.load_u32(STATE) != STATE_NONE;
        let in_flight = newest.segments.landed_after();
        is_attached() || !in_flight.is_zero() && wait::look_until(Instant::now() + in_flight, is_attached)
    }

    /// Whether the far side's waiters can be asked for, and may still be: one that names waiters which do not exist would hold us
    /// up with questions for ever.
    pub fn asks_for_wakers(&self) -> bool {
        let way = &self.generations.tx().segments.way;
        way.wakers && self.shared.status.unfound.load(Relaxed) < FAILED_LOOKUPS_MAX
    }

    /// A far waiter was asked for and not found.
    pub fn not_found(&self) {
        self.shared.status.unfound.fetch_add(1, Relaxed);
    }

    /// A waiter could not be woken: the next record or credit wakes it again.
    pub fn wake_again(&self) {
        self.shared.sending.rung.store(0, Relaxed);
        self.shared.receiving.rung.store(0, Relaxed);
    }

    /// Tells the far side that this end, which sends no more, receives no more either.
    pub fn deafen(&self) {
        self.tell_state(STATE_DEAF);
    }

    /// Tells the far side that this end is gone for good.
    pub fn leave(&self) {
        self.tell_state(STATE_GONE);
    }

    /// Behind everything that was stored before.
    fn tell_state(&self, state: u32) {
        let outbound = &self.generations.newest().segments.outbound;
        outbound.store_fence();
        outbound.store_u32(STATE, state);
    }

    /// Breaks the stream off, as the far side or the kernel has it: `errno` is told once. Returns whether it was not yet.
    pub fn break_off(&self, errno: i32) -> bool {
        let status = &self.shared.status;
        let first = status.reset.swap(1, Relaxed) == 0;
        if first {
            status.error.store(errno.unsigned_abs(), Relaxed);
        }
        first
    }

    /// Breaks the stream off for a reason of our own, `why`, and has the far side reset: it would wait for ever.
    #[cold]
    pub fn give_up(&self, why: &str) {
        if self.break_off(libc::ECONNRESET) {
            self.daemon.broken_off(self.circuit, self.token, why);
        }
    }

    /// The other direction of the channel that `tx` is, as the sender wants it: credit rides along with records, both
    /// ways, unless a host between is there.
    #[inline]
    fn credits<'a>(&'a self, tx: &'a Generation) -> Duplex<'a, Inbound> {
        Duplex { words: &tx.segments.inbound, consumer: &self.shared.consumer, rides: tx.segments.way.rides }
    }

    /// The waiter that wants to know of data, unless it was rung for this request already. Call it after the data
    /// was stored: there is a full fence in between.
    #[inline(always)]
    fn data_waiter(&self, tx: &Generation) -> Option<WaiterId> {
        let _span = account::sending(Function::Acknowledge);
        tx.segments.outbound.fence();
        answer(tx.segments.inbound.load_u64(WANT_DATA), &self.shared.sending.rung)
    }

    /// The waiter that wants to know of room.
    fn room_waiter(&self, rx: &Generation) -> Option<WaiterId> {
        let _span = account::receiving(Function::Acknowledge);
        rx.segments.outbound.fence();
        answer(rx.segments.inbound.load_u64(WANT_ROOM), &self.shared.receiving.rung)
    }

    /// Breaks the stream off if the peer broke the protocol.
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

/// One more edge.
#[cold]
fn note(edges: &AtomicU32) {
    edges.fetch_add(1, Relaxed);
}

fn direction(word: &AtomicU32) -> Direction {
    Direction::from_u8(u8::try_from(word.load(Relaxed)).unwrap_or(u8::MAX))
}

fn add(counter: &core::sync::atomic::AtomicU64, bytes: usize) {
    counter.store(counter.load(Relaxed).wrapping_add(bytes as u64), Relaxed);
}

/// The waiter in a `WANT` word, once for each request.
fn answer(want: u64, rung: &core::sync::atomic::AtomicU64) -> Option<WaiterId> {
    if want == 0 || want == rung.load(Relaxed) {
        return None;
    }
    rung.store(want, Relaxed);
    let [w0, w1, w2, w3, ..] = want.to_le_bytes();
    Some(WaiterId(u32::from_le_bytes([w0, w1, w2, w3])))
}

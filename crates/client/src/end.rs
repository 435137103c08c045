//! One end of a stream: bytes into the neighbour's memory, bytes out of our own. No call here waits, and none but
//! the mapping at the start is a system call.

use crate::Grant;
use crate::shared::Shared;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use crosslane_shm::arena::Arena;
use crosslane_shm::lock::Reentered;
use crosslane_shm::ring::Violation;
use crosslane_shm::{Inbound, Load, Outbound, Store};
use crosslane_stream::{Direction, Effect, OutOfOrder, Side, handle_record, handle_send};
use crosslane_wire::record::Kind;
use crosslane_wire::slice::{
    ORDER, RING_MIN, STATE, STATE_ATTACHED, STATE_GONE, STATE_NONE, WANT_DATA, WANT_ROOM,
};
use crosslane_wire::{CircuitId, Tuple, WaiterId};
use std::io::{IoSlice, IoSliceMut};
use thiserror::Error;

/// Far waiters that may be asked for in vain.
const PATIENCE: u32 = 16;

/// Why nothing was moved.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// No data, or no room, now.
    #[error("nothing to do now")]
    WouldBlock,
    /// Receiving: end of file. Sending: this direction was shut down.
    #[error("the stream has ended")]
    Ended,
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
    /// A signal handler came in between a call on the same stream.
    #[error("re-entered from a signal handler")]
    Reentered,
}

impl From<Reentered> for Failure {
    fn from(_: Reentered) -> Self {
        Self::Reentered
    }
}

/// What was moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Payload bytes.
    pub bytes: usize,
    /// A waiter of the far side's that must be rung now.
    pub wake: Option<WaiterId>,
}

/// One process's hold on one end: the mapped slices and the state shared with other processes.
#[derive(Debug)]
pub struct End {
    shared: &'static Shared,
    inbound: Inbound,
    outbound: Outbound,
    life: &'static AtomicU32,
    side: Side,
    tuple: Tuple,
    circuit: CircuitId,
    token: u64,
    slot: u32,
    ring_max: u64,
}

impl End {
    /// Begins a new stream on a granted circuit, and greets the far side. `life` is the circuit's word on the
    /// daemon's life page.
    pub fn begin(grant: Grant, arena: &'static Arena, life: &'static AtomicU32) -> Result<Self, Failure> {
        let end = Self::resume(grant, arena, life);
        let shared = end.shared;
        shared.status.circuit.store(end.circuit.0, Relaxed);
        shared.status.token.store(end.token, Relaxed);
        shared.status.client.store(u32::from(end.side == Side::Client), Relaxed);
        shared.status.tx.store(Direction::Open as u32, Relaxed);
        end.outbound.store_u32(ORDER, 0);
        end.outbound.store_u32(STATE, STATE_ATTACHED);
        let greeted = shared.producer.push_control(&end.outbound, &end.inbound, end.side.greeting(), 0)?;
        debug_assert!(greeted, "a fresh ring has room");
        Ok(end)
    }

    /// Prepares the slot of a new stream: must come before [`Self::begin`].
    pub fn prepare(grant: &Grant, arena: &'static Arena) {
        let shared = Shared::of(arena, grant.slot);
        let cap = RING_MIN.min(grant.ring_max);
        shared.reset();
        shared.producer.reset(cap, grant.ring_max, grant.tx_key);
        shared.consumer.reset(cap, grant.ring_max, grant.rx_key);
    }

    /// Takes hold of a stream that another process of this program began.
    pub fn resume(grant: Grant, arena: &'static Arena, life: &'static AtomicU32) -> Self {
        Self {
            shared: Shared::of(arena, grant.slot),
            inbound: grant.inbound,
            outbound: grant.outbound,
            life,
            side: if grant.client { Side::Client } else { Side::Server },
            tuple: grant.tuple,
            circuit: grant.circuit,
            token: grant.token,
            slot: grant.slot,
            ring_max: grant.ring_max,
        }
    }

    /// The program wants no more than about `bytes` under way (`SO_SNDBUF`): the ring does not grow beyond that, nor
    /// below its first size.
    pub fn limit_sending(&self, bytes: u64) {
        let wanted = bytes.clamp(RING_MIN.min(self.ring_max), self.ring_max).next_power_of_two();
        self.shared.producer.limit(wanted);
    }

    /// State shared with the other processes that hold this end.
    pub fn shared(&self) -> &'static Shared {
        self.shared
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

    /// Slot of the arena.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Which end this is.
    pub fn side(&self) -> Side {
        self.side
    }

    /// What we load from.
    pub(crate) fn inbound(&self) -> &Inbound {
        &self.inbound
    }

    /// What we store into.
    pub(crate) fn outbound(&self) -> &Outbound {
        &self.outbound
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

    /// Whether the daemon has declared the circuit dead: the reason, not 0.
    #[inline]
    pub fn dead(&self) -> Option<u32> {
        match self.life.load(Relaxed) {
            0 => None,
            reason => Some(reason),
        }
    }

    /// Copies as much of `buffers`, from their byte `skip` on, as there is room for.
    pub fn try_send(&self, tid: u32, buffers: &[IoSlice<'_>], skip: usize) -> Result<Moved, Failure> {
        let sending = &self.shared.sending;
        let bytes = {
            let _guard = sending.lock.lock(tid)?;
            self.may_send(Kind::Data)?;
            if self.gone() {
                return self.send_to_nobody(total(buffers) - skip);
            }
            self.stamp();
            self.guarded(self.push_all(buffers, skip))?
        };
        if bytes < total(buffers) - skip {
            sending.blocked.fetch_add(1, Relaxed);
            if bytes == 0 {
                return Err(Failure::WouldBlock);
            }
        }
        add(&self.shared.counters.tx_bytes, bytes);
        Ok(Moved { bytes, wake: self.data_bell() })
    }

    /// Copies what has arrived into `buffers`. [`Failure::Ended`] is end of file.
    pub fn try_receive(&self, tid: u32, buffers: &mut [IoSliceMut<'_>]) -> Result<Moved, Failure> {
        let (bytes, gave) = {
            let _guard = self.shared.receiving.lock.lock(tid)?;
            let fin = self.has_fin();
            let bytes = self.guarded(self.take_all(buffers))?;
            if bytes == 0 {
                return Err(self.nothing_left(fin));
            }
            (bytes, self.shared.consumer.give_credit(&self.outbound, false))
        };
        add(&self.shared.counters.rx_bytes, bytes);
        Ok(Moved { bytes, wake: if gave { self.room_bell() } else { None } })
    }

    /// Copies what has arrived without consuming it (`MSG_PEEK`).
    pub fn try_peek(&self, tid: u32, buffers: &mut [IoSliceMut<'_>]) -> Result<usize, Failure> {
        let _guard = self.shared.receiving.lock.lock(tid)?;
        let fin = self.has_fin();
        self.guarded(self.settle())?;
        let bytes = self.guarded(self.peek_all(buffers))?;
        if bytes == 0 { Err(self.nothing_left(fin)) } else { Ok(bytes) }
    }

    /// Payload bytes that lie unread (`FIONREAD`).
    pub fn unread(&self, tid: u32) -> Result<usize, Failure> {
        let _guard = self.shared.receiving.lock.lock(tid)?;
        self.guarded(self.settle())?;
        let (ring, consumer) = (&self.inbound, &self.shared.consumer);
        let (mut cursor, mut bytes) = (consumer.cursor(), 0);
        while cursor.position() - consumer.position() < cursor.cap() {
            let Some(header) = self.guarded(cursor.look(ring).map_err(Failure::from))? else { break };
            match header.kind {
                Kind::Data => bytes += header.len as usize,
                Kind::Filler => {}
                _ => break,
            }
            cursor.pass(header);
        }
        Ok(bytes.saturating_sub(consumer.taken()))
    }

    /// Bytes of ring that the far side has not confirmed to have consumed (`SIOCOUTQ`, about).
    pub fn unconfirmed(&self) -> u64 {
        self.shared.producer.unconfirmed(&self.inbound).unwrap_or(0)
    }

    /// Sends a record without payload that changes the direction: `DisConn`, `Downgrade`, `AbortConn`.
    pub fn turn(&self, tid: u32, kind: Kind) -> Result<Moved, Failure> {
        let _guard = self.shared.sending.lock.lock(tid)?;
        let next = self.may_send(kind)?;
        self.stamp();
        let (ring, credits) = (&self.outbound, &self.inbound);
        let pushed = self.shared.producer.push_control(ring, credits, kind, 0).map_err(Failure::from);
        if !self.guarded(pushed)? {
            return Err(Failure::WouldBlock);
        }
        self.shared.status.tx.store(next as u32, Relaxed);
        Ok(Moved { bytes: 0, wake: self.data_bell() })
    }

    /// Whether the far side ever took the circuit. A connecting side does so before its SYN, so when its connection
    /// is accepted this is final.
    pub fn was_attached(&self) -> bool {
        self.inbound.load_u32(STATE) != STATE_NONE
    }

    /// Whether nobody is there any more who could read what we send: the far end was closed, or its connection ended
    /// without a word (its last holder was killed or left by `_exit`).
    #[inline]
    pub fn gone(&self) -> bool {
        if self.inbound.load_u32(STATE) == STATE_GONE {
            return true;
        }
        self.shared.status.fin.load(Relaxed) != 0
            && matches!(self.rx(), Direction::Open | Direction::Greeting)
            && !self.shared.consumer.arrived(&self.inbound)
    }

    /// As TCP has it: the first bytes to a closed far end seem to be sent and are answered by a reset, the next ones
    /// fail.
    fn send_to_nobody(&self, bytes: usize) -> Result<Moved, Failure> {
        let unheard = &self.shared.status.unheard;
        let before = if bytes == 0 { unheard.load(Relaxed) } else { unheard.swap(1, Relaxed) };
        if before == 0 {
            return Ok(Moved { bytes, wake: None });
        }
        Err(Failure::Ended)
    }

    /// Whether the far side's waiters may still be asked for: one that names waiters which do not exist would hold us
    /// up with questions for ever.
    pub fn is_patient(&self) -> bool {
        self.shared.status.unfound.load(Relaxed) < PATIENCE
    }

    /// A far waiter was asked for and not found.
    pub fn not_found(&self) {
        self.shared.status.unfound.fetch_add(1, Relaxed);
    }

    /// A bell could not be rung: the next record or credit rings it again.
    pub fn ring_again(&self) {
        self.shared.sending.rung.store(0, Relaxed);
        self.shared.receiving.rung.store(0, Relaxed);
    }

    /// Tells the far side that this end is gone for good.
    pub fn leave(&self) {
        self.outbound.store_u32(STATE, STATE_GONE);
    }

    /// Handles records that are not the program's: greetings, turns. Takes no lock by force: if another thread holds
    /// it, that thread does it.
    /// What breaks the protocol stays where it is, for the receive that comes: that one can tell.
    pub fn refresh(&self, tid: u32) {
        if let Some(_guard) = self.shared.receiving.lock.try_lock(tid) {
            let _ = self.settle();
        }
    }

    /// Breaks the stream off: `errno` is told once.
    pub fn break_off(&self, errno: i32) {
        let status = &self.shared.status;
        if status.reset.swap(1, Relaxed) == 0 {
            status.error.store(errno.unsigned_abs(), Relaxed);
        }
    }

    /// The waiter that wants to know of data, unless it was rung for this request already. Call it after the data
    /// was stored: there is a full fence in between.
    pub(crate) fn data_bell(&self) -> Option<WaiterId> {
        self.outbound.fence();
        answer(self.inbound.load_u64(WANT_DATA), &self.shared.sending.rung)
    }

    /// The waiter that wants to know of room.
    pub(crate) fn room_bell(&self) -> Option<WaiterId> {
        self.outbound.fence();
        answer(self.inbound.load_u64(WANT_ROOM), &self.shared.receiving.rung)
    }

    /// Whether records carry the time is for the far side to say.
    #[inline]
    fn stamp(&self) {
        self.shared.producer.stamp(self.inbound.load_u32(ORDER) != 0);
    }

    fn may_send(&self, kind: Kind) -> Result<Direction, Failure> {
        if self.shared.status.reset.load(Relaxed) != 0 || self.dead().is_some() {
            return Err(Failure::Reset);
        }
        let state = self.tx();
        handle_send(state, kind).ok_or(match state {
            Direction::Tcp => Failure::Tcp,
            _ => Failure::Ended,
        })
    }

    fn push_all(&self, buffers: &[IoSlice<'_>], mut skip: usize) -> Result<usize, Failure> {
        let (producer, mut done) = (&self.shared.producer, 0);
        let cpu = self.processor();
        for buffer in buffers {
            let Some(rest) = buffer.get(skip..) else {
                skip -= buffer.len();
                continue;
            };
            skip = 0;
            let pushed = producer.push(&self.outbound, &self.inbound, Kind::Data, rest, cpu)?;
            done += pushed;
            if pushed < rest.len() {
                break;
            }
        }
        Ok(done)
    }

    fn take_all(&self, buffers: &mut [IoSliceMut<'_>]) -> Result<usize, Failure> {
        let (ring, consumer, mut done) = (&self.inbound, &self.shared.consumer, 0);
        for buffer in buffers {
            let mut at = 0;
            while at < buffer.len() {
                if !self.settle()? {
                    return Ok(done);
                }
                let taken = consumer.take(ring, &mut buffer[at..])?;
                (at, done) = (at + taken, done + taken);
            }
        }
        Ok(done)
    }

    fn peek_all(&self, buffers: &mut [IoSliceMut<'_>]) -> Result<usize, Failure> {
        let (ring, consumer) = (&self.inbound, &self.shared.consumer);
        let (mut cursor, mut skip, mut done) = (consumer.cursor(), consumer.taken(), 0);
        for buffer in buffers {
            let mut at = 0;
            while at < buffer.len() {
                let Some(header) = cursor.look(ring)? else { return Ok(done) };
                match header.kind {
                    Kind::Data => {}
                    Kind::Filler => {
                        cursor.pass(header);
                        continue;
                    }
                    _ => return Ok(done),
                }
                let left = (header.len as usize).saturating_sub(skip);
                let count = left.min(buffer.len() - at);
                cursor.read(ring, skip, &mut buffer[at..at + count]);
                (at, done, skip) = (at + count, done + count, skip + count);
                if count == left {
                    cursor.pass(header);
                    skip = 0;
                }
            }
        }
        Ok(done)
    }

    /// Consumes records until one with payload for the program is at the front: `Ok(true)`, or none is there.
    #[inline]
    fn settle(&self) -> Result<bool, Failure> {
        let (ring, consumer) = (&self.inbound, &self.shared.consumer);
        loop {
            let state = self.rx();
            if !matches!(state, Direction::Open | Direction::Greeting) {
                return Ok(false);
            }
            let Some(head) = consumer.head(ring)? else { return Ok(false) };
            let (next, effect) = handle_record(self.side, state, head.kind)?;
            if effect == Effect::Deliver && head.left > 0 {
                self.shared.receiving.peer_cpu.store(u32::from(head.cpu), Relaxed);
                return Ok(true);
            }
            consumer.consume()?;
            self.shared.status.rx.store(next as u32, Relaxed);
            if next == Direction::Aborted {
                self.break_off(libc::ECONNRESET);
            }
        }
    }

    /// Whether the far side's FIN was seen. To be asked before the ring is looked at: what the far side stored before
    /// its FIN is in the ring then, while another thread may see the FIN at any moment after.
    fn has_fin(&self) -> bool {
        self.shared.status.fin.load(Acquire) != 0
    }

    /// Why there is nothing to receive; `fin`: the far side's FIN was seen before the ring was found empty.
    fn nothing_left(&self, fin: bool) -> Failure {
        let status = &self.shared.status;
        if self.dead().is_some() || status.reset.load(Relaxed) != 0 {
            return Failure::Reset;
        }
        match self.rx() {
            Direction::Tcp => Failure::Tcp,
            Direction::Ended => Failure::Ended,
            Direction::Aborted => Failure::Reset,
            _ if fin || status.read_shut.load(Relaxed) != 0 => Failure::Ended,
            _ => Failure::WouldBlock,
        }
    }

    /// Breaks the stream off if the peer broke the protocol.
    fn guarded<T>(&self, outcome: Result<T, Failure>) -> Result<T, Failure> {
        if let Err(Failure::Violation(_) | Failure::OutOfOrder(_)) = outcome {
            self.break_off(libc::ECONNRESET);
            self.shared.status.rx.store(Direction::Aborted as u32, Relaxed);
            self.shared.status.tx.store(Direction::Aborted as u32, Relaxed);
        }
        outcome
    }

    /// The processor we run on, looked up at every 64th send.
    fn processor(&self) -> u16 {
        let sending = &self.shared.sending;
        let sends = sending.sends.load(Relaxed);
        sending.sends.store(sends.wrapping_add(1), Relaxed);
        if sends.is_multiple_of(64) {
            let cpu = rustix::thread::sched_getcpu();
            sending.cpu.store(u32::try_from(cpu).unwrap_or(0), Relaxed);
        }
        u16::try_from(sending.cpu.load(Relaxed)).unwrap_or(0)
    }
}

fn direction(word: &AtomicU32) -> Direction {
    Direction::from_u8(u8::try_from(word.load(Relaxed)).unwrap_or(u8::MAX))
}

fn total(buffers: &[IoSlice<'_>]) -> usize {
    buffers.iter().map(|buffer| buffer.len()).sum()
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

//! Readiness of an end, and requests to be woken: what `poll` and `epoll` ask of a stream.

use super::CircuitEnd;
use super::moving::LockHeld;
use super::walk::Walk;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crosslane_shm::Store;
use crosslane_shm::ring::Cursor;
use crosslane_stream::Direction;
use crosslane_wire::WaiterId;
use crosslane_wire::segment::{LINE, ORDER, WANT_DATA, WANT_ROOM};

/// What an end is ready for, in the terms of `poll`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// A receive would not wait: data, end of file, or an error.
    pub readable: bool,
    /// A send would not wait: room, or an error.
    pub writable: bool,
    /// The far side sends no more (`POLLRDHUP`).
    pub read_closed: bool,
    /// Both directions are over (`POLLHUP`).
    pub hung_up: bool,
    /// An error waits to be reported to the program (`POLLERR`).
    pub error: bool,
}

/// The place in the stream up to which arrivals were seen; see [`CircuitEnd::arrivals`].
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    cursor: Cursor,
    /// The newest generation at that time.
    circuit: u32,
    /// What had arrived by the second circuit of a striped stream ([`CircuitEnd::arrived`]).
    pub(super) behind: Option<(u32, u64)>,
}

impl CircuitEnd {
    /// What the end is ready for now. For a direction that travels by TCP this has no answer: ask the kernel.
    pub fn ready(&self, tid: u32) -> Ready {
        self.attend(tid);
        let status = &self.shared().status;
        if status.reset.load(Relaxed) != 0 || self.dead().is_some() {
            let error = status.error.load(Relaxed) != 0
                || self.dead().is_some_and(|_| status.reset.load(Relaxed) == 0);
            return Ready { readable: true, writable: true, read_closed: true, hung_up: true, error };
        }
        let data = self.has_data(tid) && self.has_enough(tid);
        let fin = self.has_fin() || self.rx() == Direction::Ended;
        let read_closed = fin || status.read_shut.load(Relaxed) != 0;
        let tx_over = self.tx() == Direction::Ended || self.is_ending();
        Ready {
            readable: data || (read_closed && self.rx() != Direction::Tcp),
            writable: tx_over || self.has_room(tid) || self.gone(),
            read_closed,
            hung_up: read_closed && tx_over,
            error: false,
        }
    }

    /// Whether payload lies at the front of the ring.
    #[inline]
    pub fn has_data(&self, tid: u32) -> bool {
        if !self.is_steady() {
            return self.has_data_meanwhile(tid) && self.may_receive();
        }
        if !self.has_arrived() {
            return false;
        }
        if self.shared().consumer.elsewhere() > 0 {
            return self.may_receive();
        }
        let walk = self.shared().consumer.glance().and_then(|front| self.walk(front));
        let front = walk.map(|mut walk| walk.look());
        if matches!(front, Some(Ok(Some(header))) if header.kind.has_bytes()) {
            return self.may_receive();
        }
        self.refresh(tid);
        self.has_arrived() && self.may_receive()
    }

    /// Whether as many bytes lie unread as the program's `SO_RCVLOWAT` demands. A ring that is nearly full is enough: its sender waits.
    fn has_enough(&self, tid: u32) -> bool {
        let least = self.shared().status.low_water.load(Relaxed) as usize;
        least <= 1 || self.unread_with(tid).map_or(true, |(unread, is_full)| unread >= least || is_full)
    }

    /// Whether a receive would look at the ring. Records before the handshake are for the receive to refuse.
    fn may_receive(&self) -> bool {
        matches!(self.rx(), Direction::Open | Direction::Handshake)
    }

    /// Whether something changed that a waiting receiver must look at; one load if nothing did. While the stream is
    /// between two circuits, nothing changes.
    #[inline]
    pub fn maybe_readable(&self) -> bool {
        if self.is_steady() { self.has_arrived() } else { self.maybe_readable_meanwhile() }
    }

    /// Whether a quarter of the ring is free, or can be had by growth: this counts as writable.
    #[inline]
    pub fn has_room(&self, tid: u32) -> bool {
        if !self.is_steady() && !self.may_go_on(tid, LockHeld::Nothing).unwrap_or(false) {
            return false;
        }
        let (producer, credits) = (&self.shared().producer, self.credits(self.generations.tx()));
        let in_ring =
            if producer.may_grow() { producer.glance(&credits, LINE) >= LINE } else { self.has_credit() };
        in_ring && self.can_keep()
    }

    /// Payload bytes that a send would certainly take now.
    pub fn room(&self, tid: u32) -> usize {
        if !self.is_steady() && !self.may_go_on(tid, LockHeld::Nothing).unwrap_or(false) {
            return 0;
        }
        let producer = &self.shared().producer;
        let growth = if producer.may_grow() { producer.cap() } else { 0 };
        let room = producer.glance(&self.credits(self.generations.tx()), u64::MAX).saturating_add(growth);
        let room = room.saturating_sub(room / 256 + 256).min(self.keeping_glance());
        usize::try_from(room).unwrap_or(0)
    }

    /// Moves `seen` over the records that have arrived and returns whether there were any: an edge for `EPOLLET`. If
    /// other threads receive meanwhile, this may report an edge too many, never one too few. Records seen on an earlier
    /// circuit count as new on the next one: a receive in between may have been refused.
    pub fn arrivals(&self, seen: &mut Option<Seen>) -> bool {
        let (consumer, circuit) = (&self.shared().consumer, self.generations.newest().number());
        let note = |cursor| Seen { cursor, circuit, behind: None };
        let Some(front) = consumer.glance() else {
            *seen = None;
            return true;
        };
        let before = seen.take().filter(|seen| seen.circuit == circuit).map(|seen| seen.cursor);
        let start = before.filter(|before| place(before) >= place(&front)).unwrap_or(front);
        let mut any = before.is_some_and(|before| place(&before) < place(&start));
        let Some(mut walk) = self.walk(start).map(Walk::through) else { return true };
        while let Ok(Some(header)) = walk.look() {
            any = true;
            if (consumer.generation(), consumer.position(), 0) > place(&walk.cursor()) {
                // Another thread consumed meanwhile: the words that were read may belong to a later lap of the ring.
                *seen = consumer.glance().map(note);
                return true;
            }
            walk.pass(header);
        }
        *seen = Some(note(walk.cursor()));
        any
    }

    /// Number of the newest generation, and the stream offset that has arrived, while another thread does not consume: for the second
    /// circuit of a striped stream, of which no place is kept.
    pub(super) fn arrived(&self) -> Option<(u32, u64)> {
        let consumer = &self.shared().consumer;
        let mut walk = self.walk(consumer.glance()?)?.through();
        while let Ok(Some(header)) = walk.look() {
            walk.pass(header);
        }
        let (at, now) = (walk.cursor(), consumer.glance()?);
        (place(&now) <= place(&at)).then(|| (self.generations.newest().number(), at.units()))
    }

    /// A number that changes when the far side must be asked again for a wake at the next data: when the ring changes,
    /// and when bytes were received from it.
    pub fn wake_mark(&self) -> (u32, u64) {
        let consumer = &self.shared().consumer;
        (self.generations.newest().number(), consumer.position().wrapping_add(consumer.taken() as u64))
    }

    /// Asks the far side to stamp all later records with the time; see [`Self::stamp_of_front`].
    pub fn want_stamps(&self) {
        self.shared().receiving.order.store(1, Relaxed);
        self.generations.newest().segments.outbound.store_u32(ORDER, 1);
    }

    /// When the record at the front was sent, to be ordered by `crosslane_wire::record::rank`; 0 if unknown, or if another machine's
    /// clock says so.
    pub fn stamp_of_front(&self) -> u32 {
        if !self.has_near_writer() {
            return 0;
        }
        let walk = self.shared().consumer.glance().and_then(|front| self.walk(front));
        walk.map_or(0, |walk| walk.cursor().stamp(walk.inbound()))
    }

    /// Called before a sleep, for an end that other processes hold as well: one of them may have been killed between moving bytes
    /// and giving credit or waking. Gives credit that is due, and returns the far side's sleepers, which the caller must wake.
    pub fn make_good(&self, tid: u32) -> [Option<WaiterId>; 2] {
        let (tx, rx) = (self.generations.tx(), self.generations.rx());
        if let Some(_guard) = self.shared().receiving.lock.try_lock(tid) {
            self.shared().consumer.give_credit(&rx.segments.outbound, true);
        }
        self.wake_again();
        [self.data_waiter(tx), self.room_waiter(rx)]
    }

    /// Asks the far side to wake `waiter` at the next data. Look once more before you sleep, and again when stores under
    /// way have landed (`crosslane_shm::arm`, with [`Self::in_flight_ns`]). `false` if another waiter is registered
    /// already: then sleep for a short time only.
    pub fn want_data(&self, waiter: WaiterId) -> bool {
        // Bytes that must be sent again need room first, even if the caller waits for the answer to them.
        let room = !self.is_steady() && self.owes();
        self.request(WANT_DATA, &self.shared().waiting.data, waiter) & (!room || self.want_room(waiter))
    }

    /// Asks the far side to wake `waiter` when there is room; like [`Self::want_data`].
    pub fn want_room(&self, waiter: WaiterId) -> bool {
        self.request(WANT_ROOM, &self.shared().waiting.room, waiter)
    }

    /// Withdraws the request of `waiter`, which is awake again.
    pub fn unwant_data(&self, waiter: WaiterId) {
        self.withdraw_request(WANT_DATA, &self.shared().waiting.data, waiter);
        self.unwant_room(waiter);
    }

    /// Withdraws the request of `waiter`, which is awake again.
    pub fn unwant_room(&self, waiter: WaiterId) {
        self.withdraw_request(WANT_ROOM, &self.shared().waiting.room, waiter);
    }

    /// Removes the requests of waiters that no longer exist.
    pub fn forget_waiters(&self) {
        self.shared().waiting.data.store(0, Relaxed);
        self.shared().waiting.room.store(0, Relaxed);
    }

    fn request(&self, word: usize, owner: &core::sync::atomic::AtomicU32, waiter: WaiterId) -> bool {
        let taken = owner.compare_exchange(0, waiter.0, Acquire, Acquire);
        if taken.is_err_and(|present| present != waiter.0) {
            return false;
        }
        let sequence = self.shared().waiting.sequence.fetch_add(1, Relaxed).wrapping_add(1);
        let outbound = &self.generations.newest().segments.outbound;
        outbound.store_u64(word, u64::from(sequence) << 32 | u64::from(waiter.0));
        outbound.fence();
        true
    }

    fn withdraw_request(&self, word: usize, owner: &core::sync::atomic::AtomicU32, waiter: WaiterId) {
        if owner.load(Relaxed) == waiter.0 {
            self.generations.newest().segments.outbound.store_u64(word, 0);
            owner.store(0, Release);
        }
    }
}

/// Orders places in a stream's rings.
fn place(cursor: &Cursor) -> (u32, u64, usize) {
    (cursor.generation(), cursor.position(), cursor.taken())
}

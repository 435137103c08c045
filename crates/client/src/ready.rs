//! Is an end ready, and wake me when it is: what `poll` and `epoll` ask of a stream.

use crate::End;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crosslane_shm::Store;
use crosslane_shm::ring::Cursor;
use crosslane_stream::Direction;
use crosslane_wire::WaiterId;
use crosslane_wire::record::{CPU_MASK, Kind};
use crosslane_wire::slice::{LINE, ORDER, WANT_DATA, WANT_ROOM};

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
    /// An error waits to be told (`POLLERR`).
    pub error: bool,
}

impl End {
    /// What the end is ready for now. Of a direction that travels by TCP it says nothing: ask the kernel.
    pub fn ready(&self, tid: u32) -> Ready {
        let status = &self.shared().status;
        if status.reset.load(Relaxed) != 0 || self.dead().is_some() {
            let error = status.error.load(Relaxed) != 0
                || self.dead().is_some_and(|_| status.reset.load(Relaxed) == 0);
            return Ready { readable: true, writable: true, read_closed: true, hung_up: true, error };
        }
        let data = self.has_data(tid);
        let fin = status.fin.load(Relaxed) != 0 || self.rx() == Direction::Ended;
        let read_closed = fin || status.read_shut.load(Relaxed) != 0;
        let tx_over = self.tx() == Direction::Ended;
        Ready {
            readable: data || (read_closed && self.rx() != Direction::Tcp),
            writable: tx_over || self.has_room() || self.gone(),
            read_closed,
            hung_up: read_closed && tx_over,
            error: false,
        }
    }

    /// Whether payload lies at the front of the ring.
    #[inline]
    pub fn has_data(&self, tid: u32) -> bool {
        let consumer = &self.shared().consumer;
        if !consumer.arrived(self.inbound()) {
            return false;
        }
        let front = consumer.glance().map(|cursor| cursor.look(self.inbound()));
        if matches!(front, Some(Ok(Some(header))) if header.kind == Kind::Data) {
            return self.may_receive();
        }
        self.refresh(tid);
        consumer.arrived(self.inbound()) && self.may_receive()
    }

    /// Whether a receive looks at the ring. What comes before the greeting is for it to refuse.
    fn may_receive(&self) -> bool {
        matches!(self.rx(), Direction::Open | Direction::Greeting)
    }

    /// Whether something changed that a waiting receiver must look at; one load when nothing did.
    #[inline]
    pub fn stirred(&self) -> bool {
        self.shared().consumer.arrived(self.inbound()) || self.dead().is_some()
    }

    /// Whether a quarter of the ring is free, or can be had by growth: what counts as writable.
    #[inline]
    pub fn has_room(&self) -> bool {
        let producer = &self.shared().producer;
        if producer.may_grow() { producer.glance(self.inbound(), LINE) >= LINE } else { self.has_credit() }
    }

    /// Payload bytes that a send would surely take now.
    pub fn room(&self) -> usize {
        let producer = &self.shared().producer;
        let growth = if producer.may_grow() { producer.cap() } else { 0 };
        let room = producer.glance(self.inbound(), u64::MAX) + growth;
        usize::try_from(room.saturating_sub(room / 256 + 256)).unwrap_or(0)
    }

    /// Moves `seen` over what has arrived and returns whether that was anything: an edge for `EPOLLET`. Other threads
    /// may be receiving: an edge too many is possible then, one too few is not.
    pub fn arrivals(&self, seen: &mut Option<Cursor>) -> bool {
        let consumer = &self.shared().consumer;
        let Some(front) = consumer.glance() else {
            *seen = None;
            return true;
        };
        let mut cursor = match *seen {
            Some(cursor) if cursor.position() >= front.position() => cursor,
            _ => front,
        };
        let mut any = seen.is_some_and(|seen| seen.position() < cursor.position());
        while cursor.position() - front.position() < cursor.cap() {
            let Ok(Some(header)) = cursor.look(self.inbound()) else { break };
            any = true;
            if consumer.position() > cursor.position() {
                // Consumed meanwhile: what was read may belong to a later lap.
                *seen = consumer.glance();
                return true;
            }
            cursor.pass(header);
        }
        *seen = Some(cursor);
        any
    }

    /// Asks the far side to stamp what it sends from now on; see [`Self::stamp_of_front`].
    pub fn want_stamps(&self) {
        self.outbound().store_u32(ORDER, 1);
    }

    /// When the record at the front was sent, to be ranked by `crosslane_wire::record::rank`; 0 if that is not known.
    pub fn stamp_of_front(&self) -> u32 {
        self.shared().consumer.glance().map_or(0, |cursor| cursor.stamp(self.inbound()))
    }

    /// Asks the far side to ring `waiter` at the next data. Look once more before you sleep. `false` if another
    /// waiter is to be rung already: sleep for a short time only, then.
    pub fn want_data(&self, waiter: WaiterId) -> bool {
        self.want(WANT_DATA, &self.shared().waiting.data, waiter)
    }

    /// Asks the far side to ring `waiter` when there is room; like [`Self::want_data`].
    pub fn want_room(&self, waiter: WaiterId) -> bool {
        self.want(WANT_ROOM, &self.shared().waiting.room, waiter)
    }

    /// `waiter` is awake again.
    pub fn unwant_data(&self, waiter: WaiterId) {
        self.unwant(WANT_DATA, &self.shared().waiting.data, waiter);
    }

    /// `waiter` is awake again.
    pub fn unwant_room(&self, waiter: WaiterId) {
        self.unwant(WANT_ROOM, &self.shared().waiting.room, waiter);
    }

    /// Frees a request of a waiter that no longer exists.
    pub fn forget_waiters(&self) {
        self.shared().waiting.data.store(0, Relaxed);
        self.shared().waiting.room.store(0, Relaxed);
    }

    fn want(&self, word: usize, owner: &core::sync::atomic::AtomicU32, waiter: WaiterId) -> bool {
        let taken = owner.compare_exchange(0, waiter.0, Acquire, Acquire);
        if taken.is_err_and(|present| present != waiter.0) {
            return false;
        }
        let sequence = self.shared().waiting.sequence.fetch_add(1, Relaxed).wrapping_add(1);
        self.outbound().store_u64(word, u64::from(sequence) << 32 | u64::from(waiter.0));
        self.outbound().fence();
        true
    }

    fn unwant(&self, word: usize, owner: &core::sync::atomic::AtomicU32, waiter: WaiterId) {
        if owner.load(Relaxed) == waiter.0 {
            self.outbound().store_u64(word, 0);
            owner.store(0, Release);
        }
    }
}

/// Whether the far side's last record came from the processor that we run on: then spinning keeps it from running.
pub fn same_processor(end: &End) -> bool {
    let mine = u32::try_from(rustix::thread::sched_getcpu()).unwrap_or(u32::MAX) & u32::from(CPU_MASK);
    end.shared().receiving.peer_cpu.load(Relaxed) == mine
}

//! Readiness of a stream of one circuit or two, and requests to be woken.

use super::{CircuitEnd, End};
use crate::Ready;
use crate::end::ready::Seen;
use core::sync::atomic::Ordering::Relaxed;
use crosslane_stream::Direction;
use crosslane_wire::WaiterId;

impl End {
    /// As [`CircuitEnd::ready`](CircuitEnd::ready).
    pub fn ready(&self, tid: u32) -> Ready {
        let Some(twin) = self.twin() else { return self.first.ready(tid) };
        self.attend(tid);
        let status = &self.first.shared.status;
        if status.reset.load(Relaxed) != 0 || self.dead().is_some() {
            let error = status.error.load(Relaxed) != 0
                || self.dead().is_some_and(|_| status.reset.load(Relaxed) == 0);
            return Ready { readable: true, writable: true, read_closed: true, hung_up: true, error };
        }
        let (end, _) = self.receiving();
        let data = end.has_data(tid) && self.has_enough(tid);
        let fin = end.has_fin() || end.rx() == Direction::Ended;
        let read_closed = fin || status.read_shut.load(Relaxed) != 0;
        let tx_over = self.first.tx() == Direction::Ended || self.first.is_ending();
        Ready {
            readable: data || (read_closed && end.rx() != Direction::Tcp),
            writable: tx_over || self.has_room(tid) || self.first.gone() || twin.gone(),
            read_closed,
            hung_up: read_closed && tx_over,
            error: false,
        }
    }

    /// Whether as many bytes lie unread as the program's `SO_RCVLOWAT` demands, or a sender waits for room.
    fn has_enough(&self, tid: u32) -> bool {
        let least = self.first.shared.status.low_water.load(Relaxed) as usize;
        least <= 1 || self.unread_with(tid).map_or(true, |(unread, is_full)| unread >= least || is_full)
    }

    /// As [`CircuitEnd::maybe_readable`](CircuitEnd::maybe_readable), where the next byte comes.
    #[inline]
    pub fn maybe_readable(&self) -> bool {
        self.receiving().0.maybe_readable()
    }

    /// As [`CircuitEnd::arrivals`](CircuitEnd::arrivals), by either circuit.
    pub fn arrivals(&self, seen: &mut Option<Seen>) -> bool {
        let Some(twin) = self.twin() else { return self.first.arrivals(seen) };
        let (before, now) = (seen.and_then(|seen| seen.behind), twin.arrived());
        let more = match (before, now) {
            (_, None) => true,
            (None, Some(_)) => twin.maybe_readable(),
            (before, now) => before != now,
        };
        let any = self.first.arrivals(seen) | more;
        if let Some(seen) = seen {
            seen.behind = now;
        }
        any
    }

    /// As [`CircuitEnd::wake_mark`](CircuitEnd::wake_mark), of both circuits.
    pub fn wake_mark(&self) -> (u32, u64) {
        let (number, at) = self.first.wake_mark();
        let Some(twin) = self.twin() else { return (number, at) };
        let (other, behind) = twin.wake_mark();
        (number.wrapping_add(other.rotate_left(16)), at.wrapping_add(behind))
    }

    /// As [`CircuitEnd::want_stamps`](CircuitEnd::want_stamps), of both circuits.
    pub fn want_stamps(&self) {
        self.each(CircuitEnd::want_stamps);
    }

    /// As [`CircuitEnd::stamp_of_front`](CircuitEnd::stamp_of_front), where the next byte comes.
    pub fn stamp_of_front(&self) -> u32 {
        self.receiving().0.stamp_of_front()
    }

    /// As [`CircuitEnd::make_good`](CircuitEnd::make_good): wakes the second circuit's sleepers, and returns the first one's.
    pub fn make_good(&self, tid: u32) -> [Option<WaiterId>; 2] {
        if let Some(twin) = self.twin() {
            self.count_again(twin, tid);
            twin.make_good(tid).into_iter().flatten().for_each(|waiter| twin.daemon.ring(twin, waiter));
        }
        self.first.make_good(tid)
    }

    /// Stores the sums again: another holder may have been killed before it did.
    fn count_again(&self, twin: &CircuitEnd, tid: u32) {
        let (sending, receiving) = (&self.first.shared.sending, &self.first.shared.receiving);
        if let Some(_guard) = self.first.try_lock_sending(tid) {
            sending.striped.store(self.count_sent(twin), Relaxed);
        }
        if let Some(_first) = receiving.lock.try_lock(tid)
            && let Some(_second) = twin.shared.receiving.lock.try_lock(tid)
        {
            receiving.striped.store(self.count_received(twin), Relaxed);
        }
    }

    /// Asks the far side to wake `waiter` at the next data, by either circuit.
    pub fn want_data(&self, waiter: WaiterId) -> bool {
        let asked = self.first.want_data(waiter);
        self.twin().map_or(asked, |twin| asked & twin.want_data(waiter))
    }

    /// Withdraws the request of `waiter`, which is awake again.
    pub fn unwant_data(&self, waiter: WaiterId) {
        self.each(|end| end.unwant_data(waiter));
    }
}

//! What goes by in a ring that this host only hands on: counted by looking at it, without a store.

use core::cell::Cell;
use crosslane_shm::ring::Cursor;
use crosslane_shm::{Inbound, Load};
use crosslane_wire::record::Kind;
use crosslane_wire::segment::CREDIT;

/// Most records that are walked over in one look: some 0.1 ms.
const WALK: usize = 4096;

/// Counts one direction of a circuit. As long as the ring has not gone round since the last look the records themselves are
/// counted, so a short stream is counted to the byte; from then on the bytes of ring that the receiver has given back, with
/// heads and padding, and late by less than a ring. Both are words that the two programs write: a liar makes its own count wrong.
#[derive(Debug)]
pub(super) struct Meter(Cell<Count>);

#[derive(Clone, Copy, Debug)]
struct Count {
    cursor: Cursor,
    /// Records that carry no byte of the stream but count as a unit of it.
    controls: u64,
    /// Bytes of ring that were given back, once the ring was seen to have gone round.
    given: Option<Given>,
}

#[derive(Clone, Copy, Debug)]
struct Given {
    /// Where the records were counted up to, bytes of ring.
    from: u64,
    /// The highest credit seen, bytes of ring.
    to: u64,
}

impl Meter {
    /// Of a fresh ring of at most `ring_max` bytes, whose marks have this key.
    pub(super) fn new(ring_max: u64, key: u64) -> Self {
        Self(Cell::new(Count { cursor: Cursor::fresh(ring_max, key, 0), controls: 0, given: None }))
    }

    /// Bytes that have come by in `ring` so far, of which `back`, the segment of the other direction, has the credit.
    pub(super) fn look(&self, ring: &Inbound, back: &Inbound) -> u64 {
        let mut count = self.0.get();
        if count.given.is_none() {
            count.walk(ring);
        }
        // After the walk: what was given back before a place that the walk had reached is counted already.
        count.catch_up(back.load_u64(CREDIT));
        self.0.set(count);
        count.bytes()
    }
}

impl Count {
    fn walk(&mut self, ring: &Inbound) {
        for _ in 0..WALK {
            let Ok(Some(header)) = self.cursor.look(ring) else { return };
            self.controls += u64::from(!matches!(
                header.kind,
                Kind::Data | Kind::SrcAvail | Kind::SinkAvail | Kind::Filler | Kind::Message
            ));
            self.cursor.pass(header);
        }
    }

    fn catch_up(&mut self, credit: u64) {
        let from = self.given.map_or(self.cursor.position(), |given| given.from);
        let seen = self.given.map_or(from, |given| given.to);
        if credit > seen {
            self.given = Some(Given { from, to: credit });
        }
    }

    fn bytes(&self) -> u64 {
        let given = self.given.map_or(0, |given| given.to.wrapping_sub(given.from));
        self.cursor.units().saturating_sub(self.controls).wrapping_add(given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crosslane_shm::mem::new_segment;
    use crosslane_shm::ring::{Consumer, Producer};
    use crosslane_shm::{Outbound, Segment};
    use crosslane_wire::segment::{RING_MIN, segment_len};

    /// A segment as whoever stores into it and as those who load see it.
    fn segment(ring_max: u64) -> (Outbound, Inbound) {
        let len = segment_len(ring_max);
        let segment = Segment::sealed(new_segment("test", len).unwrap(), len);
        (Outbound::map(&segment).unwrap(), Inbound::map(&segment).unwrap())
    }

    #[test]
    fn meter_counts_a_short_stream_to_the_byte_and_a_long_one_within_a_ring() {
        let (max, key) = (RING_MIN, 7);
        let ((ring, arrived), (words, credit)) = (segment(max), segment(max));
        let (producer, consumer) = (Producer::default(), Consumer::default());
        producer.reset(max, max, key);
        consumer.reset(max, max, key);
        let meter = Meter::new(max, key);
        let sent = Cell::new(0);
        let pass = |len: usize| {
            assert_eq!(producer.push(&ring, &credit, Kind::Data, &vec![1; len], 0).unwrap(), len);
            let mut buffer = vec![0; len];
            let mut taken = 0;
            while taken < len {
                taken += consumer.take(&arrived, &mut buffer[taken..]).unwrap();
            }
            consumer.give_credit(&words, false);
            sent.set(sent.get() + len as u64);
            sent.get()
        };
        for len in [1, 100, 5000] {
            let sent = pass(len);
            assert_eq!(meter.look(&arrived, &credit), sent);
        }
        for _ in 0..50 {
            pass(10_000);
        }
        let (sent, seen) = (pass(1), meter.look(&arrived, &credit));
        assert!(seen + max >= sent && seen <= sent + sent / 50, "{seen} of {sent}");
        assert_eq!(meter.look(&arrived, &credit), seen, "nothing is counted twice");
    }
}

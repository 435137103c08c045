//! The ring against a queue: random operations on both, which must agree after each. A failing case prints its seed
//! and the shortest sequence that fails.

mod memory;

use crosslane_shm::ring::{Consumer, EASY, Producer};
use crosslane_wire::record::{BULK, Kind, MAX_MESSAGE, MAX_PACKET, MAX_PAYLOAD, max_message};
use crosslane_wire::segment::{LINE, segment_len};
use memory::{In, Out};
use proptest::prelude::*;
use std::collections::VecDeque;

/// A ring with both of its ends, and the queue that it must be equal to.
struct Pair {
    producer: Producer,
    consumer: Consumer,
    data: (Out, In),
    back: (Out, In),
    queue: VecDeque<Item>,
    next: u8,
    ring_max: u64,
}

/// What was pushed and not yet consumed.
#[derive(Debug, PartialEq)]
enum Item {
    /// Bytes of the stream, in no particular records.
    Data(VecDeque<u8>),
    /// One message; what was taken of it.
    Message(Vec<u8>, usize),
    Control(Kind),
}

impl Pair {
    fn new(cap: u64, ring_max: u64, key: u64) -> Self {
        let (producer, consumer) = (Producer::default(), Consumer::default());
        producer.reset(cap, ring_max, key);
        consumer.reset(cap, ring_max, key);
        let (data, back) = (memory::segment(segment_len(ring_max)), memory::segment(segment_len(64)));
        Self { producer, consumer, data, back, queue: VecDeque::new(), next: 0, ring_max }
    }

    /// Bytes unlike those around them.
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let from = self.next;
        self.next = from.wrapping_add(101);
        (0..len).map(|i| from.wrapping_add(u8::try_from(i % 253).unwrap_or(0))).collect()
    }

    fn push(&mut self, len: usize) -> usize {
        let bytes = self.bytes(len);
        let done = self.producer.push(&self.data.0, &self.back.1, Kind::Data, &bytes, 3).unwrap();
        if let Some(Item::Data(last)) = self.queue.back_mut() {
            last.extend(&bytes[..done]);
        } else if done > 0 {
            self.queue.push_back(Item::Data(bytes[..done].iter().copied().collect()));
        }
        done
    }

    fn push_message(&mut self, len: usize) -> bool {
        let bytes = self.bytes(len);
        let done = self.producer.push_message(&self.data.0, &self.back.1, &bytes, 3).unwrap();
        if done {
            self.queue.push_back(Item::Message(bytes, 0));
        }
        done
    }

    fn push_control(&mut self) -> bool {
        let done = self.producer.push_control(&self.data.0, &self.back.1, Kind::DisConn, 3).unwrap();
        if done {
            self.queue.push_back(Item::Control(Kind::DisConn));
        }
        done
    }

    /// Takes up to `len` bytes of the front record and compares them. Returns whether there was a record.
    fn take(&mut self, len: usize) -> bool {
        self.skip_fillers();
        let Some(head) = self.consumer.head(&self.data.1).unwrap() else {
            assert!(self.queue.is_empty(), "something was pushed and has not arrived");
            assert!(!self.consumer.arrived(&self.data.1));
            return false;
        };
        assert!(self.consumer.arrived(&self.data.1));
        assert_eq!(head.cpu, 3);
        let mut target = vec![0; len];
        let count = self.consumer.take(&self.data.1, &mut target).unwrap();
        assert_eq!(count, len.min(head.left));
        self.compare(head.kind, head.left, &target[..count]);
        true
    }

    fn compare(&mut self, kind: Kind, left: usize, got: &[u8]) {
        let done = match self.queue.front_mut().expect("a record from nowhere") {
            Item::Data(bytes) => {
                assert_eq!(kind, Kind::Data);
                assert!(bytes.drain(..got.len()).eq(got.iter().copied()), "other bytes than were pushed");
                bytes.is_empty()
            }
            Item::Message(bytes, taken) => {
                assert_eq!((kind, left), (Kind::Message, bytes.len() - *taken));
                assert_eq!(&bytes[*taken..*taken + got.len()], got);
                *taken += got.len();
                *taken == bytes.len()
            }
            Item::Control(expected) => {
                assert_eq!((kind, left), (*expected, 0));
                true
            }
        };
        if done {
            self.queue.pop_front();
        }
    }

    fn skip_fillers(&mut self) {
        while self.consumer.head(&self.data.1).unwrap().is_some_and(|head| head.kind == Kind::Filler) {
            self.consumer.consume().unwrap();
        }
    }

    /// Looks at everything without consuming it, and compares.
    fn peek(&mut self) {
        let (mut cursor, mut skip) = (self.consumer.cursor(), self.consumer.taken());
        let mut seen: Vec<u8> = Vec::new();
        while let Some(header) = cursor.look(&self.data.1).unwrap() {
            let mut bytes = vec![0; header.len as usize - skip];
            cursor.read_guarded(&self.data.1, header, skip, &mut bytes).unwrap().unwrap();
            if header.kind != Kind::Filler {
                seen.extend(bytes);
            }
            cursor.pass(header);
            skip = 0;
        }
        let expected: Vec<u8> = self.queue.iter().flat_map(Item::bytes).collect();
        assert!(seen == expected, "peek saw {} bytes, {} were there", seen.len(), expected.len());
        assert_eq!(cursor.position(), self.producer.position());
    }

    fn give_credit(&mut self, all: bool) {
        self.consumer.give_credit(&self.back.0, all);
    }

    fn check(&self) {
        let outstanding = self.producer.position() - self.consumer.position();
        assert!(outstanding <= self.producer.cap(), "more under way than the ring holds");
        assert!(self.producer.cap() <= self.ring_max);
    }

    /// Takes everything, gives back all credit; then the ring must be as good as new.
    fn drain(&mut self) {
        while self.take(1000) {}
        self.give_credit(true);
        assert_eq!(self.producer.unconfirmed(&self.back.1), Ok(0));
        assert_eq!(self.producer.position(), self.consumer.position());
        assert_eq!(self.producer.room(&self.back.1, u64::MAX), Ok(self.producer.cap()));
        assert!(self.push(1) == 1 && self.take(1) && !self.take(1));
    }
}

impl Item {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Data(bytes) => bytes.iter().copied().collect(),
            Self::Message(bytes, taken) => bytes[*taken..].to_vec(),
            Self::Control(_) => Vec::new(),
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Push(usize),
    Message(usize),
    Control,
    Take(usize),
    Peek,
    Credit(bool),
    RequestGrow,
}

/// Mostly short, sometimes longer than the smallest rings.
fn length() -> impl Strategy<Value = usize> {
    prop_oneof![0..130usize, 1000..1100usize, 0..5000usize, 0..140_000usize]
}

fn op() -> impl Strategy<Value = Op> {
    let longest = usize::try_from(MAX_MESSAGE).unwrap_or(0);
    prop_oneof![
        4 => length().prop_map(Op::Push),
        3 => length().prop_map(move |len| Op::Message(len.min(longest))),
        1 => Just(Op::Control),
        6 => length().prop_map(Op::Take),
        1 => Just(Op::Peek),
        3 => any::<bool>().prop_map(Op::Credit),
        1 => Just(Op::RequestGrow),
    ]
}

/// 2000 cases, or as many as `PROPTEST_CASES` says: each takes seven times as long under a memory checker.
fn config() -> ProptestConfig {
    let default = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let cases = match std::env::var_os("PROPTEST_CASES") {
        Some(_) => default.cases,
        None if cfg!(miri) => 4,
        None => 2000,
    };
    ProptestConfig { cases, ..default }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn ring_is_a_queue(
        log_cap in 8..18u32,
        doublings in 0..5u32,
        key in prop_oneof![any::<u64>(), Just(0)],
        ops in prop::collection::vec(op(), 1..200),
    ) {
        let cap = 1 << log_cap;
        let mut pair = Pair::new(cap, cap << doublings, key);
        for op in ops {
            match op {
                Op::Push(len) => { pair.push(len); }
                Op::Message(len) => { pair.push_message(len); }
                Op::Control => { pair.push_control(); }
                Op::Take(len) => { pair.take(len); }
                Op::Peek => pair.peek(),
                Op::Credit(all) => pair.give_credit(all),
                Op::RequestGrow => pair.producer.request_grow(),
            }
            pair.check();
        }
        pair.peek();
        pair.drain();
    }
}

/// Fills the ring to the brim and empties it until it no longer grows, and some laps more.
fn grow(pair: &mut Pair, mut fill: impl FnMut(&mut Pair) -> bool) {
    let mut laps = 0;
    for _ in 0..100 {
        laps += u32::from(pair.producer.cap() == pair.ring_max);
        if laps > 3 {
            break;
        }
        while fill(pair) {}
        pair.check();
        while pair.take(40_000) {}
        pair.give_credit(true);
    }
    assert_eq!(pair.producer.cap(), pair.ring_max, "did not grow");
    pair.drain();
}

#[test]
fn growth_of_a_full_ring_at_every_size_then_wraps() {
    for log_cap in if cfg!(miri) { 8..9 } else { 8..18 } {
        for doublings in 0..3 {
            let (cap, ring_max) = (1 << log_cap, 1 << (log_cap + doublings));
            for len in [47, 48, 49, 3000, 50_000, 200_000] {
                if len as u64 * 100 < cap {
                    continue;
                }
                println!("cap {cap}, at most {ring_max}, writes of {len}");
                grow(&mut Pair::new(cap, ring_max, 5), |pair| pair.push(len) == len);
            }
            let len = usize::try_from(cap / 8).unwrap().min(16_000);
            println!("cap {cap}, at most {ring_max}, messages of {len}");
            grow(&mut Pair::new(cap, ring_max, 5), |pair| pair.push_message(len));
        }
    }
}

#[test]
fn growth_reaches_the_limit_wherever_the_ring_stood() {
    for begun in (0..1 << 12).step_by(192) {
        let (cap, ring_max) = (1 << 12, 1 << 16);
        let mut pair = Pair::new(cap, ring_max, 5);
        for _ in 0..begun / 64 {
            pair.push(40);
            while pair.take(40) {}
            pair.give_credit(true);
        }
        let mut sent = 0;
        for len in [1, 700, 40_000].into_iter().cycle() {
            let pushed = pair.push(len);
            pair.check();
            sent += pushed;
            if pushed < len {
                break;
            }
        }
        assert_eq!(pair.producer.cap(), ring_max);
        assert!(sent as u64 > ring_max / 2, "{sent} bytes of {ring_max}, begun at {begun}");
        for _ in 0..20 {
            while pair.take(3000) {}
            pair.give_credit(false);
            while pair.push(5000) > 0 {}
            pair.check();
        }
        pair.drain();
    }
}

#[test]
#[cfg_attr(miri, ignore = "megabytes")]
fn growth_beyond_easy_only_on_request() {
    let mut pair = Pair::new(1 << 16, EASY * 4, 7);
    assert!(!pair.producer.can_grow());
    for cap in [EASY, EASY * 2, EASY * 4] {
        while pair.push(50_000) > 0 {}
        assert_eq!((pair.producer.cap(), pair.producer.can_grow()), (cap, cap < pair.ring_max));
        pair.check();
        pair.producer.request_grow();
        assert!(!pair.producer.can_grow());
    }
    assert_eq!(pair.push(1), 0);
    pair.drain();
    assert_eq!(pair.push(50_000), 50_000);
    pair.drain();
}

#[test]
fn growth_needs_a_full_ring() {
    let mut pair = Pair::new(1 << 16, 1 << 20, 7);
    for _ in 0..1000 {
        assert_eq!(pair.push(5000), 5000);
        while pair.take(5000) {}
        pair.give_credit(false);
    }
    assert_eq!(pair.producer.cap(), 1 << 16);
}

#[test]
fn record_with_bulk_payload_starts_on_a_line() {
    let mut pair = Pair::new(1 << 18, 1 << 18, 7);
    assert_eq!(pair.push(128 << 10), 128 << 10);
    assert_eq!(pair.producer.position(), 2 * (MAX_PAYLOAD + LINE));
    pair.drain();
    for len in [BULK - 1, BULK, BULK + 1] {
        let before = pair.producer.position();
        pair.push(usize::try_from(len).unwrap());
        assert_eq!(pair.producer.position() - before, BULK + LINE * (1 + u64::from(len > BULK)), "{len}");
        pair.drain();
    }
}

#[test]
fn control_record_finds_the_last_line_free() {
    let mut pair = Pair::new(1 << 16, 1 << 16, 7);
    while pair.push(100) > 0 {}
    assert!(!pair.push_message(0));
    assert!(pair.push_control());
    assert!(!pair.push_control());
    pair.drain();
}

#[test]
fn message_of_the_longest_length_fits_with_credit_withheld() {
    let longest = usize::try_from(MAX_MESSAGE).unwrap();
    let mut pair = Pair::new(1 << 16, 1 << 16, 7);
    for offset in 0..2000 {
        assert!(pair.push_message(offset % 3000) && pair.push_message(longest), "round {offset}");
        while pair.take(longest) {}
        pair.give_credit(false);
    }
}

#[test]
#[cfg_attr(miri, ignore = "megabytes")]
fn message_of_the_longest_packet_fits_its_ring() {
    let longest = usize::try_from(MAX_PACKET).unwrap();
    for cap in [1 << 19, EASY] {
        assert_eq!(max_message(cap), MAX_PACKET);
        let mut pair = Pair::new(cap, cap, 7);
        for offset in 0..500 {
            assert!(pair.push_message(offset * 131 % 65_000) && pair.push_message(longest), "round {offset}");
            while pair.take(longest) {}
            pair.give_credit(false);
        }
    }
}

#[test]
fn credit_that_is_no_multiple_of_a_line_hurts_nobody() {
    use crosslane_shm::Store;
    let mut pair = Pair::new(1 << 16, 1 << 16, 7);
    while pair.push(100) > 0 {}
    pair.back.0.store_u64(crosslane_wire::segment::CREDIT, LINE * 5 + 13);
    while pair.push(1) > 0 {}
    while pair.push_control() {}
    assert!(pair.producer.unconfirmed(&pair.back.1).unwrap() <= 1 << 16);
}

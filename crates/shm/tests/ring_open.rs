//! Records that stay open for more: at random, among threads, and by a peer that lies.

mod memory;

use crosslane_shm::ring::{Consumer, Cursor, Duplex, Producer, Violation};
use crosslane_shm::{Inbound, Load, Outbound, Store, mem};
use crosslane_wire::record::{
    BULK, FLAG_CREDIT, FLAG_GATHERED, FLAG_GROW, FLAG_OPEN, Header, Kind, LONGEST_OPEN, mark,
};
use crosslane_wire::segment::{LINE, RING, WANT_DATA, segment_len};
use proptest::prelude::*;
use std::thread;
use std::time::{Duration, Instant};

const CAP: u64 = 8192;
const KEY: u64 = 99;
/// What must be out before sends are gathered.
const OUT: u64 = CAP / 4 + 32 * LINE;

/// A ring with both of its ends, and the words that go back.
struct Pair<O, I> {
    data: (O, I),
    back: (O, I),
    producer: Producer,
    consumer: Consumer,
    /// Of the other direction, in which nothing moves.
    other: Consumer,
}

fn plain(ring_max: u64) -> Pair<memory::Out, memory::In> {
    Pair::new(memory::segment(segment_len(ring_max)), memory::segment(segment_len(64)), ring_max)
}

impl<O: Store, I: Load> Pair<O, I> {
    fn new(data: (O, I), back: (O, I), ring_max: u64) -> Self {
        let (producer, consumer, other) = (Producer::default(), Consumer::default(), Consumer::default());
        producer.reset(CAP, ring_max, KEY);
        consumer.reset(CAP, ring_max, KEY);
        other.reset(CAP, CAP, KEY);
        Self { data, back, producer, consumer, other }
    }

    fn credits(&self) -> Duplex<'_, I> {
        Duplex { words: &self.back.1, consumer: &self.other, rides: false }
    }

    fn push(&self, bytes: &[u8]) -> usize {
        self.producer.push(&self.data.0, &self.credits(), Kind::Data, bytes, 0).unwrap()
    }

    fn control(&self, kind: Kind) -> bool {
        self.producer.push_control(&self.data.0, &self.credits(), kind, 0).unwrap()
    }

    fn take(&self, target: &mut [u8]) -> usize {
        let mut done = 0;
        while done < target.len() {
            match self.consumer.take(&self.data.1, &mut target[done..]).unwrap() {
                0 => break,
                count => done += count,
            }
        }
        done
    }

    /// Sends lines until the next small send will be gathered.
    fn fall_behind(&self) {
        while self.producer.position() < self.consumer.position() + OUT {
            assert_eq!(self.push(&[0; 40]), 40);
        }
    }
}

#[test]
fn gather_appends_small_sends_to_a_late_receiver() {
    let pair = plain(CAP);
    pair.fall_behind();
    let before = pair.producer.position();
    for _ in 0..LONGEST_OPEN {
        assert_eq!(pair.push(b"x"), 1);
    }
    assert_eq!(pair.producer.position() - before, BULK);
    assert_eq!(pair.push(b"x"), 1);
    assert_eq!(pair.producer.position() - before, BULK + LINE);
}

#[test]
fn gather_does_not_check_a_record_in_a_ring_that_was_left() {
    let pair = plain(CAP);
    pair.fall_behind();
    pair.push(b"x");
    pair.take(&mut vec![0; usize::try_from(CAP).unwrap()]);
    assert!(pair.consumer.is_open());
    let (old, view) = memory::segment(segment_len(CAP));
    (0..old.len()).step_by(8).for_each(|at| old.store_u64(at, u64::MAX));
    assert_eq!(pair.consumer.head_if(&view, || false).unwrap(), None);
    assert!(pair.consumer.head_if(&view, || true).is_err());
}

#[test]
fn gather_closes_records_for_a_sleeping_or_prompt_receiver() {
    let pair = plain(CAP);
    for _ in 0..100 {
        assert_eq!(pair.push(b"x"), 1);
        assert_eq!(pair.take(&mut [0; 9]), 1);
        pair.consumer.give_credit(&pair.back.0, false);
        assert_eq!(pair.consumer.position(), pair.producer.position(), "not all was consumed");
    }
    pair.fall_behind();
    pair.back.0.store_u64(WANT_DATA, 7);
    let before = pair.producer.position();
    pair.push(b"x");
    pair.push(b"x");
    assert_eq!(pair.producer.position() - before, 2 * LINE);
}

#[test]
fn gather_shows_appended_bytes_to_all_who_look() {
    let pair = plain(CAP);
    pair.fall_behind();
    pair.push(b"abc");
    let mut all = vec![0; 10_000];
    let got = pair.take(&mut all);
    assert_eq!(&all[got - 3..got], b"abc");
    assert!(!pair.consumer.arrived(&pair.data.1) && pair.consumer.head(&pair.data.1) == Ok(None));
    let mut seen = pair.consumer.cursor();
    assert_eq!(seen.look(&pair.data.1), Ok(None));
    pair.push(b"de");
    assert!(pair.consumer.arrived(&pair.data.1));
    let header = seen.look(&pair.data.1).unwrap().expect("more of the same record");
    assert_eq!((header.len, seen.taken()), (5, 3));
    seen.pass(header);
    assert_eq!((seen.look(&pair.data.1), seen.units()), (Ok(None), pair.producer.units()));
    assert_eq!((pair.take(&mut all), &all[..2]), (2, &b"de"[..]));
    // It is closed by what comes next, and consumed with nothing left of it.
    assert!(pair.control(Kind::DisConn));
    assert!(pair.consumer.arrived(&pair.data.1));
    assert_eq!(seen.look(&pair.data.1).unwrap().map(|header| header.kind), Some(Kind::DisConn));
    assert_eq!(pair.consumer.head(&pair.data.1).unwrap().map(|head| head.kind), Some(Kind::DisConn));
}

#[test]
fn gather_takes_nothing_when_the_reader_refuses() {
    let pair = plain(CAP);
    pair.fall_behind();
    pair.push(b"abc");
    pair.take(&mut [0; 10_000]);
    pair.push(b"de");
    assert!(!pair.consumer.is_begun());
    assert_eq!(pair.consumer.head_if(&pair.data.1, || false), Ok(None));
    assert_eq!(pair.consumer.head(&pair.data.1).unwrap().map(|head| head.left), Some(2));
    assert!(pair.consumer.is_begun());
}

#[test]
fn gather_is_cut_off_where_the_offset_was_counted() {
    for taken in [0, 3, 5] {
        let pair = plain(CAP);
        pair.fall_behind();
        let lines = usize::try_from(pair.producer.units()).unwrap();
        assert_eq!(pair.push(b"abcde"), 5);
        pair.take(&mut vec![0; lines + taken]);
        let counted = pair.consumer.cursor().arrived(&pair.data.1);
        assert_eq!(counted, lines as u64 + 5);
        pair.push(b"fgh");
        let mut walk = pair.consumer.cursor();
        if taken < 5 {
            let header = walk.look(&pair.data.1).unwrap().and_then(|header| walk.clip(header, counted));
            assert_eq!(header.map(|header| header.len), Some(5));
        }
        if taken > 0 {
            pair.consumer.clip(counted).unwrap();
        } else {
            pair.consumer.head(&pair.data.1).unwrap();
            pair.consumer.clip(counted).unwrap();
        }
        let mut rest = [0; 5];
        assert_eq!(pair.consumer.take(&pair.data.1, &mut rest[..5 - taken]), Ok(5 - taken));
        assert_eq!((&rest[..5 - taken], pair.consumer.units()), (&b"abcde"[taken..], counted));
    }
}

/// Words that follow that of an open record of ten bytes, all taken: whether each may be.
#[test]
fn gather_refuses_lies_about_an_open_record() {
    let word = |len, kind, flags| Header { len, kind, flags, cpu: 0 }.to_word();
    let (data, longest) = (Kind::Data, u32::try_from(LONGEST_OPEN).unwrap());
    for (next, good) in [
        (word(10, data, FLAG_OPEN), true),
        (word(10, data, FLAG_GATHERED), true),
        (word(10, data, 0), false),
        (word(10, data, FLAG_GATHERED | FLAG_OPEN), false),
        (word(11, data, FLAG_OPEN), true),
        (word(longest, data, FLAG_GATHERED), true),
        (word(9, data, FLAG_OPEN), false),
        (word(9, data, FLAG_GATHERED), false),
        (word(0, data, FLAG_GATHERED), false),
        (word(longest + 1, data, FLAG_GATHERED), false),
        (word(longest + 1, data, FLAG_OPEN), false),
        (word(2000, data, 0), false),
        (word(10, data, FLAG_GROW), false),
        (word(10, data, FLAG_CREDIT), false),
        (word(10, data, FLAG_OPEN | FLAG_GROW), false),
        (word(10, Kind::DisConn, 0), false),
        (word(10, Kind::Filler, 0), false),
        (u64::MAX, false),
        (0, false),
    ] {
        let pair = plain(CAP);
        pair.data.0.store_u64(RING + 8, word(10, data, FLAG_OPEN));
        pair.data.0.store_u64(RING, mark(KEY, 0));
        assert_eq!(pair.consumer.take(&pair.data.1, &mut [0; 20]), Ok(10));
        pair.data.0.store_u64(RING + 8, next);
        assert_eq!(pair.consumer.head(&pair.data.1).is_ok(), good, "{next:#x}");
    }
}

#[test]
fn gather_stays_within_ring_and_credit_and_never_reopens() {
    let open = |len| Header { len, kind: Kind::Data, flags: FLAG_OPEN, cpu: 0 }.to_word();
    let pair = plain(CAP);
    let at = RING + usize::try_from(CAP - LINE).unwrap();
    for position in (0..CAP - LINE).step_by(64) {
        pair.data.0.store_u64(RING + usize::try_from(position).unwrap() + 8, open(1) & !open(0) | 1 << 18);
        pair.data.0.store_u64(RING + usize::try_from(position).unwrap(), mark(KEY, position));
        assert_eq!(pair.consumer.take(&pair.data.1, &mut [0; 1]), Ok(1));
    }
    pair.data.0.store_u64(at + 8, open(10));
    pair.data.0.store_u64(at, mark(KEY, CAP - LINE));
    assert_eq!(pair.consumer.take(&pair.data.1, &mut [0; 20]), Ok(10));
    pair.data.0.store_u64(at + 8, open(49));
    assert!(matches!(pair.consumer.head(&pair.data.1), Err(Violation::Record(_))), "beyond the ring");

    let pair = plain(CAP);
    pair.data.0.store_u64(RING + 8, open(10));
    pair.data.0.store_u64(RING, mark(KEY, 0));
    pair.take(&mut [0; 20]);
    let closed = Header { len: 12, kind: Kind::Data, flags: FLAG_GATHERED, cpu: 0 }.to_word();
    pair.data.0.store_u64(RING + 8, closed);
    assert_eq!(pair.consumer.take(&pair.data.1, &mut [0; 1]), Ok(1));
    pair.data.0.store_u64(RING + 8, open(14));
    assert_eq!(pair.take(&mut [0; 20]), 1, "a word counts no more once it was closed");
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Push(usize),
    Control,
    Take(usize),
    Skip,
    Peek,
    Arrivals,
    Credit(bool),
    Sleep(bool),
    RequestGrow,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        20 => (1..20usize).prop_map(Op::Push),
        4 => (1..300usize).prop_map(Op::Push),
        1 => (1..5000usize).prop_map(Op::Push),
        1 => Just(Op::Control),
        4 => (1..300usize).prop_map(Op::Take),
        2 => (1..5000usize).prop_map(Op::Take),
        1 => Just(Op::Skip),
        2 => Just(Op::Peek),
        3 => Just(Op::Arrivals),
        2 => any::<bool>().prop_map(Op::Credit),
        1 => any::<bool>().prop_map(Op::Sleep),
        1 => Just(Op::RequestGrow),
    ]
}

/// The bytes of the stream that lie from `cursor` on, and where they end.
fn look_on(mut cursor: Cursor, ring: &impl Load) -> (Vec<u8>, Cursor) {
    let mut bytes = Vec::new();
    while let Some(header) = cursor.look(ring).unwrap() {
        if header.kind == Kind::Data {
            let mut part = vec![0; header.len as usize - cursor.taken()];
            cursor.read_guarded(ring, header, cursor.taken(), &mut part).unwrap().unwrap();
            bytes.extend(part);
        }
        cursor.pass(header);
    }
    (bytes, cursor)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 1500 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Whatever is done, the bytes that come are those that were sent, and all who look see all of them.
    #[test]
    fn gather_keeps_the_ring_a_queue(ops in prop::collection::vec(op(), 1..400), doublings in 0..3u32) {
        let pair = plain(CAP << doublings);
        let (mut sent, mut units, mut got, mut seen) = (Vec::new(), 0, 0, None::<Cursor>);
        let mut seen_units = 0;
        for op in ops {
            match op {
                Op::Push(len) => {
                    let bytes: Vec<u8> = (sent.len()..).take(len).map(|at| u8::try_from(at % 251).unwrap()).collect();
                    let count = pair.push(&bytes);
                    sent.extend(&bytes[..count]);
                    units += count as u64;
                }
                Op::Control => units += u64::from(pair.control(Kind::DisConn)),
                Op::Take(len) => {
                    let mut bytes = vec![0; len];
                    let mut done = 0;
                    while done < len {
                        match pair.consumer.head(&pair.data.1).unwrap() {
                            None => break,
                            Some(head) if head.kind != Kind::Data => pair.consumer.consume().unwrap(),
                            Some(_) => done += pair.consumer.take(&pair.data.1, &mut bytes[done..]).unwrap(),
                        }
                    }
                    prop_assert_eq!(&bytes[..done], &sent[got..got + done]);
                    got += done;
                    prop_assert!(done == len || got == sent.len());
                }
                Op::Skip => {
                    if let Some(head) = pair.consumer.head(&pair.data.1).unwrap() {
                        got += if head.kind == Kind::Data { head.left } else { 0 };
                        pair.consumer.consume().unwrap();
                    }
                }
                Op::Peek => {
                    let (bytes, end) = look_on(pair.consumer.cursor(), &pair.data.1);
                    prop_assert_eq!(&bytes[..], &sent[got..]);
                    prop_assert_eq!(end.units(), units);
                }
                Op::Arrivals => {
                    let front = pair.consumer.cursor();
                    // By places, not by units: what was the end of an open record has as many units as the start of the next one,
                    // when that lies where the open one was, a lap later.
                    let place = |cursor: &Cursor| (cursor.position(), cursor.taken());
                    let start = seen.filter(|seen| place(seen) >= place(&front)).unwrap_or(front);
                    let (bytes, end) = look_on(start, &pair.data.1);
                    prop_assert!(units == seen_units || !bytes.is_empty() || end.units() > start.units()
                        || front.units() > seen_units, "something came and was not seen");
                    prop_assert_eq!(end.units(), units);
                    (seen, seen_units) = (Some(end), units);
                }
                Op::Credit(all) => drop(pair.consumer.give_credit(&pair.back.0, all)),
                Op::Sleep(asleep) => pair.back.0.store_u64(WANT_DATA, u64::from(asleep)),
                Op::RequestGrow => pair.producer.request_grow(),
            }
            prop_assert_eq!(pair.consumer.cursor().arrived(&pair.data.1), units);
            prop_assert_eq!(pair.producer.units(), units);
            let (arrived, head) = (pair.consumer.arrived(&pair.data.1), pair.consumer.head(&pair.data.1).unwrap());
            prop_assert!(arrived || head.is_none(), "missed");
            prop_assert!(head.is_some() || !pair.consumer.arrived(&pair.data.1), "nothing is there");
            prop_assert!(pair.producer.position() - pair.consumer.position() <= pair.producer.cap());
        }
        let (bytes, _) = look_on(pair.consumer.cursor(), &pair.data.1);
        prop_assert_eq!(&bytes[..], &sent[got..]);
    }
}

/// Small sends as fast as they go, to a reader of a mapping in another thread, and one more that only looks.
#[test]
#[cfg(not(miri))]
fn gather_delivers_every_byte_in_order() {
    const TOTAL: u64 = 3 << 20;
    const LIMIT: Duration = Duration::from_secs(60);
    let segment = |len| {
        let fd = mem::new_segment("crosslane-test", len).unwrap();
        (Outbound::sealed(&fd, len).unwrap(), Inbound::sealed(&fd, len).unwrap())
    };
    let pair = Pair::new(segment(segment_len(CAP)), segment(segment_len(4096)), CAP);
    let byte = |at: u64| u8::try_from(at % 251).unwrap_or(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut sent, start) = (0, Instant::now());
            while sent < TOTAL {
                let len = usize::try_from(mark(1, sent) % 30 + 1).unwrap();
                let bytes: Vec<u8> = (sent..TOTAL).take(len).map(byte).collect();
                match pair.push(&bytes) {
                    0 => thread::yield_now(),
                    count => sent += count as u64,
                }
                assert!(start.elapsed() < LIMIT, "stuck after {sent} bytes");
            }
        });
        scope.spawn(|| {
            let start = Instant::now();
            while pair.consumer.units() < TOTAL && start.elapsed() < LIMIT {
                let lacking = pair.producer.units() > pair.consumer.units();
                if let Some(front) = pair.consumer.glance() {
                    let arrived = front.arrived(&pair.data.1);
                    let moved = pair.consumer.position() != front.position();
                    assert!(moved || arrived >= front.units(), "{arrived} of {} seen", front.units());
                }
                std::hint::black_box((lacking, pair.consumer.arrived(&pair.data.1)));
            }
        });
        let (mut got, mut bytes, start) = (0, [0; 700], Instant::now());
        while got < TOTAL {
            // Now and then it waits until it is behind.
            let out = pair.producer.position().saturating_sub(pair.consumer.position());
            let sent = pair.producer.units();
            let waits = mark(3, got).is_multiple_of(16) && out < OUT && sent < TOTAL;
            let len = usize::try_from(mark(2, got) % 700 + 1).unwrap();
            let count = if waits { 0 } else { pair.take(&mut bytes[..len]) };
            assert!(bytes[..count].iter().zip(got..).all(|(&got, at)| got == byte(at)), "near {got}");
            got += count as u64;
            pair.consumer.give_credit(&pair.back.0, false);
            if count == 0 {
                thread::yield_now();
            }
            assert!(start.elapsed() < LIMIT, "stuck after {got} bytes");
        }
    });
}

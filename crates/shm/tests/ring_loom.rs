//! The ring and its sleeping protocol under loom: every order that the memory model allows is tried.
//!
//! The views are traits, so the shared words are modelled by loom's atomics and the payload by its checked cells,
//! which notice a copy that races with a store. Each property is also tried with one ordering weakened, and must
//! then fail: else the test would prove nothing.

use crosslane_shm::ring::{Consumer, Duplex, Producer};
use crosslane_shm::{Load, Store};
use crosslane_wire::record::Kind;
use crosslane_wire::segment::{CREDIT, LINE, RING, WANT_DATA, WANT_ROOM};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::sync::{Arc, Notify};

/// Lines of the modelled ring; records stay within one line.
const LINES: usize = 4;
const CAP: u64 = LINES as u64 * LINE;
const PAYLOAD: usize = 48;
/// Bytes that are stored and read together.
const CHUNK: usize = 16;

/// How strong the modelled memory is; the real one has all four.
#[derive(Clone, Copy)]
struct Strength {
    release: bool,
    acquire: bool,
    full_fence: bool,
}

const REAL: Strength = Strength { release: true, acquire: true, full_fence: true };

/// One segment: the words beside the ring, and lines of mark, word and payload, or credit that rides behind a shorter one.
struct Segment {
    words: [AtomicU64; 3],
    lines: Vec<Line>,
    strength: Strength,
}

struct Line {
    mark: AtomicU64,
    word: AtomicU64,
    credit: AtomicU64,
    payload: [UnsafeCell<[u8; CHUNK]>; PAYLOAD / CHUNK],
}

impl Segment {
    fn new(strength: Strength, lines: usize) -> Arc<Self> {
        let zero = || AtomicU64::new(0);
        let payload = || [(); PAYLOAD / CHUNK].map(|()| UnsafeCell::new([0; CHUNK]));
        let line = |_| Line { mark: zero(), word: zero(), credit: zero(), payload: payload() };
        let words = [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)];
        Arc::new(Self { words, lines: (0..lines).map(line).collect(), strength })
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        match offset {
            CREDIT => &self.words[0],
            WANT_DATA => &self.words[1],
            WANT_ROOM => &self.words[2],
            _ if offset.is_multiple_of(64) => &self.lines[(offset - RING) / 64].mark,
            _ if offset % 64 == 8 => &self.lines[(offset - RING) / 64].word,
            _ if offset % 64 == 56 => &self.lines[(offset - RING) / 64].credit,
            _ => panic!("no word at {offset}"),
        }
    }

    fn chunk(&self, offset: usize) -> &UnsafeCell<[u8; CHUNK]> {
        let (line, at) = ((offset - RING) / 64, (offset - RING) % 64);
        assert!(at.is_multiple_of(CHUNK) && at > 0, "no payload at {offset}");
        &self.lines[line].payload[at / CHUNK - 1]
    }
}

struct Out(Arc<Segment>);
struct In(Arc<Segment>);

impl Store for Out {
    fn len(&self) -> usize {
        RING + self.0.lines.len() * 64
    }

    fn store_u32(&self, _: usize, _: u32) {
        unreachable!("the ring has no short words")
    }

    fn store_u64(&self, offset: usize, value: u64) {
        let order = if self.0.strength.release { Ordering::Release } else { Ordering::Relaxed };
        self.0.word(offset).store(value, order);
    }

    fn write(&self, offset: usize, source: &[u8]) {
        for (at, part) in (offset..).step_by(CHUNK).zip(source.chunks(CHUNK)) {
            // SAFETY: loom gives a valid pointer and fails the model if another thread uses the cell now.
            self.0.chunk(at).with_mut(|chunk| unsafe { (&mut *chunk)[..part.len()].copy_from_slice(part) });
        }
    }

    fn store_fence(&self) {
        if self.0.strength.release {
            fence(Ordering::Release);
        }
    }

    fn fence(&self) {
        self.store_fence();
        if self.0.strength.full_fence {
            fence(Ordering::SeqCst);
        }
    }
}

impl Load for In {
    fn len(&self) -> usize {
        RING + self.0.lines.len() * 64
    }

    fn load_u32(&self, _: usize) -> u32 {
        unreachable!("the ring has no short words")
    }

    fn load_u64(&self, offset: usize) -> u64 {
        let order = if self.0.strength.acquire { Ordering::Acquire } else { Ordering::Relaxed };
        self.0.word(offset).load(order)
    }

    fn read(&self, offset: usize, target: &mut [u8]) {
        for (at, part) in (offset..).step_by(CHUNK).zip(target.chunks_mut(CHUNK)) {
            // SAFETY: loom gives a valid pointer and fails the model if another thread stores into the cell now.
            self.0.chunk(at).with(|chunk| part.copy_from_slice(unsafe { &(&*chunk)[..part.len()] }));
        }
    }
}

/// The producing side: its state, the ring that it stores into, the words that it reads.
struct Sender {
    state: Producer,
    ring: Out,
    words: In,
    waker: Arc<Notify>,
    mine: Arc<Notify>,
}

/// The consuming side.
struct Receiver {
    state: Consumer,
    ring: In,
    words: Out,
    waker: Arc<Notify>,
    mine: Arc<Notify>,
}

fn pair(strength: Strength) -> (Sender, Receiver) {
    let (there, back) = (Segment::new(strength, LINES), Segment::new(strength, 0));
    let (data, room) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (producer, consumer) = (Producer::default(), Consumer::default());
    producer.reset(CAP, CAP, 9);
    consumer.reset(CAP, CAP, 9);
    (
        Sender {
            state: producer,
            ring: Out(there.clone()),
            words: In(back.clone()),
            waker: data.clone(),
            mine: room.clone(),
        },
        Receiver { state: consumer, ring: In(there), words: Out(back), waker: room, mine: data },
    )
}

impl Sender {
    fn push(&self, byte: u8) -> bool {
        self.state.push(&self.ring, &self.words, Kind::Data, &[byte; PAYLOAD], 0).unwrap() == PAYLOAD
    }

    /// Publish, fence, look whether the reader sleeps.
    fn push_and_ring(&self, byte: u8) {
        assert!(self.push(byte));
        self.ring.fence();
        if self.words.load_u64(WANT_DATA) != 0 {
            self.waker.notify();
        }
    }

    /// Arm, fence, look once more, sleep.
    fn push_or_sleep(&self, byte: u8) {
        while !self.push(byte) {
            self.ring.store_u64(WANT_ROOM, 1);
            self.ring.fence();
            if self.push(byte) {
                break;
            }
            self.mine.wait();
        }
    }
}

impl Receiver {
    /// Takes the next record, if it is there, and checks that it is all of one value.
    fn take(&self) -> Option<u8> {
        self.state.head(&self.ring).unwrap()?;
        let mut bytes = [0; PAYLOAD];
        assert_eq!(self.state.take(&self.ring, &mut bytes), Ok(PAYLOAD));
        assert!(bytes.iter().all(|&byte| byte == bytes[0]), "a torn record");
        Some(bytes[0])
    }

    /// Arm, fence, look once more, sleep.
    fn take_or_sleep(&self) -> u8 {
        loop {
            if let Some(byte) = self.take() {
                return byte;
            }
            self.words.store_u64(WANT_DATA, 1);
            self.words.fence();
            if let Some(byte) = self.take() {
                return byte;
            }
            self.mine.wait();
        }
    }

    /// Publish credit, fence, look whether the writer sleeps.
    fn credit_and_ring(&self) {
        if self.state.give_credit(&self.words, true) {
            self.words.fence();
            if self.ring.load_u64(WANT_ROOM) != 0 {
                self.waker.notify();
            }
        }
    }
}

/// Payload, word, mark: a record that is seen is whole.
fn publish(strength: Strength) {
    loom::model(move || {
        let (sender, receiver) = pair(strength);
        let thread = loom::thread::spawn(move || {
            assert!(sender.push(1) && sender.push(2));
        });
        let seen: Vec<u8> = (0..3).filter_map(|_| receiver.take()).collect();
        assert!([&[][..], &[1], &[1, 2]].contains(&&seen[..]), "saw {seen:?}");
        thread.join().unwrap();
    });
}

/// A line is written again only after its reader has copied it: the credit says so.
fn reuse(strength: Strength) {
    loom::model(move || {
        let (sender, receiver) = pair(strength);
        assert!(sender.push(1) && sender.push(2) && sender.push(3) && !sender.push(4));
        let thread = loom::thread::spawn(move || {
            for byte in [4, 5] {
                sender.push(byte);
            }
        });
        assert_eq!((receiver.take(), receiver.take()), (Some(1), Some(2)));
        receiver.state.give_credit(&receiver.words, true);
        assert_eq!(receiver.take(), Some(3));
        thread.join().unwrap();
    });
}

/// One end of two rings.
struct End {
    producer: Producer,
    consumer: Consumer,
    out: Out,
    inb: In,
}

impl End {
    fn new(out: &Arc<Segment>, inb: &Arc<Segment>) -> Self {
        let (producer, consumer) = (Producer::default(), Consumer::default());
        producer.reset(4 * CAP, 4 * CAP, 9);
        consumer.reset(4 * CAP, 4 * CAP, 9);
        Self { producer, consumer, out: Out(out.clone()), inb: In(inb.clone()) }
    }

    fn push(&self, bytes: &[u8]) -> usize {
        let credits = Duplex { words: &self.inb, consumer: &self.consumer, rides: true };
        self.producer.push(&self.out, &credits, Kind::Data, bytes, 0).unwrap()
    }

    fn take(&self) -> Option<u8> {
        self.consumer.head(&self.inb).unwrap()?;
        let mut bytes = [0; PAYLOAD];
        self.consumer.take(&self.inb, &mut bytes).unwrap();
        Some(bytes[0])
    }
}

/// The same where the credit comes along with an answer.
fn reuse_by_ride(strength: Strength) {
    loom::model(move || {
        let (there, back) = (Segment::new(strength, 4 * LINES), Segment::new(strength, 4 * LINES));
        let (client, server) = (End::new(&there, &back), End::new(&back, &there));
        while client.push(&[1; PAYLOAD]) > 0 {}
        let thread = loom::thread::spawn(move || {
            assert_eq!((server.take(), server.take()), (Some(1), Some(1)));
            assert!(
                !server.consumer.give_or_offer(&server.out, &server.inb),
                "an eighth is for the next record"
            );
            assert_eq!((server.push(&[9]), server.producer.rides()), (1, 1));
        });
        if client.take().is_some() {
            assert_eq!((client.push(&[2; PAYLOAD]), client.push(&[3; PAYLOAD])), (PAYLOAD, PAYLOAD));
        }
        thread.join().unwrap();
    });
}

/// A sender and its receiver, which has taken all, also of the open record that came last.
fn caught_up(strength: Strength) -> (End, End, Arc<Notify>) {
    let (there, back) = (Segment::new(strength, 16 * LINES), Segment::new(strength, 0));
    let end = |out, inb| {
        let end = End::new(out, inb);
        end.producer.reset(16 * CAP, 16 * CAP, 9);
        end.consumer.reset(16 * CAP, 16 * CAP, 9);
        end
    };
    let (sender, receiver) = (end(&there, &back), end(&back, &there));
    for _ in 0..12 * LINES {
        assert_eq!(sender.push(&[1; PAYLOAD]), PAYLOAD);
        assert_eq!(receiver.take(), Some(1));
    }
    let before = sender.producer.position();
    assert_eq!((sender.push(&[1; CHUNK]), sender.push(&[1; CHUNK])), (CHUNK, CHUNK));
    assert_eq!(sender.producer.position() - before, LINE, "one open record");
    assert_eq!((receiver.take(), receiver.take()), (Some(1), None));
    (sender, receiver, Arc::new(Notify::new()))
}

/// Bytes that are appended are whole when they are seen, and so is what comes after.
fn append(strength: Strength) {
    loom::model(move || {
        let (sender, receiver, _) = caught_up(strength);
        let thread = loom::thread::spawn(move || {
            assert_eq!(sender.push(&[2; CHUNK]), CHUNK);
            assert_eq!(sender.producer.push_control(&sender.out, &sender.inb, Kind::DisConn, 0), Ok(true));
        });
        let seen: Vec<u8> = (0..3).filter_map(|_| receiver.take()).collect();
        assert!([&[][..], &[2], &[2, 0]].contains(&&seen[..]), "saw {seen:?}");
        thread.join().unwrap();
    });
}

/// A reader that goes to sleep while bytes are appended is woken.
fn sleep_for_more(strength: Strength) {
    loom::model(move || {
        let (sender, receiver, waker) = caught_up(strength);
        let rings = waker.clone();
        let thread = loom::thread::spawn(move || {
            assert_eq!(sender.push(&[7; CHUNK]), CHUNK);
            sender.out.fence();
            if sender.inb.load_u64(WANT_DATA) != 0 {
                rings.notify();
            }
        });
        let seen = loop {
            if let Some(byte) = receiver.take() {
                break byte;
            }
            receiver.out.store_u64(WANT_DATA, 1);
            receiver.out.fence();
            if let Some(byte) = receiver.take() {
                break byte;
            }
            waker.wait();
        };
        assert_eq!(seen, 7);
        thread.join().unwrap();
    });
}

/// A reader that goes to sleep while a record is published is woken.
fn sleep_for_data(strength: Strength) {
    loom::model(move || {
        let (sender, receiver) = pair(strength);
        let thread = loom::thread::spawn(move || sender.push_and_ring(7));
        assert_eq!(receiver.take_or_sleep(), 7);
        thread.join().unwrap();
    });
}

/// A writer that goes to sleep while credit is published is woken.
fn sleep_for_room(strength: Strength) {
    loom::model(move || {
        let (sender, receiver) = pair(strength);
        assert!(sender.push(1) && sender.push(2) && sender.push(3));
        let thread = loom::thread::spawn(move || {
            assert_eq!(receiver.take(), Some(1));
            receiver.credit_and_ring();
        });
        sender.push_or_sleep(4);
        thread.join().unwrap();
    });
}

#[test]
fn record_that_is_seen_is_whole() {
    publish(REAL);
}

#[test]
#[should_panic(expected = "record kind")]
fn record_without_release_is_torn() {
    publish(Strength { release: false, ..REAL });
}

#[test]
#[should_panic(expected = "record kind")]
fn record_without_acquire_is_torn() {
    publish(Strength { acquire: false, ..REAL });
}

#[test]
fn credit_frees_a_line_only_after_it_was_copied() {
    reuse(REAL);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn credit_without_release_frees_a_line_too_early() {
    reuse(Strength { release: false, ..REAL });
}

#[test]
fn credit_that_rode_frees_a_line_only_after_it_was_copied() {
    reuse_by_ride(REAL);
}

#[test]
#[should_panic(expected = "record kind")]
fn credit_that_rode_without_release_tears_an_answer() {
    reuse_by_ride(Strength { release: false, ..REAL });
}

#[test]
fn gather_shows_whole_appended_bytes() {
    append(REAL);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn gather_without_release_tears_appended_bytes() {
    append(Strength { release: false, ..REAL });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn gather_without_acquire_tears_appended_bytes() {
    append(Strength { acquire: false, ..REAL });
}

#[test]
fn wake_for_appended_bytes_is_not_lost() {
    sleep_for_more(REAL);
}

#[test]
#[should_panic(expected = "deadlock")]
fn wake_for_appended_bytes_is_lost_without_the_fence() {
    sleep_for_more(Strength { full_fence: false, ..REAL });
}

#[test]
fn wake_for_data_is_not_lost() {
    sleep_for_data(REAL);
}

#[test]
#[should_panic(expected = "deadlock")]
fn wake_for_data_is_lost_without_the_fence() {
    sleep_for_data(Strength { full_fence: false, ..REAL });
}

#[test]
fn wake_for_room_is_not_lost() {
    sleep_for_room(REAL);
}

#[test]
#[should_panic(expected = "deadlock")]
fn wake_for_room_is_lost_without_the_fence() {
    sleep_for_room(Strength { full_fence: false, ..REAL });
}

//! A peer that lies: arbitrary bytes in the consumer's memory, words that change between two looks, arbitrary
//! credit. Nothing may panic (the test memory panics when it is left), and nothing may go on for ever.
//!
//! These are bolero targets: `cargo test` runs them on random inputs, `cargo bolero test` fuzzes them.

mod memory;

use crosslane_shm::ring::{Consumer, Producer, Violation};
use crosslane_shm::state::{self, State, StateView};
use crosslane_shm::{Load, Outbound, Store};
use crosslane_wire::record::{BULK, Header, Kind, MAX_MESSAGE, MAX_PAYLOAD, mark};
use crosslane_wire::segment::{CREDIT, LINE, RING, segment_len};
use std::cell::Cell;

const KEY: u64 = 0x1234_5678;

/// Reads the fuzzer's bytes as choices; zeros when they are used up.
struct Choices<'a>(Cell<&'a [u8]>);

impl Choices<'_> {
    fn byte(&self) -> u8 {
        let bytes = self.0.get();
        let Some((&first, rest)) = bytes.split_first() else { return 0 };
        self.0.set(rest);
        first
    }

    fn word(&self) -> u64 {
        u64::from_le_bytes([0; 8].map(|_: u8| self.byte()))
    }

    fn is_over(&self) -> bool {
        self.0.get().is_empty()
    }

    /// A word that is likely to pass one check or another.
    fn record(&self) -> u64 {
        if self.byte().is_multiple_of(8) {
            return self.word();
        }
        let byte = u64::from(self.byte());
        let len = match self.byte() % 6 {
            0 => byte,
            1 => byte * 128,
            2 => (LINE * byte).saturating_sub(16 + u64::from(self.byte() % 2)),
            3 => BULK - 1 + byte % 3,
            4 => MAX_PAYLOAD - 1 + byte % 3,
            _ => self.word(),
        };
        let word = |kind| Header { len: 0, kind, flags: 0, cpu: 0 }.to_word();
        // The lowest bit of each part of the word, from words that have one more or less there.
        let kind = word(Kind::Hello) - word(Kind::Data);
        let flag = Header { len: 0, kind: Kind::Data, flags: 1, cpu: 0 }.to_word() - word(Kind::Data);
        (len % kind) + kind * u64::from(self.byte() % 12) + flag * u64::from(self.byte() % 16)
    }
}

/// Memory whose words change from one look to the next. `position` is where the reader stands: this peer knows the
/// key and forges marks.
struct Shifting<'a> {
    choices: &'a Choices<'a>,
    position: Cell<u64>,
    len: usize,
}

impl Load for Shifting<'_> {
    fn len(&self) -> usize {
        self.len
    }

    fn load_u32(&self, offset: usize) -> u32 {
        assert!(offset + 4 <= self.len);
        u32::from(self.choices.byte())
    }

    fn load_u64(&self, offset: usize) -> u64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.len, "read at {offset} of {}", self.len);
        if offset % 64 == 8 {
            return self.choices.record();
        }
        if self.choices.byte().is_multiple_of(8) {
            self.choices.word()
        } else {
            mark(KEY, self.position.get())
        }
    }

    fn read(&self, offset: usize, target: &mut [u8]) {
        assert!(offset >= RING && offset + target.len() <= self.len, "read outside the ring");
        target.fill(self.choices.byte());
    }
}

/// Does with the ring what a program may, until it is over. Every step consumes a choice.
fn consume(consumer: &Consumer, memory: &Shifting<'_>) -> Result<(), Violation> {
    let back = memory::segment(segment_len(64));
    let mut target = vec![0; 70_000];
    while !memory.choices.is_over() {
        memory.position.set(consumer.position());
        match memory.choices.byte() % 6 {
            0 => {
                if let Some(head) = consumer.head(memory)? {
                    consumer.descriptor(memory, head)?;
                    consumer.announce(memory.choices.byte().into());
                }
            }
            1 => drop(consumer.take(memory, &mut target)?),
            2 => drop(consumer.take(memory, &mut target[..usize::from(memory.choices.byte())])?),
            3 if consumer.head(memory)?.is_some() => consumer.consume()?,
            4 => drop(consumer.give_credit(&back.0, memory.choices.byte().is_multiple_of(2))),
            _ => walk(consumer, memory)?,
        }
    }
    Ok(())
}

fn walk(consumer: &Consumer, memory: &Shifting<'_>) -> Result<(), Violation> {
    let mut cursor = consumer.cursor();
    for _ in 0..8 {
        memory.position.set(cursor.position());
        let Some(header) = cursor.look(memory)? else { break };
        let mut bytes = vec![0; header.bytes() as usize];
        cursor.read_guarded(memory, header, 0, &mut bytes)?.expect("it is there");
        cursor.pass(header);
    }
    Ok(())
}

#[test]
fn hostile_words_that_change_do_not_harm_a_consumer() {
    bolero::check!().for_each(|input: &[u8]| {
        let choices = Choices(Cell::new(input));
        let (cap, doublings) = (1 << (8 + choices.byte() % 9), choices.byte() % 4);
        let ring_max: u64 = cap << doublings;
        let consumer = Consumer::default();
        consumer.reset(cap, ring_max, KEY);
        let len = usize::try_from(segment_len(ring_max)).unwrap();
        let memory = Shifting { choices: &choices, position: Cell::new(0), len };
        let _ = consume(&consumer, &memory);
    });
}

#[test]
fn hostile_bytes_make_a_consumer_wait_or_refuse() {
    bolero::check!().for_each(|input: &[u8]| {
        let (out, inb) = memory::segment(segment_len(4096));
        let consumer = Consumer::default();
        consumer.reset(4096, 4096, KEY);
        out.write(RING, &input[..input.len().min(4096)]);
        let mut forged = 0;
        loop {
            match consumer.head(&inb) {
                Ok(Some(_)) => consumer.consume().unwrap(),
                Ok(None) if forged < 200 => {
                    let at = RING + usize::try_from(consumer.position() % 4096).unwrap();
                    out.store_u64(at, mark(KEY, consumer.position()));
                    forged += 1;
                }
                Ok(None) | Err(_) => break,
            }
        }
    });
}

#[test]
fn hostile_credit_does_not_harm_a_producer() {
    bolero::check!().for_each(|input: &[u8]| {
        let choices = Choices(Cell::new(input));
        let (cap, doublings) = (1 << (8 + choices.byte() % 9), choices.byte() % 4);
        let ring_max: u64 = cap << doublings;
        let producer = Producer::default();
        producer.reset(cap, ring_max, KEY);
        let ((ring, _), (back, credits)) =
            (memory::segment(segment_len(ring_max)), memory::segment(segment_len(64)));
        let bytes = vec![7; 140_000];
        while !choices.is_over() {
            if produce(&producer, &ring, &credits, &choices, &bytes).is_err() {
                return;
            }
            assert!(producer.cap() <= ring_max);
            back.store_u64(CREDIT, lie(&choices, producer.position()));
        }
    });
}

/// A credit word: often possible, sometimes not.
fn lie(choices: &Choices<'_>, position: u64) -> u64 {
    match choices.byte() % 8 {
        0 => choices.word(),
        1..4 => position,
        _ => position.saturating_sub(u64::from(choices.byte()) * 16),
    }
}

fn produce(
    producer: &Producer,
    ring: &impl Store,
    credits: &impl Load,
    choices: &Choices<'_>,
    bytes: &[u8],
) -> Result<(), Violation> {
    let len = (usize::from(choices.byte()) << (choices.byte() % 10)).min(bytes.len());
    match choices.byte() % 5 {
        4 => producer.request_grow(),
        0 => drop(producer.push_control(ring, credits, Kind::DisConn, 0)?),
        1 => {
            let len = len.min(usize::try_from(MAX_MESSAGE).unwrap());
            producer.push_message(ring, credits, &bytes[..len], 0)?;
        }
        2 => drop(producer.unconfirmed(credits)?),
        _ => drop(producer.push(ring, credits, Kind::Data, &bytes[..len], 0)?),
    }
    Ok(())
}

#[test]
fn credit_beyond_what_was_sent_or_decreasing_is_a_violation() {
    let producer = Producer::default();
    producer.reset(4096, 4096, KEY);
    let ((ring, _), (back, credits)) = (memory::segment(segment_len(4096)), memory::segment(segment_len(64)));
    producer.push(&ring, &credits, Kind::Data, &[1; 200], 0).unwrap();
    back.store_u64(CREDIT, 257);
    assert_eq!(producer.unconfirmed(&credits), Err(Violation::Credit { got: 257, least: 0, most: 256 }));
    back.store_u64(CREDIT, 256);
    assert_eq!(producer.unconfirmed(&credits), Ok(0));
    back.store_u64(CREDIT, 255);
    assert!(producer.unconfirmed(&credits).is_err());
}

#[test]
fn growth_beyond_the_segment_is_a_violation() {
    for (cap, ring_max, offset, len) in [(256, 256, 192, 48), (256, 256, 0, 48), (256, 511, 128, 48)] {
        let (out, inb) = memory::segment(segment_len(512));
        let consumer = Consumer::default();
        consumer.reset(cap, ring_max, KEY);
        for position in (0..=offset).step_by(64) {
            let flags = u8::from(position == offset);
            let header = Header { len, kind: Kind::Data, flags, cpu: 0 };
            let at = RING + usize::try_from(position).unwrap();
            out.store_u64(at + 8, header.to_word());
            out.store_u64(at, mark(KEY, position));
            let seen = consumer.head(&inb);
            assert_eq!(seen.is_err(), position == offset, "record at {position} of {cap} (max {ring_max})");
            if seen.is_ok() {
                consumer.consume().unwrap();
            }
        }
    }
}

#[test]
fn credit_overrun_is_a_violation() {
    let ((ring, data), (_, credits)) = (memory::segment(segment_len(4096)), memory::segment(segment_len(64)));
    let (producer, consumer) = (Producer::default(), Consumer::default());
    producer.reset(4096, 4096, KEY);
    consumer.reset(4096, 4096, KEY);
    while producer.push(&ring, &credits, Kind::Data, &[1; 48], 0).unwrap() > 0 {}
    assert!(producer.push_control(&ring, &credits, Kind::DisConn, 0).unwrap());
    for _ in 0..4096 / LINE {
        consumer.head(&data).unwrap().expect("what there was credit for");
        consumer.consume().unwrap();
    }
    let header = Header { len: 0, kind: Kind::Filler, flags: 0, cpu: 0 };
    ring.store_u64(RING + 8, header.to_word());
    ring.store_u64(RING, mark(KEY, 4096));
    assert_eq!(consumer.head(&data), Err(Violation::Overrun { over: LINE }));
}

/// A daemon works on states that lie where their program can write: see the offload engine.
#[cfg(not(miri))]
#[test]
fn hostile_state_is_refused_or_harms_its_own_ring_only() {
    const RING_MAX: u64 = 1 << 18;
    const WORDS: u64 = 48;
    let (_state, fd) = State::create().unwrap();
    let program = Outbound::sealed(&fd, state::LEN).unwrap();
    let engine = StateView::new(fd).unwrap().engine_state().unwrap();
    let held = std::panic::AssertUnwindSafe((program, engine));
    bolero::check!().for_each(move |input: &[u8]| {
        let (program, engine) = &*held;
        let choices = Choices(Cell::new(input));
        let (producer, consumer) = engine.rings();
        producer.resume(3, 1 << 16, RING_MAX, KEY, 77);
        consumer.resume(3, 1 << 16, RING_MAX, KEY, 77);
        for _ in 0..choices.byte() % 4 {
            let word = u64::from(choices.byte()) % WORDS;
            let value = match choices.byte() % 4 {
                0 => choices.word(),
                1 => 1 << (choices.byte() % 64),
                2 => LINE * u64::from(choices.byte()),
                _ => choices.record(),
            };
            let at = 64 + usize::try_from(word * 8).unwrap();
            program.store_u64(at, value);
        }
        let ((ring, _), (_, credits)) =
            (memory::segment(segment_len(RING_MAX)), memory::segment(segment_len(64)));
        if let Some(copy) = producer.checked(3, RING_MAX, KEY) {
            let bytes = vec![7; 140_000];
            for _ in 0..8 {
                if produce(&copy, &ring, &credits, &choices, &bytes).is_err() {
                    break;
                }
            }
            copy.publish(producer);
            assert!(copy.cap() <= RING_MAX);
        }
        if let Some(copy) = consumer.checked(3, RING_MAX, KEY) {
            let len = usize::try_from(segment_len(RING_MAX)).unwrap();
            let memory = Shifting { choices: &choices, position: Cell::new(0), len };
            let _ = consume(&copy, &memory);
            copy.publish(consumer);
        }
    });
}

//! The ring over real mappings between two threads, byte for byte; the sanitizers run this too.
#![cfg(not(miri))]

use crosslane_shm::ring::{Consumer, Producer};
use crosslane_shm::{Inbound, Outbound, mem};
use crosslane_wire::record::Kind;
use crosslane_wire::segment::{RING_MIN, segment_len};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const TOTAL: u64 = 8 << 20;
const LIMIT: Duration = Duration::from_secs(60);

fn segment(len: u64) -> (Outbound, Inbound) {
    let fd = mem::new_segment("crosslane-test", len).unwrap();
    (Outbound::sealed(&fd, len).unwrap(), Inbound::sealed(&fd, len).unwrap())
}

/// The byte of the stream at `position`; a prime period, so that no lap of the ring equals another.
fn byte(position: u64) -> u8 {
    u8::try_from(position % 251).unwrap_or(0)
}

/// Lengths between 1 and 131072 that look random and are the same at each run.
fn length(step: u64) -> usize {
    let mixed = crosslane_wire::record::mark(1, step);
    usize::try_from(mixed % (1 << (mixed % 18))).unwrap().max(1)
}

fn produce(producer: &Producer, ring: &Outbound, credits: &Inbound) {
    let (mut sent, mut step, start) = (0, 0, Instant::now());
    while sent < TOTAL {
        let end = (sent + length(step) as u64).min(TOTAL);
        let bytes: Vec<u8> = (sent..end).map(byte).collect();
        let mut done = 0;
        while done < bytes.len() {
            let count = producer.push(ring, credits, Kind::Data, &bytes[done..], 0).unwrap();
            done += count;
            if count == 0 {
                assert!(start.elapsed() < LIMIT, "stuck after {sent} bytes");
                thread::yield_now();
            }
        }
        (sent, step) = (end, step + 1);
    }
}

fn consume(consumer: &Consumer, ring: &Inbound, back: &Outbound) {
    let (mut received, mut step, start) = (0, 7, Instant::now());
    let mut target = vec![0; 1 << 17];
    while received < TOTAL {
        let len = length(step);
        let count = consumer.take(ring, &mut target[..len]).unwrap();
        let wrong = target[..count].iter().zip(received..).position(|(&got, at)| got != byte(at));
        assert_eq!(wrong, None, "wrong byte near {received}");
        consumer.give_credit(back, step % 16 == 0);
        if count == 0 {
            assert!(start.elapsed() < LIMIT, "stuck after {received} bytes");
            thread::yield_now();
        }
        (received, step) = (received + count as u64, step + 1);
    }
}

#[test]
fn ring_delivers_every_byte_in_order_between_threads() {
    for (cap, ring_max) in [(RING_MIN, RING_MIN), (RING_MIN, 1 << 20), (256, 4096)] {
        let ((out, inb), (back, credits)) = (segment(segment_len(ring_max)), segment(segment_len(4096)));
        let (producer, consumer) = (Producer::default(), Consumer::default());
        producer.reset(cap, ring_max, 77);
        consumer.reset(cap, ring_max, 77);
        thread::scope(|scope| {
            scope.spawn(|| produce(&producer, &out, &credits));
            scope.spawn(|| consume(&consumer, &inb, &back));
        });
        assert!(producer.position() >= TOTAL);
    }
}

/// Ends the other thread, also when this one fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Threads that poll look at a stream without its lock, while others move it.
#[test]
fn ring_looks_without_the_lock_miss_and_change_nothing() {
    const ROUNDS: u64 = 300_000;
    const CAP: u64 = RING_MIN;
    let ((ring, data), (back, credits)) = (segment(segment_len(CAP)), segment(segment_len(4096)));
    let (producer, consumer) = (Producer::default(), Consumer::default());
    producer.reset(CAP, CAP, 77);
    consumer.reset(CAP, CAP, 77);
    producer.push(&ring, &credits, Kind::Data, &[0; 8], 0).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                assert!(consumer.arrived(&data), "the ring is never empty");
                if let Some(mut cursor) = consumer.glance() {
                    let seen = cursor.look(&data);
                    let passed = consumer.position() > cursor.position();
                    assert!(passed || matches!(seen, Ok(Some(_))), "{seen:?} at the front");
                }
                assert!(producer.glance(&credits, u64::MAX) <= CAP);
                producer.unconfirmed(&credits).unwrap();
            }
        });
        let _over = Over(&over);
        let mut bytes = [0; 8];
        for round in 1..=ROUNDS {
            assert_eq!(producer.push(&ring, &credits, Kind::Data, &round.to_le_bytes(), 0), Ok(8));
            consumer.take(&data, &mut bytes).unwrap();
            assert_eq!(bytes, (round - 1).to_le_bytes());
            consumer.give_credit(&back, false);
        }
    });
}

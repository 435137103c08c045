//! Credit that rides on the records of the other direction: in step, at random, among threads, and with a peer that lies.

mod memory;

use crosslane_shm::ring::{Consumer, Duplex, Producer, Violation};
use crosslane_shm::{Inbound, Load, Outbound, Store, mem};
use crosslane_wire::record::{BULK, FLAG_CREDIT, Header, Kind, mark};
use crosslane_wire::segment::{CREDIT, LINE, RING, WANT_ROOM, segment_len};
use proptest::prelude::*;
use std::thread;
use std::time::{Duration, Instant};

const CAP: u64 = 16384;
const KEY: u64 = 99;

/// One end: what it stores into, what it loads from, and its state.
struct End<O, I> {
    out: O,
    inb: I,
    producer: Producer,
    consumer: Consumer,
}

type Plain = End<memory::Out, memory::In>;

fn pair() -> [Plain; 2] {
    let (there, back) = (memory::segment(segment_len(CAP)), memory::segment(segment_len(CAP)));
    [End::new(there.0, back.1, 0), End::new(back.0, there.1, 0)]
}

impl<O: Store, I: Load> End<O, I> {
    fn new(out: O, inb: I, generation: u32) -> Self {
        let (producer, consumer) = (Producer::default(), Consumer::default());
        producer.resume(generation, CAP, CAP, KEY, 0);
        consumer.resume(generation, CAP, CAP, KEY, 0);
        Self { out, inb, producer, consumer }
    }

    fn credits(&self) -> Duplex<'_, I> {
        Duplex { words: &self.inb, consumer: &self.consumer, rides: true }
    }

    fn push(&self, bytes: &[u8]) -> usize {
        self.producer.push(&self.out, &self.credits(), Kind::Data, bytes, 0).unwrap()
    }

    /// Takes up to `target.len()` bytes, as a receive does.
    fn take(&self, target: &mut [u8]) -> usize {
        let mut done = 0;
        while done < target.len() {
            match self.consumer.take(&self.inb, &mut target[done..]).unwrap() {
                0 => break,
                count => done += count,
            }
        }
        self.consumer.give_or_offer(&self.out, &self.inb);
        done
    }

    fn stored(&self) -> u64 {
        self.consumer.credits()
    }

    fn rode(&self) -> u64 {
        self.producer.rides()
    }
}

#[test]
fn credit_word_is_not_stored_in_steady_request_and_reply() {
    for (request, reply) in [(1, 1), (8, 40), (40, 8), (100, 290), (8, 900), (900, 8)] {
        let [client, server] = pair();
        let mut bytes = [0; 1000];
        for _ in 0..1000 {
            assert_eq!(client.push(&[1; 1000][..request]), request);
            assert_eq!(server.take(&mut bytes[..request]), request);
            assert_eq!(server.push(&[2; 1000][..reply]), reply);
            assert_eq!(client.take(&mut bytes[..reply]), reply);
        }
        assert_eq!((client.stored(), server.stored()), (0, 0), "{request} and {reply}");
        assert!(client.rode() > 0 && server.rode() > 0);
        assert!(client.rode() + server.rode() <= 2000);
    }
}

#[test]
fn credit_word_is_stored_at_each_quarter_one_way() {
    let [client, server] = pair();
    let mut bytes = [0; 40];
    for _ in 0..640 {
        assert_eq!((client.push(&[1; 40]), server.take(&mut bytes)), (40, 40));
    }
    assert_eq!((server.stored(), server.rode()), (640 * LINE / (CAP / 4), 0));
}

#[test]
fn credit_word_is_stored_for_a_peer_that_reads_nothing() {
    let [client, server] = pair();
    let (mut bytes, mut answers) = ([0; 40], 0);
    // The client sends on and on and never reads what the server answers to each message.
    for _ in 0..1000 {
        assert_eq!(client.push(&[1; 40]), 40, "no room though all was read");
        assert_eq!(server.take(&mut bytes), 40);
        answers += server.push(b"x");
    }
    assert!(server.rode() > 0 && answers > 0);
    assert!(server.stored() >= 999 * LINE / (CAP / 4));
}

#[test]
fn credit_that_rode_is_not_sure_while_the_peer_wants_room() {
    let [client, server] = pair();
    let mut bytes = [0; 40];
    let mut lap = |client: &Plain, server: &Plain| {
        for _ in 0..CAP / LINE {
            client.push(&[1; 40]);
            server.take(&mut bytes);
            server.push(b"x");
            client.take(&mut bytes);
        }
    };
    lap(&client, &server);
    assert_eq!(server.stored(), 0);
    client.out.store_u64(WANT_ROOM, 7);
    lap(&client, &server);
    assert!(server.stored() >= 3, "{} stored", server.stored());
}

#[test]
fn credit_does_not_ride_between_two_generations() {
    let [client, server] = pair();
    let mut bytes = [0; 40];
    for _ in 0..40 {
        assert_eq!((client.push(&[1; 40]), server.take(&mut bytes)), (40, 40));
    }
    // An eighth is due, and would ride, but sending goes by the next ring already.
    server.producer.resume(1, CAP, CAP, KEY, 0);
    server.push(b"x");
    assert_eq!(server.rode(), 0);
    // And what rode in by the old ring says nothing of the next.
    let [client, server] = pair();
    for _ in 0..40 {
        client.push(&[1; 40]);
        server.take(&mut bytes);
    }
    server.push(b"x");
    client.take(&mut bytes);
    assert_eq!((server.rode(), client.producer.unconfirmed(&client.credits())), (1, Ok(0)));
    client.producer.resume(1, CAP, CAP, KEY, 0);
    assert_eq!(client.producer.room(&client.credits(), u64::MAX), Ok(CAP));
    assert_eq!(client.push(&[1; 2000]), 2000);
}

/// Stores a record at the start of the ring that `inb` is read by, with this credit riding.
fn forge(out: &memory::Out, position: u64, credit: u64) {
    let header = Header { len: 1, kind: Kind::Data, flags: FLAG_CREDIT, cpu: 0 };
    let at = RING + usize::try_from(position).unwrap();
    out.store_u64(at + 56, credit);
    out.store_u64(at + 8, header.to_word());
    out.store_u64(at, mark(KEY, position));
}

#[test]
fn credit_that_rode_beyond_what_was_sent_is_a_violation() {
    for credit in [64, 1 << 40, u64::MAX] {
        let [client, server] = pair();
        forge(&server.out, 0, credit);
        assert_eq!(client.take(&mut [0; 10]), 1);
        assert_eq!(
            client.producer.unconfirmed(&client.credits()),
            Err(Violation::Credit { got: credit, least: 0, most: 0 })
        );
        let all = client.producer.push(&client.out, &client.credits(), Kind::Data, &[0; 20_000], 0);
        assert!(matches!(all, Err(Violation::Credit { .. })), "{all:?}");
    }
}

#[test]
fn credit_that_rode_and_decreases_is_a_violation() {
    let [client, server] = pair();
    client.push(&[1; 400]);
    for (position, credit) in [(0, 128), (64, 128), (128, 64)] {
        forge(&server.out, position, credit);
    }
    let mut target = [0; 1];
    assert_eq!((client.take(&mut target), client.take(&mut target)), (1, 1));
    let third = client.consumer.take(&client.inb, &mut target);
    assert_eq!(third, Err(Violation::Credit { got: 64, least: 128, most: u64::MAX }));
}

#[test]
fn credit_word_may_lag_but_not_decrease() {
    let [client, server] = pair();
    client.push(&[1; 400]);
    forge(&server.out, 0, 320);
    client.take(&mut [0; 1]);
    server.out.store_u64(CREDIT, 128);
    assert_eq!(client.producer.unconfirmed(&client.credits()), Ok(448 - 320));
    server.out.store_u64(CREDIT, 64);
    assert!(client.producer.unconfirmed(&client.credits()).is_err());
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Push(usize),
    Take(usize),
}

fn op() -> impl Strategy<Value = (bool, Op)> {
    let op = prop_oneof![
        3 => (1..130usize).prop_map(Op::Push),
        1 => (1..9000usize).prop_map(Op::Push),
        3 => (1..130usize).prop_map(Op::Take),
        2 => (1..9000usize).prop_map(Op::Take),
    ];
    (any::<bool>(), op)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 2000 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Both directions at random: no false violation, no byte lost, and a ring whose reader has read all has room.
    #[test]
    fn credit_lets_both_directions_go_on(ops in prop::collection::vec(op(), 1..300)) {
        let ends = pair();
        let (mut sent, mut got) = ([0u64; 2], [0u64; 2]);
        let byte = |at: u64| u8::try_from(at % 251).unwrap_or(0);
        for (side, op) in ops {
            let (me, peer) = (usize::from(side), usize::from(!side));
            match op {
                Op::Push(len) => {
                    let bytes: Vec<u8> = (sent[me]..).take(len).map(byte).collect();
                    sent[me] += ends[me].push(&bytes) as u64;
                }
                Op::Take(len) => {
                    let mut bytes = vec![0; len];
                    let count = ends[me].take(&mut bytes);
                    prop_assert!(bytes[..count].iter().zip(got[peer]..).all(|(&got, at)| got == byte(at)));
                    got[peer] += count as u64;
                    if count < len {
                        let room = ends[peer].producer.room(&ends[peer].credits(), u64::MAX).unwrap();
                        // Of an open record nothing is given back, though all of it was taken.
                        prop_assert!(room > CAP * 3 / 4 - BULK, "{room} bytes of room in an empty ring");
                    }
                }
            }
        }
    }
}

type Mapped = End<Outbound, Inbound>;

/// Two threads to an end, both ways at once, as fast as they can: what one thread tells the other needs no lock.
#[test]
#[cfg(not(miri))]
fn credit_is_right_with_four_threads_on_two_ends() {
    const TOTAL: u64 = 4 << 20;
    const LIMIT: Duration = Duration::from_secs(60);
    let segment = || {
        let (len, fd) = (segment_len(CAP), mem::new_segment("crosslane-test", segment_len(CAP)).unwrap());
        (Outbound::sealed(&fd, len).unwrap(), Inbound::sealed(&fd, len).unwrap())
    };
    let (there, back) = (segment(), segment());
    let ends: [Mapped; 2] = [End::new(there.0, back.1, 3), End::new(back.0, there.1, 3)];
    let byte = |at: u64| u8::try_from(at % 251).unwrap_or(0);
    thread::scope(|scope| {
        for end in &ends {
            scope.spawn(move || {
                let (mut sent, start) = (0, Instant::now());
                while sent < TOTAL {
                    let len = usize::try_from(mark(1, sent) % 200 + 1).unwrap();
                    let bytes: Vec<u8> = (sent..TOTAL).take(len).map(byte).collect();
                    match end.push(&bytes) {
                        0 => thread::yield_now(),
                        count => sent += count as u64,
                    }
                    assert!(start.elapsed() < LIMIT, "stuck after {sent} bytes");
                }
            });
            scope.spawn(move || {
                let (mut got, mut bytes, start) = (0, [0; 500], Instant::now());
                while got < TOTAL {
                    let count = end.take(&mut bytes);
                    assert!(bytes[..count].iter().zip(got..).all(|(&got, at)| got == byte(at)), "near {got}");
                    got += count as u64;
                    if count == 0 {
                        thread::yield_now();
                    }
                    assert!(start.elapsed() < LIMIT, "stuck after {got} bytes");
                }
            });
        }
    });
    assert!(ends.iter().all(|end| end.rode() > 0));
}

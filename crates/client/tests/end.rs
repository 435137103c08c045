//! Two ends joined in one process: bytes, half close, downgrade, wake-ups, and a peer that lies.

use core::sync::atomic::{AtomicU32, Ordering};
use crosslane_client::link::{Advance, Receive, Send, WaitFor};
use crosslane_client::segments::{Next, Segments};
use crosslane_client::shared::SharedState;
use crosslane_client::{Daemon, End, Failure, Grant, ResumeError};
use crosslane_shm::mem::new_segment;
use crosslane_shm::ring::EASY;
use crosslane_shm::{Inbound, Outbound, Store};
use crosslane_wire::local::Request;
use crosslane_wire::record::Kind;
use crosslane_wire::segment::{CREDIT, LINE, RING, RING_MIN, segment_len};
use crosslane_wire::{CircuitId, Tuple, WaiterId, Way};
use std::io::{IoSlice, IoSliceMut};

const TID: u32 = 1;
const RING_MAX: u64 = 1 << 20;

/// No stream moves here.
#[derive(Debug)]
struct Alone;

thread_local! {
    /// What was told of this thread's ends that were broken off.
    static BROKEN_OFF: std::cell::RefCell<Vec<String>> = const { std::cell::RefCell::new(Vec::new()) };
}

impl Daemon for Alone {
    fn next(&self, _: CircuitId, _: u64, _: u32) -> Result<Next, ResumeError> {
        Err(ResumeError::Never)
    }

    fn wake(&self, _: CircuitId, _: u64, _: WaiterId) -> bool {
        true
    }

    fn tell(&self, request: &Request) -> bool {
        if let Request::Violated { circuit: CircuitId(1), token: 2, text } = request {
            BROKEN_OFF.with_borrow_mut(|told| told.push(text.clone()));
        }
        true
    }
}

struct Pair {
    client: End,
    server: End,
    /// What the client stores into, for tests that lie.
    forged: Outbound,
    status: [&'static AtomicU32; 2],
}

fn pair() -> Pair {
    pair_of(RING_MAX)
}

fn pair_of(ring_max: u64) -> Pair {
    let len = segment_len(ring_max);
    let (to_server, to_client) = (new_segment("a", len).unwrap(), new_segment("b", len).unwrap());
    let address = |port| std::net::SocketAddr::from(([10, 86, 0, 1], port));
    let status: [&'static AtomicU32; 2] = [(); 2].map(|()| &*Box::leak(Box::default()));
    let end = |client: bool| {
        let (inbound, outbound) = if client { (&to_client, &to_server) } else { (&to_server, &to_client) };
        let grant = Grant {
            circuit: CircuitId(1),
            token: 2,
            tuple: Tuple { client: address(1), server: address(2) },
            client,
            status: 0,
            segments: Segments {
                generation: 0,
                ring_max,
                rx_key: 10 + u64::from(client),
                tx_key: 11 - u64::from(client),
                inbound: Inbound::sealed(inbound, len).unwrap(),
                outbound: Outbound::sealed(outbound, len).unwrap(),
                way: Way::DIRECT,
                retention: None,
                posted_out_ns: 0,
                posted_in_ns: 0,
            },
            state: SharedState::create().unwrap().0,
            twin: false,
        };
        End::prepare(&grant);
        End::begin(grant, status[usize::from(client)], &Alone).unwrap()
    };
    let forged = Outbound::sealed(&to_server, len).unwrap();
    Pair { client: end(true), server: end(false), forged, status }
}

fn send(end: &End, bytes: &[u8]) -> Result<usize, Failure> {
    end.try_send(TID, &[IoSlice::new(bytes)], 0).map(|moved| moved.bytes)
}

fn receive(end: &End, count: usize) -> Result<Vec<u8>, Failure> {
    let mut bytes = vec![0; count];
    let moved = end.try_receive(TID, &mut [IoSliceMut::new(&mut bytes)])?;
    bytes.truncate(moved.bytes);
    Ok(bytes)
}

#[test]
fn bytes_arrive_in_order_while_the_ring_grows() {
    let pair = pair();
    let (mut sent, mut received, mut seed) = (0u64, 0u64, 12345u64);
    while received < 20_000_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let count = usize::try_from(seed >> 33).unwrap() % 100_000 + 1;
        let bytes: Vec<u8> = (sent..).take(count).map(|i| u8::try_from(i % 251).unwrap()).collect();
        if seed % 3 != 0 {
            match send(&pair.client, &bytes) {
                Ok(n) => sent += n as u64,
                Err(failure) => assert_eq!(failure, Failure::WouldBlock),
            }
        } else if let Ok(bytes) = receive(&pair.server, count) {
            for byte in bytes {
                assert_eq!(u64::from(byte), received % 251);
                received += 1;
            }
        }
    }
    assert_eq!(pair.client.shared().producer.cap(), RING_MAX);
}

#[test]
fn ring_that_is_full_grows_before_a_sender_counts_as_blocked() {
    let pair = pair_of(2 * EASY);
    let (client, blocked) = (&pair.client, &pair.client.shared().sending.blocked);
    while send(client, &[1; 100_000]).is_ok() {}
    assert_eq!(client.shared().producer.cap(), EASY);
    assert!(client.can_grow() && !client.has_credit() && client.has_room(TID));
    assert_eq!(blocked.load(Ordering::Relaxed), 0);
    client.request_grow();
    while send(client, &[2; 100_000]).is_ok() {}
    assert_eq!(client.shared().producer.cap(), 2 * EASY);
    assert!(!client.can_grow() && !client.has_room(TID));
    assert!(blocked.load(Ordering::Relaxed) > 0);
    while receive(&pair.server, 1 << 20).is_ok() {}
    assert!(client.has_credit() && client.has_room(TID));
}

#[test]
fn gathered_buffers_scatter_and_peek_leaves_them() {
    let pair = pair();
    let buffers = [IoSlice::new(b"hel"), IoSlice::new(b""), IoSlice::new(b"lo wor"), IoSlice::new(b"ld")];
    assert_eq!(pair.client.try_send(TID, &buffers, 1).unwrap().bytes, 10);
    assert_eq!(pair.server.unread(TID), Ok(10));
    let mut peeked = [0; 6];
    assert_eq!(pair.server.try_peek(TID, &mut [IoSliceMut::new(&mut peeked)]), Ok(6));
    assert_eq!(&peeked, b"ello w");
    let (mut a, mut b) = ([0; 4], [0; 20]);
    let moved = pair.server.try_receive(TID, &mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)]);
    assert_eq!((moved.unwrap().bytes, &a, &b[..6]), (10, b"ello", b" world".as_slice()));
    assert_eq!(receive(&pair.server, 1), Err(Failure::WouldBlock));
}

#[test]
fn half_close_ends_one_direction() {
    let pair = pair();
    send(&pair.client, b"last").unwrap();
    pair.client.send_control(TID, Kind::DisConn).unwrap();
    assert_eq!(send(&pair.client, b"more"), Err(Failure::Ended));
    assert!(pair.server.ready(TID).readable);
    assert_eq!(receive(&pair.server, 10).unwrap(), b"last");
    assert_eq!(receive(&pair.server, 10), Err(Failure::Ended));
    assert!(pair.server.ready(TID).read_closed);
    assert_eq!(send(&pair.server, b"answer"), Ok(6));
    assert_eq!(receive(&pair.client, 10).unwrap(), b"answer");
}

#[test]
fn downgrade_is_exact_to_the_byte_even_in_a_full_ring() {
    let pair = pair();
    let mut sent = 0;
    while let Ok(n) = send(&pair.client, &[7; 60_000]) {
        sent += n;
        if sent > 60_000 {
            break;
        }
    }
    while send(&pair.client, &[7; 60_000]).map(|n| sent += n).is_ok() {}
    pair.client.send_control(TID, Kind::Downgrade).unwrap();
    assert_eq!(send(&pair.client, b"x"), Err(Failure::Tcp));
    let mut received = 0;
    let failure = loop {
        match receive(&pair.server, 100_000) {
            Ok(bytes) => received += bytes.len(),
            Err(failure) => break failure,
        }
    };
    assert_eq!((received, failure), (sent, Failure::Tcp));
}

#[test]
fn waiter_is_woken_once_for_each_request() {
    let pair = pair();
    assert!(!pair.server.has_data(TID));
    assert!(pair.server.want_data(WaiterId(5)));
    assert!(!pair.server.want_data(WaiterId(6)), "another waiter is there already");
    let wake = |bytes| pair.client.try_send(TID, &[IoSlice::new(bytes)], 0).unwrap().wake;
    assert_eq!(wake(b"a"), Some(WaiterId(5)));
    assert_eq!(wake(b"b"), None);
    pair.server.unwant_data(WaiterId(5));
    assert_eq!(wake(b"c"), None);
    assert!(pair.server.want_data(WaiterId(6)));
    assert_eq!(wake(b"d"), Some(WaiterId(6)));
}

#[test]
fn credit_wakes_a_sender_that_waits_for_room() {
    let pair = pair();
    while send(&pair.client, &[1; 10_000]).is_ok() {}
    assert!(!pair.client.ready(TID).writable);
    assert!(pair.client.want_room(WaiterId(9)));
    let (mut wakes, mut left) = (0, true);
    while !pair.client.ready(TID).writable {
        let mut bytes = [0; 4096];
        assert!(left, "read empty, and not writable");
        let moved = pair.server.try_receive(TID, &mut [IoSliceMut::new(&mut bytes)]).unwrap();
        left = pair.server.has_data(TID);
        if moved.wake == Some(WaiterId(9)) {
            wakes += 1;
            pair.client.unwant_room(WaiterId(9));
            assert!(pair.client.want_room(WaiterId(9)));
        }
    }
    assert!((1..20).contains(&wakes), "{wakes} wakes");
}

#[test]
fn requests_and_replies_need_no_message_for_credit() {
    let pair = pair();
    for _ in 0..5000 {
        assert_eq!(send(&pair.client, &[1; 40]), Ok(40));
        assert_eq!(receive(&pair.server, 100).unwrap().len(), 40);
        assert_eq!(send(&pair.server, &[2; 1000]), Ok(1000));
        assert_eq!(receive(&pair.client, 2000).unwrap().len(), 1000);
    }
    for end in [&pair.client, &pair.server] {
        assert_eq!(end.shared().consumer.credits(), 0);
        assert!(end.shared().producer.rides() > 0);
    }
}

#[test]
fn edges_are_seen_once_for_each_arrival() {
    let pair = pair();
    let mut seen = None;
    pair.server.refresh(TID);
    pair.server.arrivals(&mut seen);
    send(&pair.client, b"a").unwrap();
    assert!(pair.server.arrivals(&mut seen));
    assert!(!pair.server.arrivals(&mut seen));
    send(&pair.client, b"b").unwrap();
    assert!(pair.server.arrivals(&mut seen));
    receive(&pair.server, 10).unwrap();
    assert!(!pair.server.arrivals(&mut seen));
}

/// Falls behind until small sends are gathered; returns how many bytes lie unread.
fn fall_behind(pair: &Pair) -> usize {
    let producer = &pair.client.shared().producer;
    (0..)
        .map_while(|_| {
            (producer.position() < producer.cap() / 2).then(|| send(&pair.client, &[0; 40]).unwrap())
        })
        .sum()
}

#[test]
fn gathered_sends_are_edges_and_bells_and_can_be_peeked_at() {
    let pair = pair();
    let lines = fall_behind(&pair);
    let (before, mut seen) = (pair.client.shared().producer.position(), None);
    send(&pair.client, b"abc").unwrap();
    assert!(pair.server.arrivals(&mut seen) && !pair.server.arrivals(&mut seen));
    assert_eq!(pair.server.unread(TID), Ok(lines + 3));
    assert_eq!(receive(&pair.server, lines + 1).unwrap().last(), Some(&b'a'));
    send(&pair.client, b"de").unwrap();
    assert!(pair.server.arrivals(&mut seen), "appended bytes are an edge");
    assert!(!pair.server.arrivals(&mut seen));
    assert_eq!(pair.server.unread(TID), Ok(4));
    let mut peeked = [0; 9];
    let (one, two) = peeked.split_at_mut(1);
    let both = &mut [IoSliceMut::new(one), IoSliceMut::new(two)];
    assert_eq!(pair.server.try_peek(TID, both), Ok(4));
    assert_eq!(&peeked[..4], b"bcde");
    let mark = pair.server.wake_mark();
    assert_eq!(receive(&pair.server, 9).unwrap(), b"bcde");
    assert_ne!(pair.server.wake_mark(), mark, "what was read must be asked for anew");
    assert_eq!(pair.client.shared().producer.position() - before, LINE, "one record");

    // All is taken, and nothing says otherwise until there is more.
    assert!(!pair.server.has_data(TID) && !pair.server.maybe_readable() && !pair.server.ready(TID).readable);
    assert_eq!((pair.server.unread(TID), receive(&pair.server, 9)), (Ok(0), Err(Failure::WouldBlock)));
    let wake = |bytes| pair.client.try_send(TID, &[IoSlice::new(bytes)], 0).unwrap().wake;
    assert_eq!(wake(b"f"), None);
    assert!(pair.server.has_data(TID) && pair.server.maybe_readable() && pair.server.arrivals(&mut seen));
    assert_eq!(receive(&pair.server, 9).unwrap(), b"f");
    // A sleeper is rung, and gets a record of its own.
    assert!(pair.server.want_data(WaiterId(5)));
    assert_eq!(wake(b"g"), Some(WaiterId(5)));
    assert!(pair.server.has_data(TID) && pair.server.arrivals(&mut seen));
    assert_eq!(receive(&pair.server, 9).unwrap(), b"g");
    pair.server.unwant_data(WaiterId(5));
}

#[test]
fn end_comes_after_what_was_gathered() {
    let pair = pair();
    let lines = fall_behind(&pair);
    for _ in 0..300 {
        send(&pair.client, b"12345").unwrap();
    }
    pair.client.send_control(TID, Kind::DisConn).unwrap();
    let all = receive(&pair.server, 1 << 20).unwrap();
    assert_eq!(all[lines..], b"12345".repeat(300));
    assert_eq!(receive(&pair.server, 9), Err(Failure::Ended));
}

#[test]
fn lies_of_the_peer_reset_the_stream_and_nothing_else() {
    let pair = pair();
    pair.forged.store_u64(CREDIT, 1 << 40);
    while send(&pair.server, &[0; 60_000]).is_ok() {}
    assert!(matches!(send(&pair.server, b"x"), Err(Failure::Reset)));
    assert!(pair.server.ready(TID).error);
    let told = BROKEN_OFF.take();
    assert!(
        matches!(&told[..], [why] if why.contains("credit")),
        "the far side is to hear of it, once: {told:?}"
    );

    let pair = self::pair();
    pair.server.refresh(TID);
    let position = pair.client.shared().producer.position();
    let at = RING + usize::try_from(position).unwrap();
    pair.forged.store_u64(at + 8, u64::MAX);
    pair.forged.store_u64(at, crosslane_wire::record::mark(10, position));
    assert!(matches!(receive(&pair.server, 10), Err(Failure::Violation(_))));
    assert_eq!(receive(&pair.server, 10), Err(Failure::Reset));
    assert_eq!(BROKEN_OFF.take().len(), 1);
}

#[test]
fn circuit_that_died_delivers_what_arrived_and_then_fails() {
    let pair = pair();
    send(&pair.client, b"made it").unwrap();
    pair.status[0].store(1, Ordering::Relaxed);
    assert_eq!(receive(&pair.server, 10).unwrap(), b"made it");
    assert_eq!(receive(&pair.server, 10), Err(Failure::Reset));
    assert_eq!(send(&pair.server, b"x"), Err(Failure::Reset));
    assert!(pair.server.ready(TID).hung_up);
}

/// A far end that says all, ends and is gone at any moment of a receive: its end is heard, and no reset.
#[test]
fn far_end_that_ends_and_dies_at_once_is_received_to_the_end() {
    for round in 0..2000_u32 {
        let pair = pair_of(RING_MIN);
        let status = pair.status[0];
        let client = pair.client;
        let far = std::thread::spawn(move || {
            for _ in 0..round % 64 {
                core::hint::spin_loop();
            }
            send(&client, b"all").unwrap();
            client.send_control(TID, Kind::DisConn).unwrap();
            client.leave();
            status.store(1, Ordering::Release);
            client
        });
        let mut heard = Vec::new();
        let end = loop {
            match receive(&pair.server, 10) {
                Ok(bytes) => heard.extend(bytes),
                Err(Failure::WouldBlock) => core::hint::spin_loop(),
                Err(end) => break end,
            }
        };
        assert_eq!((end, heard.as_slice()), (Failure::Ended, b"all".as_slice()), "round {round}");
        drop(far.join());
    }
}

#[test]
fn bytes_to_a_far_end_that_left_fail_as_tcp_has_it() {
    let pair = pair();
    send(&pair.server, b"bye").unwrap();
    pair.server.send_control(TID, Kind::DisConn).unwrap();
    pair.server.leave();
    assert_eq!(receive(&pair.client, 10).unwrap(), b"bye");
    assert_eq!(receive(&pair.client, 10), Err(Failure::Ended));
    assert_eq!(send(&pair.client, b""), Err(Failure::Unheard(0)));
    assert_eq!(send(&pair.client, b"heard by nobody"), Err(Failure::Unheard(15)));
    assert_eq!(send(&pair.client, b"again"), Err(Failure::Ended));
}

#[test]
fn far_end_that_was_killed_does_not_let_its_sender_wait_for_room() {
    let pair = pair();
    pair.client.refresh(TID);
    while send(&pair.client, &[1; 10_000]).is_ok() {}
    pair.client.shared().status.fin.store(1, Ordering::Relaxed);
    assert!(pair.client.ready(TID).writable);
    assert_eq!(send(&pair.client, b"x"), Err(Failure::Unheard(1)));
    assert_eq!(send(&pair.client, b"x"), Err(Failure::Ended));
}

/// More bytes than rings hold go by one thread that advances both operations by turns: nobody waits.
#[test]
fn operations_are_advanced_until_they_are_done() {
    let pair = pair_of(RING_MIN);
    let bytes: Vec<u8> = (0..5 * RING_MIN).map(|at| (at % 251) as u8).collect();
    let mut into = vec![0; bytes.len()];
    let (parts, mut whole) = ([IoSlice::new(&bytes)], [IoSliceMut::new(&mut into)]);
    let (mut send, mut receive) = (Send::new(&parts, 0), Receive::new(&mut whole, bytes.len()));
    assert_eq!(receive.try_advance(&pair.server, TID, drop), Ok(Advance::Pending(WaitFor::Data)));
    let mut pending = 0;
    while send.try_advance(&pair.client, TID, drop).unwrap() != Advance::Done {
        pending += 1;
        assert!(send.done() < bytes.len());
        assert_eq!(receive.try_advance(&pair.server, TID, drop), Ok(Advance::Pending(WaitFor::Data)));
        assert!(receive.done() <= send.done());
    }
    assert!(pending >= 3, "a ring holds less than all");
    assert_eq!(receive.try_advance(&pair.server, TID, drop), Ok(Advance::Done));
    assert_eq!((send.done(), receive.done()), (bytes.len(), bytes.len()));
    assert_eq!(into, bytes);
}

/// What was received before a stream ended counts, and the end is told behind it.
#[test]
fn receive_that_meets_the_end_returns_how_much_came() {
    let pair = pair();
    let mut into = [0; 8];
    let mut whole = [IoSliceMut::new(&mut into)];
    let mut receive = Receive::new(&mut whole, 8);
    pair.client.try_send(TID, &[IoSlice::new(b"abc")], 0).unwrap();
    assert_eq!(receive.try_advance(&pair.server, TID, drop), Ok(Advance::Pending(WaitFor::Data)));
    pair.client.send_control(TID, Kind::DisConn).unwrap();
    assert_eq!(receive.try_advance(&pair.server, TID, drop), Err(Failure::Ended));
    assert_eq!(receive.done(), 3);
    assert_eq!(into[..3], *b"abc");
}

//! Striped streams: two circuits for the bytes of one stream, against a model that is a queue of bytes.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use crosslane_client::segments::{Next, Segments};
use crosslane_client::shared::SharedState;
use crosslane_client::{CircuitEnd, Daemon, End, Failure, Grant, ResumeError};
use crosslane_shm::mem::new_segment;
use crosslane_shm::{Inbound, Outbound};
use crosslane_wire::local::{STATUS_PEER_ABORT, status_word};
use crosslane_wire::record::Kind;
use crosslane_wire::segment::segment_len;
use crosslane_wire::stripe::PIECE;
use crosslane_wire::{CircuitId, Tuple, WaiterId, Way};
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};

const TID: u32 = 1;
const RING_MAX: u64 = 1 << 17;

/// No stream moves here, and nobody sleeps.
#[derive(Debug)]
struct Alone;

impl Daemon for Alone {
    fn next(&self, _: CircuitId, _: u64, _: u32) -> Result<Next, ResumeError> {
        Err(ResumeError::Never)
    }

    fn wake(&self, _: CircuitId, _: u64, _: WaiterId) -> bool {
        true
    }
}

/// The two ends of a circuit, not begun yet, each with its status word.
fn grants() -> [(Grant, &'static AtomicU32); 2] {
    let len = segment_len(RING_MAX);
    let memory = [new_segment("a", len).unwrap(), new_segment("b", len).unwrap()];
    let address = |port| std::net::SocketAddr::from(([10, 86, 0, 1], port));
    [true, false].map(|client| {
        let (inbound, outbound) = (&memory[usize::from(client)], &memory[usize::from(!client)]);
        let segments = Segments {
            generation: 0,
            ring_max: RING_MAX,
            rx_key: 10 + u64::from(client),
            tx_key: 11 - u64::from(client),
            inbound: Inbound::sealed(inbound, len).unwrap(),
            outbound: Outbound::sealed(outbound, len).unwrap(),
            way: Way::DIRECT,
            retention: None,
            posted_out_ns: 0,
            posted_in_ns: 0,
        };
        let (state, _) = SharedState::create().unwrap();
        let tuple = Tuple { client: address(1), server: address(2) };
        let (circuit, token, status, twin) = (CircuitId(1), 2, 0, false);
        (Grant { circuit, token, tuple, client, status, segments, state, twin }, &*Box::leak(Box::default()))
    })
}

fn twin((grant, status): (Grant, &'static AtomicU32)) -> CircuitEnd {
    CircuitEnd::prepare(&grant);
    CircuitEnd::begin(grant, status, &Alone).unwrap()
}

fn first((grant, status): (Grant, &'static AtomicU32)) -> End {
    End::prepare(&grant);
    End::begin(grant, status, &Alone).unwrap()
}

/// Both ends of a striped stream.
fn pair() -> [End; 2] {
    let (ends, twins) = (grants().map(first), grants().map(twin));
    ends.iter().zip(twins).for_each(|(end, twin)| end.stripe(twin));
    ends
}

fn receive(end: &End, count: usize) -> Result<Vec<u8>, Failure> {
    let mut bytes = vec![0; count];
    let moved = end.try_receive(TID, &mut [IoSliceMut::new(&mut bytes)])?;
    bytes.truncate(moved.bytes);
    Ok(bytes)
}

/// One direction: its ends, and what lies between them by the model.
struct Way1<'a> {
    from: &'a End,
    to: &'a End,
    between: VecDeque<u8>,
    next: u64,
}

impl Way1<'_> {
    fn send(&mut self, lengths: [usize; 2]) {
        let bytes: Vec<u8> = (self.next..).take(lengths[0] + lengths[1]).map(|at| (at % 251) as u8).collect();
        let (one, other) = bytes.split_at(lengths[0]);
        let sent = match self.from.try_send(TID, &[IoSlice::new(one), IoSlice::new(other)], 0) {
            Ok(moved) => moved.bytes,
            Err(failure) => {
                assert_eq!(failure, Failure::WouldBlock);
                0
            }
        };
        self.between.extend(&bytes[..sent]);
        self.next += sent as u64;
    }

    fn look(&self, count: usize) {
        let there = self.between.len();
        assert_eq!(self.to.unread(TID), Ok(there));
        assert_eq!(self.to.ready(TID).readable, there > 0);
        assert_eq!(self.to.maybe_readable(), there > 0);
        let mut bytes = vec![0; count];
        match self.to.try_peek(TID, &mut [IoSliceMut::new(&mut bytes)]) {
            Ok(peeked) => {
                assert_eq!(peeked, there.min(count));
                assert!(bytes.iter().zip(&self.between).take(peeked).all(|(one, other)| one == other));
            }
            Err(failure) => assert_eq!((failure, there), (Failure::WouldBlock, 0)),
        }
    }

    fn receive(&mut self, count: usize) {
        match receive(self.to, count) {
            Ok(bytes) => {
                assert_eq!(bytes.len(), self.between.len().min(count));
                assert!(bytes.into_iter().eq(self.between.drain(..count.min(self.between.len()))));
            }
            Err(failure) => assert_eq!((failure, self.between.len()), (Failure::WouldBlock, 0)),
        }
    }
}

#[test]
fn striped_bytes_arrive_in_order_both_ways() {
    let [client, server] = pair();
    let way = |from, to| Way1 { from, to, between: VecDeque::new(), next: 0 };
    let mut ways = [way(&client, &server), way(&server, &client)];
    let mut seed = 12345_u64;
    let mut draw = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(seed >> 33).unwrap() % below
    };
    for _ in 0..4000 {
        let way = &mut ways[draw(2)];
        if draw(10) == 0 {
            // Another holder was killed before it stored what it had moved.
            way.from.shared().sending.striped.fetch_add(5, Relaxed);
            way.to.shared().receiving.striped.fetch_add(PIECE, Relaxed);
            for end in [way.from, way.to] {
                let _ = end.make_good(TID);
            }
        }
        // Some of a few bytes, some of many pieces.
        let most = [20, 3000, 100_000][draw(3)];
        match draw(3) {
            0 => way.send([draw(most), 1 + draw(most)]),
            1 => way.receive(1 + draw(most)),
            _ => way.look(1 + draw(most)),
        }
    }
    assert!(ways.iter().all(|way| way.next > 100 * PIECE), "{} {}", ways[0].next, ways[1].next);
    let moved = client.statistics();
    assert_eq!((moved.tx_bytes, moved.rx_bytes), (ways[0].next, ways[1].next - ways[1].between.len() as u64));
}

#[test]
fn striped_direction_ends_behind_its_last_byte() {
    for len in [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 3 * PIECE + 5] {
        let [client, server] = pair();
        let bytes = vec![7; usize::try_from(len).unwrap()];
        if len > 0 {
            assert_eq!(client.try_send(TID, &[IoSlice::new(&bytes)], 0).unwrap().bytes, bytes.len());
        }
        client.end_sending(TID).unwrap();
        assert!(client.try_send(TID, &[IoSlice::new(b"more")], 0).is_err());
        let mut got = Vec::new();
        while let Ok(more) = receive(&server, 10_000) {
            got.extend(more);
        }
        assert_eq!(got, bytes);
        assert_eq!(receive(&server, 1), Err(Failure::Ended), "{len}");
        assert!(server.ready(TID).readable && !server.ready(TID).hung_up);
        assert_eq!(server.try_send(TID, &[IoSlice::new(b"answer")], 0).unwrap().bytes, 6);
        assert_eq!(receive(&client, 10), Ok(b"answer".to_vec()));
    }
}

#[test]
fn striped_stream_is_over_with_either_circuit() {
    for dead in [0, 1] {
        let (ends, twins) = (grants(), grants());
        let words = [ends[1].1, twins[1].1];
        let ends = ends.map(first);
        ends.iter().zip(twins.map(twin)).for_each(|(end, twin)| end.stripe(twin));
        words[dead].store(status_word(0, STATUS_PEER_ABORT), Relaxed);
        let [_, server] = &ends;
        assert!(server.dead().is_some() && server.ready(TID).hung_up);
        // The first piece is the first circuit's, the next one the second's.
        let mut outcome = Ok(0);
        for _ in 0..4 {
            let bytes = vec![1; 10_000];
            outcome = server.try_send(TID, &[IoSlice::new(&bytes)], 0).map(|moved| moved.bytes);
        }
        assert!(matches!(outcome, Err(Failure::Reset)), "{dead}: {outcome:?}");
    }
}

#[test]
fn striped_acceptor_waits_for_the_second_handshake() {
    let ([client, server], [near, far]) = (grants().map(first), grants());
    server.stripe(twin(far));
    let bytes = vec![3; 50_000];
    let sent = || server.try_send(TID, &[IoSlice::new(&bytes)], 0).map(|moved| moved.bytes);
    assert_eq!(sent(), Ok(usize::try_from(PIECE).unwrap()), "the other side may have one circuit only");
    assert_eq!((sent(), server.has_room(TID)), (Err(Failure::WouldBlock), false));
    client.stripe(twin(near));
    assert!(server.has_room(TID) && sent().is_ok());
    assert_eq!(receive(&client, 20_000).map(|got| got.len()), Ok(20_000));
}

#[test]
fn striped_stream_is_reset_if_its_second_circuit_breaks_the_protocol() {
    let [client, server] = pair();
    // A handshake where bytes are due.
    client.twin().unwrap().send_control(TID, Kind::AbortConn).unwrap();
    let bytes = vec![3; 20_000];
    let _ = client.try_send(TID, &[IoSlice::new(&bytes)], 0);
    let got = (0..4).map(|_| receive(&server, 20_000)).find(Result::is_err);
    assert_eq!(got, Some(Err(Failure::Reset)));
    assert!(server.ready(TID).hung_up);
}

#[test]
fn striped_bytes_are_in_order_whatever_sum_a_holder_left() {
    let [client, server] = pair();
    let bytes: Vec<u8> = (0..100_000_u64).map(|at| (at % 251) as u8).collect();
    let (mut sent, mut got) = (0, Vec::new());
    while got.len() < bytes.len() {
        client.shared().sending.striped.fetch_add(PIECE + 1, Relaxed);
        server.shared().receiving.striped.fetch_add(PIECE - 1, Relaxed);
        let to = bytes.len().min(sent + 7001);
        if sent < to {
            sent += client.try_send(TID, &[IoSlice::new(&bytes[sent..to])], 0).map_or(0, |moved| moved.bytes);
        }
        got.extend(receive(&server, 5003).unwrap_or_default());
    }
    assert!(got == bytes);
}

#[test]
fn striped_arrivals_are_edges_by_either_circuit() {
    let [client, server] = pair();
    let mut seen = None;
    server.refresh(TID);
    server.arrivals(&mut seen);
    for _ in 0..20 {
        assert!(!server.arrivals(&mut seen));
        assert!(client.try_send(TID, &[IoSlice::new(&[7; 4000])], 0).is_ok());
        assert!(server.arrivals(&mut seen));
    }
    while receive(&server, 3000).is_ok() {}
    assert!(client.try_send(TID, &[IoSlice::new(b"more")], 0).is_ok() && server.arrivals(&mut seen));
}

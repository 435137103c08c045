//! Moves at chosen moments, in one thread.

use crate::rig::{Mover, Rig, bytes, receive, send, tid};
use crosslane_client::Failure;
use crosslane_wire::WaiterId;
use crosslane_wire::record::Kind;
use crosslane_wire::segment::{ACKED, RETENTION, RETENTION_MIN, RING_MIN};
use std::io::IoSliceMut;

const RING_MAX: u64 = 1 << 20;

fn read_all(end: &crosslane_client::End) -> Vec<u8> {
    let mut all = Vec::new();
    while let Ok(more) = receive(end, 1 << 20) {
        all.extend(more);
    }
    all
}

fn is_ready(rig: &Rig, end: usize) -> (bool, bool) {
    let ready = rig.ends[end].ready(tid());
    (ready.readable, ready.writable)
}

fn lost(rig: &Rig) -> Mover {
    let mover = rig.mover();
    mover.lose();
    mover
}

#[test]
fn stream_stands_still_while_another_circuit_is_sought() {
    let rig = Rig::new(RING_MAX, false);
    send(&rig.ends[0], b"before").unwrap();
    let mut mover = lost(&rig);
    assert_eq!(receive(&rig.ends[1], 10), Err(Failure::WouldBlock));
    assert_eq!(send(&rig.ends[0], b"meanwhile"), Err(Failure::WouldBlock));
    assert_eq!(is_ready(&rig, 1), (false, false));
    assert!(!rig.ends[1].maybe_readable() && !rig.ends[1].gone());
    mover.find(RING_MAX, false, None);
    assert!(rig.ends[1].maybe_readable());
    assert_eq!(is_ready(&rig, 1), (true, true));
    assert_eq!(send(&rig.ends[0], b", behind"), Ok(8));
    assert_eq!(receive(&rig.ends[1], 3).unwrap(), b"bef");
    assert_eq!(read_all(&rig.ends[1]), b"ore, behind");
    assert!(rig.ends[0].is_steady() && rig.ends[1].is_steady());
}

#[test]
fn bytes_lost_on_the_way_are_sent_again_whoever_notices() {
    let rig = Rig::new(RING_MAX, true);
    let sent = bytes(0, 300_000);
    assert_eq!(send(&rig.ends[0], &sent), Ok(sent.len()));
    rig.ends[0].send_control(tid(), Kind::DisConn).unwrap();
    assert_eq!(receive(&rig.ends[1], 1000).unwrap(), &sent[..1000]);
    let mut mover = lost(&rig);
    // The first record has arrived, of which a part was read, and nothing else.
    let first = rig.hosts[1].first();
    assert!(first > 1000 && first < 100_000);
    mover.find_with(RING_MAX, false, [1, first], [1, first]);
    // The sender only looks whether an answer has come.
    assert_eq!(receive(&rig.ends[0], 1), Err(Failure::WouldBlock));
    assert_eq!(read_all(&rig.ends[1]), &sent[1000..]);
    assert_eq!(receive(&rig.ends[1], 1), Err(Failure::Ended));
}

#[test]
fn retention_of_an_earlier_circuit_is_sent_again_by_a_process_that_knows_only_this_one() {
    let rig = Rig::new(RING_MAX, true);
    let sent = bytes(0, 300_000);
    assert_eq!(send(&rig.ends[0], &sent), Ok(sent.len()));
    receive(&rig.ends[1], 1).unwrap();
    let mut mover = lost(&rig);
    let first = rig.hosts[1].first();
    mover.find_with(RING_MIN, false, [1, first], [1, first]);
    // One process goes on, and finds room for a part of it.
    rig.ends[0].attend(tid());
    let other = rig.hosts[0].hold(1);
    let mut got = read_all(&rig.ends[1]);
    assert!(got.len() + 1 < sent.len());
    while got.len() + 1 < sent.len() {
        other.attend(tid());
        got.extend(receive(&rig.ends[1], 1 << 20).unwrap());
    }
    assert_eq!(got, &sent[1..]);
    assert_eq!(send(&other, b"more"), Ok(4));
    assert_eq!(read_all(&rig.ends[1]), b"more");
}

#[test]
fn handshake_that_was_lost_is_sent_again() {
    for retained in [false, true] {
        let rig = Rig::new(RING_MAX, retained);
        let mut mover = lost(&rig);
        mover.find_with(RING_MAX, retained, [0, 0], [0, 0]);
        rig.ends[0].attend(tid());
        assert_eq!(send(&rig.ends[1], b"welcome"), Ok(7));
        assert_eq!(receive(&rig.ends[0], 10).unwrap(), b"welcome");
        assert_eq!(send(&rig.ends[0], b"thanks"), Ok(6));
        assert_eq!(receive(&rig.ends[1], 10).unwrap(), b"thanks");
    }
}

#[test]
fn circuits_that_nobody_used_are_passed_over() {
    let rig = Rig::new(RING_MAX, false);
    send(&rig.ends[0], b"a").unwrap();
    let mut mover = rig.mover();
    for _ in 0..5 {
        mover.jump(RING_MAX, false, None);
    }
    assert_eq!(send(&rig.ends[0], b"b"), Ok(1));
    mover.jump(RING_MIN, false, None);
    assert_eq!(send(&rig.ends[0], b"c"), Ok(1));
    assert_eq!(rig.ends[1].unread(tid()), Ok(3));
    let mut peeked = [0; 10];
    assert_eq!(rig.ends[1].try_peek(tid(), &mut [IoSliceMut::new(&mut peeked)]), Ok(3));
    assert_eq!(read_all(&rig.ends[1]), b"abc");
}

#[test]
fn end_of_a_direction_that_comes_meanwhile_is_sent_where_the_stream_goes_on() {
    let rig = Rig::new(RING_MAX, false);
    send(&rig.ends[0], b"last").unwrap();
    let mut mover = lost(&rig);
    rig.ends[0].send_control(tid(), Kind::DisConn).unwrap();
    assert_eq!(send(&rig.ends[0], b"x"), Err(Failure::Ended));
    mover.find(RING_MAX, false, None);
    rig.ends[0].refresh(tid());
    assert_eq!(read_all(&rig.ends[1]), b"last");
    assert_eq!(receive(&rig.ends[1], 1), Err(Failure::Ended));
    assert_eq!(send(&rig.ends[1], b"still"), Ok(5));
    assert_eq!(read_all(&rig.ends[0]), b"still");
}

#[test]
fn far_end_closed_by_its_fin_alone_is_not_over_while_bytes_may_come() {
    let rig = Rig::new(RING_MAX, true);
    send(&rig.ends[0], b"under way").unwrap();
    rig.ends[1].shared().status.fin.store(1, core::sync::atomic::Ordering::Relaxed);
    rig.ends[0].leave();
    let mut mover = lost(&rig);
    assert_eq!(receive(&rig.ends[1], 10), Err(Failure::WouldBlock));
    mover.find_with(RING_MAX, true, [1, 1], [1, 1]);
    rig.ends[0].attend(tid());
    rig.ends[0].leave();
    assert_eq!(receive(&rig.ends[1], 10).unwrap(), b"under way");
    assert_eq!(receive(&rig.ends[1], 10), Err(Failure::Ended));
}

#[test]
fn retention_bounds_what_is_on_its_way() {
    let rig = Rig::new(4 * RETENTION, true);
    let mut sent = 0;
    while let Ok(count) = send(&rig.ends[0], &bytes(sent, 100_000)) {
        sent += count as u64;
        rig.ends[0].request_grow();
        rig.ends[0].request_retention();
    }
    assert!(sent <= RETENTION && sent > RETENTION - 100_000, "{sent}");
    assert_eq!(is_ready(&rig, 0), (false, false));
    assert_eq!(rig.ends[0].room(tid()), usize::try_from(RETENTION - sent - 1).unwrap_or(0));
    assert_eq!(read_all(&rig.ends[1]), bytes(0, usize::try_from(sent).unwrap()));
    assert_eq!(send(&rig.ends[0], b"x"), Err(Failure::WouldBlock));
    rig.mover().forge(0, ACKED, 1 + sent);
    assert_eq!(is_ready(&rig, 0), (false, true));
    assert!(send(&rig.ends[0], b"x").is_ok());
}

#[test]
fn retention_from_before_it_grew_is_sent_again() {
    let rig = Rig::new(4 * RETENTION, true);
    let mut sent = 0;
    while sent < 3_000_000 {
        sent += send(&rig.ends[0], &bytes(sent, 100_000)).unwrap_or_default() as u64;
        rig.ends[0].request_grow();
        rig.ends[0].request_retention();
    }
    let mut mover = lost(&rig);
    mover.find_with(4 * RETENTION, true, [1, 1], [1, 1]);
    rig.ends[0].attend(tid());
    assert_eq!(read_all(&rig.ends[1]), bytes(0, usize::try_from(sent).unwrap()));
}

#[test]
fn retention_stays_short_while_the_reader_takes_what_comes() {
    let rig = Rig::new(4 * RETENTION, true);
    let (mover, mut sent) = (rig.mover(), 0);
    while let Ok(count) = send(&rig.ends[0], &bytes(sent, 100_000)) {
        sent += count as u64;
    }
    assert!(sent <= RETENTION_MIN && rig.ends[0].keeps_too_little() && !rig.ends[0].has_credit());
    mover.forge(0, ACKED, 1 + sent / 2);
    assert!(rig.ends[0].has_credit() && !rig.ends[0].keeps_too_little());
}

#[test]
fn retention_grows_freely_where_stores_are_under_way() {
    let rig = Rig::with_stores(4 * RETENTION, true, 1000);
    let mut sent = 0;
    while let Ok(count) = send(&rig.ends[0], &bytes(sent, 100_000)) {
        sent += count as u64;
        rig.ends[0].request_grow();
    }
    assert!(sent <= RETENTION && sent > RETENTION - 100_000, "{sent}");
    assert_eq!(read_all(&rig.ends[1]), bytes(0, usize::try_from(sent).unwrap()));
}

#[test]
fn sleepers_are_rung_where_the_stream_goes_on() {
    let rig = Rig::new(RING_MAX, true);
    let [client, server] = &rig.ends;
    assert!(server.want_data(WaiterId(5)));
    let mut mover = rig.mover();
    mover.jump(RING_MAX, true, None);
    server.unwant_data(WaiterId(5));
    server.attend(tid());
    let before = server.wake_mark();
    assert!(server.want_data(WaiterId(5)));
    let moved = client.try_send(tid(), &[std::io::IoSlice::new(b"x")], 0).unwrap();
    assert_eq!(moved.wake, Some(WaiterId(5)));
    assert_eq!(before, server.wake_mark());
    // Bytes that are sent again ring as well.
    mover.lose();
    mover.find_with(RING_MAX, true, [1, 1], [1, 1]);
    server.attend(tid());
    assert_ne!(before, server.wake_mark());
    server.unwant_data(WaiterId(5));
    assert!(server.want_data(WaiterId(5)));
    client.attend(tid());
    assert_eq!(*rig.hosts[0].rung.lock().unwrap(), [WaiterId(5)]);
    assert_eq!(read_all(server), b"x");
}

#[test]
fn edges_are_not_lost_on_the_way() {
    let rig = Rig::new(RING_MAX, true);
    let [client, server] = &rig.ends;
    let mut seen = None;
    server.refresh(tid());
    server.arrivals(&mut seen);
    send(client, b"a").unwrap();
    assert!(server.arrivals(&mut seen));
    let mut mover = lost(&rig);
    assert_eq!(receive(server, 1), Err(Failure::WouldBlock));
    mover.find(RING_MAX, true, None);
    server.attend(tid());
    assert!(server.arrivals(&mut seen), "the program was told that nothing is there");
    send(client, b"b").unwrap();
    assert!(server.arrivals(&mut seen), "new, though the old is unread");
    assert!(!server.arrivals(&mut seen));
    assert_eq!(read_all(server), b"ab");
    server.arrivals(&mut seen);
    send(client, b"c").unwrap();
    assert!(server.arrivals(&mut seen));
}

#[test]
fn another_process_finds_its_way_from_any_generation() {
    let rig = Rig::new(RING_MAX, true);
    let [client, server] = &rig.ends;
    let mut mover = rig.mover();
    let (forked, sender) = (rig.hosts[1].hold(0), rig.hosts[0].hold(0));
    send(client, b"one ").unwrap();
    mover.jump(RING_MAX, true, None);
    assert_eq!(send(&sender, b"two "), Ok(4));
    assert_eq!(receive(&forked, 2).unwrap(), b"on");
    mover.jump(RING_MAX, false, None);
    assert_eq!(send(client, b"three "), Ok(6));
    assert_eq!(receive(server, 5).unwrap(), b"e two");
    assert_eq!(send(&sender, b"four"), Ok(4));
    assert!(forked.has_data(tid()));
    assert_eq!(receive(&forked, 1).unwrap(), b" ");
    forked.attend(tid());
    let adopted = rig.hosts[1].hold(2);
    assert_eq!(receive(&adopted, 8).unwrap(), b"three fo");
    assert_eq!(receive(server, 8).unwrap(), b"ur");
    assert!([&forked, &adopted, server, &sender, client].into_iter().all(|end| {
        end.attend(tid());
        end.is_steady()
    }));
}

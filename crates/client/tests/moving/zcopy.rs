//! Announced memory at chosen moments, in one thread: each byte comes once, whatever happens to the announcement.

use crate::rig::{Rig, bytes, receive, send, tid};
use core::sync::atomic::Ordering::Relaxed;
use crosslane_client::buffers::{Buffer, locate_bytes};
use crosslane_client::end::zcopy::announce::{Announcement, Attempt, Behind, Stand};
use crosslane_client::{End, Failure};
use crosslane_wire::local::{STATUS_CABLE, status_word};
use crosslane_wire::record::Kind;
use crosslane_wire::segment::RING_MIN;
use crosslane_wire::{BufferId, WaiterId};
use std::io::IoSliceMut;

const RING_MAX: u64 = 1 << 20;

/// A registered buffer, and the first bytes of it that are used.
pub(crate) struct Registered(Buffer, usize);

impl core::ops::Deref for Registered {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0[..self.1]
    }
}

impl core::ops::DerefMut for Registered {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0[..self.1]
    }
}

/// One with the stream's bytes from `from` on.
pub(crate) fn registered(from: u64, len: usize) -> Registered {
    let mut made = Registered(Buffer::new(len).unwrap(), len);
    made.copy_from_slice(&bytes(from, len));
    made
}

/// Where these bytes of a registered buffer lie, for `end`, which shares it.
pub(crate) fn place(end: &End, bytes: &[u8]) -> (BufferId, u64) {
    let located = locate_bytes(bytes).expect("a registered buffer");
    end.export_buffer(&located).unwrap();
    (located.id, located.offset)
}

fn opened(attempt: Attempt) -> Announcement {
    match attempt {
        Attempt::Open(open, _) => open,
        other => panic!("not announced: {other:?}"),
    }
}

pub(crate) fn announce(end: &End, bytes: &[u8]) -> Announcement {
    opened(end.announce(tid(), bytes, place(end, bytes), Behind::Nothing).unwrap())
}

pub(crate) fn announce_buffer(end: &End, buffer: &Buffer, last: Option<&Announcement>) -> Announcement {
    opened(end.announce(tid(), buffer, place(end, buffer), Behind::Others(last)).unwrap())
}

/// A shared buffer with the stream's bytes from `from` on.
pub(crate) fn buffer(from: u64, len: usize) -> Buffer {
    let mut buffer = Buffer::new(len).unwrap();
    let len = buffer.len();
    buffer.copy_from_slice(&bytes(from, len));
    buffer
}

/// All that can be received now, in pieces of `piece` bytes.
pub(crate) fn drain(end: &End, piece: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while let Ok(more) = receive(end, piece) {
        all.extend(more);
    }
    all
}

pub(crate) fn check(got: &[u8], from: u64) {
    let wrong = got.iter().zip(bytes(from, got.len())).position(|(&got, wanted)| got != wanted);
    assert_eq!(wrong, None, "of {} bytes from {from} on", got.len());
}

pub(crate) fn over(end: &End, open: &mut Announcement) -> usize {
    match end.stand(tid(), open).unwrap() {
        Stand::Over(count) => count,
        other => panic!("still {other:?}"),
    }
}

/// Sends all, with the far side reading when there is no room; returns what it read.
fn send_all(rig: &Rig, mut rest: &[u8]) -> Vec<u8> {
    let mut read = Vec::new();
    while !rest.is_empty() {
        match send(&rig.ends[0], rest) {
            Ok(count) => rest = &rest[count..],
            Err(Failure::WouldBlock) => read.extend(receive(&rig.ends[1], 1 << 16).unwrap()),
            Err(failure) => panic!("{failure}"),
        }
    }
    read
}

#[test]
fn announced_bytes_arrive_in_pieces_of_any_size() {
    for piece in [1 << 12, 4097, 65_536, 99_999, 1 << 20] {
        let rig = Rig::new(RING_MAX, false);
        let source = registered(0, 300_000);
        let mut open = announce(&rig.ends[0], &source);
        assert!(rig.ends[1].ready(tid()).readable);
        let got = drain(&rig.ends[1], piece);
        assert_eq!(got.len(), source.len());
        check(&got, 0);
        assert!(rig.ends[0].is_answered(&open) && !rig.ends[1].ready(tid()).readable);
        assert_eq!(over(&rig.ends[0], &mut open), source.len());
        let sent = rig.ends[0].statistics().sent;
        assert_eq!((sent.read_zcopy, sent.cancelled), (open.len().into(), 0));
    }
}

#[test]
fn announcement_of_several_wakes_its_waiter_at_its_own_end() {
    const LEN: usize = 64 << 10;
    let rig = Rig::new(RING_MAX, false);
    let [client, server] = &rig.ends;
    let buffers = [0, 1, 2].map(|index| buffer(index * LEN as u64, LEN));
    let mut last = None;
    let open = buffers.each_ref().map(|buffer| *last.insert(announce_buffer(client, buffer, last.as_ref())));
    client.want_fetched(&open[1]);
    assert!(client.want_room(WaiterId(7)));
    let rung = [0, 1, 2].map(|_| {
        let mut target = vec![0; LEN];
        let moved = server.try_receive(tid(), &mut [IoSliceMut::new(&mut target)]).unwrap();
        assert_eq!(moved.bytes, LEN);
        moved.wake
    });
    assert_eq!(rung, [None, Some(WaiterId(7)), None]);
}

#[test]
fn taken_back_after_any_part_of_it_each_byte_comes_once() {
    for part in [0, 1, 63, 64, 65, 5000, 99_999, 100_000] {
        for how in 0..4 {
            let rig = Rig::new(RING_MAX, false);
            let [client, server] = &rig.ends;
            let mut source = registered(0, 100_000);
            let mut open = announce(client, &source);
            let mut got = if part > 0 { receive(server, part).unwrap() } else { Vec::new() };
            let count = match how {
                0 => client.withdraw(tid(), &open).unwrap(),
                1 => {
                    // Somebody else's bytes come behind what the announcer is told to have sent.
                    let other = rig.hosts[0].hold(0);
                    assert_eq!(send(&other, b""), Ok(0));
                    over(client, &mut open)
                }
                2 => {
                    client.send_control(tid(), Kind::DisConn).unwrap();
                    over(client, &mut open)
                }
                _ => {
                    let count = client.withdraw(tid(), &open).unwrap();
                    // The next announcement comes, and goes, before the first one's end is seen.
                    let behind = bytes(count as u64, 50_000);
                    send_all(&rig, &behind);
                    let next = registered(count as u64 + 50_000, 20_000);
                    if let Ok(Attempt::Open(next, _)) =
                        client.announce(tid(), &next, place(client, &next), Behind::Nothing)
                    {
                        let counted = client.withdraw(tid(), &next).unwrap();
                        source.fill(0xff);
                        got.extend(drain(server, 7777));
                        assert_eq!(got.len(), count + 50_000 + counted);
                    } else {
                        source.fill(0xff);
                        got.extend(drain(server, 7777));
                        assert_eq!(got.len(), count + 50_000);
                    }
                    check(&got, 0);
                    continue;
                }
            };
            assert_eq!(count, part.max(64), "what counts of {part}, {how}");
            source.fill(0xff);
            if how != 2 {
                got.extend(send_all(&rig, &bytes(count as u64, 150_000 - count)));
            }
            got.extend(drain(server, 10_000));
            assert_eq!(got.len(), if how == 2 { count } else { 150_000 });
            check(&got, 0);
        }
    }
}

#[test]
fn taken_back_again_and_again_before_the_reader_comes() {
    let rig = Rig::new(RING_MAX, false);
    let [client, server] = &rig.ends;
    let (mut sent, mut announced, mut source) = (0u64, 0, registered(0, 10_000));
    for _ in 0..40 {
        source.copy_from_slice(&bytes(sent, 10_000));
        match client.announce(tid(), &source, place(client, &source), Behind::Nothing).unwrap() {
            Attempt::Open(open, _) => {
                sent += client.withdraw(tid(), &open).unwrap() as u64;
                announced += 1;
            }
            Attempt::Ring => {}
            Attempt::Over(..) => unreachable!(),
        }
        sent += send(client, &bytes(sent, 1000)).unwrap() as u64;
        source.fill(0xff);
    }
    let got = drain(server, 3000);
    assert_eq!((got.len() as u64, announced > 0), (sent, true));
    check(&got, 0);
    // A reader that comes again is announced to again.
    let (mut got, mut source) = (Vec::new(), registered(0, 20_000));
    for _ in 0..1000 {
        source.copy_from_slice(&bytes(sent, 20_000));
        if let Attempt::Open(mut open, _) =
            client.announce(tid(), &source, place(client, &source), Behind::Nothing).unwrap()
        {
            got.extend(drain(server, 1 << 16));
            assert_eq!(over(client, &mut open), 20_000);
            check(&got[got.len() - 20_000..], sent);
            return;
        }
        sent += send(client, &source).unwrap() as u64;
        got = drain(server, 1 << 16);
    }
    panic!("never announced again");
}

#[test]
fn peek_or_a_buffer_that_cannot_be_had_asks_for_the_ring() {
    for peeks in [true, false] {
        let rig = Rig::new(RING_MAX, false);
        let [client, server] = &rig.ends;
        let (memory, len) = (registered(0, 200_000), 200_000);
        let mut open = announce(client, &memory);
        assert!(client.want_room(WaiterId(9)));
        // 64 of them lie in the record.
        let part = if peeks { 5000 } else { 64 };
        let mut got = receive(server, part).unwrap();
        let rung = || rig.hosts[1].rung.lock().unwrap().clone();
        if peeks {
            let peeked = server.try_peek(tid(), &mut [IoSliceMut::new(&mut [0; 100])]);
            assert_eq!(peeked, Err(Failure::WouldBlock));
        } else {
            rig.unshare_all();
            assert_eq!(receive(server, 5000), Err(Failure::WouldBlock));
        }
        assert_eq!(rung(), [WaiterId(9)], "whoever waits for the answer");
        assert!(!server.ready(tid()).readable && !server.maybe_readable(), "nothing can be received now");
        assert!(client.is_answered(&open));
        assert_eq!(client.stand(tid(), &mut open), Ok(Stand::Unwanted));
        assert!(client.want_room(WaiterId(9)));
        assert_eq!(client.withdraw(tid(), &open), Ok(part));
        let mut seen = None;
        server.arrivals(&mut seen);
        got.extend(send_all(&rig, &bytes(part as u64, len - part)));
        assert!(server.arrivals(&mut seen), "an edge");
        assert!(server.ready(tid()).readable && server.maybe_readable());
        got.extend(drain(server, 1 << 16));
        assert_eq!(got.len(), len);
        check(&got, 0);
    }
}

#[test]
fn announced_bytes_count_as_unread_and_are_an_edge() {
    let rig = Rig::new(RING_MAX, false);
    let [client, server] = &rig.ends;
    let mut seen = None;
    server.refresh(tid());
    server.arrivals(&mut seen);
    let source = registered(0, 50_000);
    let mut open = announce(client, &source);
    assert!(server.arrivals(&mut seen) && !server.arrivals(&mut seen));
    let mut got = receive(server, 1000).unwrap();
    assert_eq!(server.unread(tid()), Ok(49_000));
    got.extend(drain(server, 1 << 16));
    assert_eq!(over(client, &mut open), 50_000);
    assert!(!server.arrivals(&mut seen), "nothing new");
    send(client, &bytes(50_000, 100)).unwrap();
    assert!(server.arrivals(&mut seen), "bytes behind what was announced");
    assert!(!server.arrivals(&mut seen));
    got.extend(drain(server, 1 << 16));
    assert_eq!(got.len(), 50_100);
    check(&got, 0);
}

#[test]
fn bytes_behind_what_was_taken_back_unread_are_an_edge() {
    let rig = Rig::new(RING_MAX, false);
    let [client, server] = &rig.ends;
    let mut seen = None;
    server.refresh(tid());
    let source = registered(0, 50_000);
    let open = announce(client, &source);
    server.arrivals(&mut seen);
    let count = client.withdraw(tid(), &open).unwrap() as u64;
    send(client, &bytes(count, 100)).unwrap();
    assert!(server.arrivals(&mut seen));
    check(&drain(server, 1 << 16), 0);
}

#[test]
fn half_close_behind_what_was_withdrawn_is_no_death() {
    for announced in [false, true] {
        let rig = Rig::new(RING_MAX, false);
        let [client, server] = &rig.ends;
        let source = registered(0, 50_000);
        let mut sent = 64;
        if announced {
            let open = announce(client, &source);
            sent = client.withdraw(tid(), &open).unwrap();
        } else {
            send(client, &source[..64]).unwrap();
        }
        send(client, &source[sent..]).unwrap();
        client.send_control(tid(), Kind::DisConn).unwrap();
        server.shared().status.fin.store(1, Relaxed);
        assert!(!server.gone(), "it only sends no more");
        assert_eq!(send(server, b"answer"), Ok(6));
        assert_eq!(drain(server, 1 << 16), source[..]);
        assert_eq!(receive(client, 10).unwrap(), b"answer");
    }
}

#[test]
fn several_buffers_are_fetched_in_order_and_taken_back_together() {
    for part in [0, 1, 4096, 8191, 8192, 8193, 20_000, 24_575, 24_576] {
        let rig = Rig::new(RING_MAX, false);
        let [client, server] = &rig.ends;
        let buffers: Vec<Buffer> = (0..3).map(|index| buffer(index * 8192, 8192)).collect();
        let mut opens: Vec<Announcement> = Vec::new();
        for buffer in &buffers {
            let open = announce_buffer(client, buffer, opens.last());
            opens.push(open);
        }
        let mut got = Vec::new();
        while got.len() < part {
            got.extend(receive(server, part - got.len()).unwrap());
        }
        let mut counts = Vec::new();
        for open in &mut opens {
            let stand = client.stand(tid(), open).unwrap();
            counts.push(match stand {
                Stand::Over(count) => count,
                _ => client.withdraw(tid(), open).unwrap(),
            });
        }
        assert_eq!(counts.iter().sum::<usize>(), part, "{counts:?}");
        assert!(counts.is_sorted_by(|a, b| a >= b), "{counts:?}");
        drop(buffers);
        send(client, &bytes(part as u64, 30_000)).unwrap();
        got.extend(drain(server, 5000));
        assert_eq!(got.len(), part + 30_000);
        check(&got, 0);
    }
}

#[test]
fn buffer_that_is_freed_while_announced_is_not_read_as_something_else() {
    let rig = Rig::new(RING_MAX, false);
    let [client, server] = &rig.ends;
    let first = buffer(0, 100_000);
    let len = first.len();
    let open = announce_buffer(client, &first, None);
    let mut got = receive(server, 1000).unwrap();
    drop(first);
    let mut other = Buffer::new(100_000).unwrap();
    other.fill(0xff);
    got.extend(drain(server, 1 << 16));
    let count = client.withdraw(tid(), &open).unwrap();
    assert_eq!(count, got.len());
    send(client, &bytes(count as u64, len - count + 100)).unwrap();
    got.extend(drain(server, 1 << 16));
    assert_eq!(got.len(), len + 100);
    check(&got, 0);
}

#[test]
fn announcements_go_round_a_small_ring() {
    for step in [1, 40, 48, 49, 1000, 1100, 3000] {
        let rig = Rig::new(RING_MIN, false);
        let [client, server] = &rig.ends;
        let (mut sent, mut got, mut source) = (0u64, Vec::new(), registered(0, 10_000));
        let mut announced = 0;
        while sent < 2_000_000 {
            let between = bytes(sent, step);
            sent += send(client, &between).map_or(0, |count| count as u64);
            source.copy_from_slice(&bytes(sent, 10_000));
            if let Attempt::Open(mut open, _) =
                client.announce(tid(), &source, place(client, &source), Behind::Nothing).unwrap()
            {
                announced += 1;
                got.extend(drain(server, 50_000));
                sent += over(client, &mut open) as u64;
            } else {
                got.extend(drain(server, 50_000));
            }
        }
        assert_eq!(got.len() as u64, sent);
        check(&got, 0);
        assert!(announced > 100, "{announced}");
    }
}

#[test]
fn announcement_needs_room_in_the_ring() {
    let rig = Rig::new(RING_MAX, false);
    let [client, server] = &rig.ends;
    let mut sent = 0u64;
    while let Ok(count) = send(client, &bytes(sent, 30_000)) {
        sent += count as u64;
    }
    let source = registered(sent, 30_000);
    let attempt = client.announce(tid(), &source, place(client, &source), Behind::Nothing).unwrap();
    assert!(matches!(attempt, Attempt::Ring), "{attempt:?}");
    assert_eq!(client.shared().producer.cap(), RING_MAX);
    let mut got = receive(server, 700_000).unwrap();
    let mut open = announce(client, &source);
    got.extend(drain(server, 1 << 16));
    sent += over(client, &mut open) as u64;
    assert_eq!(got.len() as u64, sent);
    check(&got, 0);
}

#[test]
fn move_leaves_each_byte_of_what_was_announced_once() {
    for part in [0, 64, 1000, 100_000] {
        for taken_back in [false, true] {
            for ring in [0, 10_000] {
                let rig = Rig::new(RING_MAX, false);
                let [client, server] = &rig.ends;
                let source = registered(0, 100_000);
                let open = announce(client, &source);
                let mut got = if part > 0 { receive(server, part).unwrap() } else { Vec::new() };
                let mut sent = 0;
                if taken_back {
                    sent = client.withdraw(tid(), &open).unwrap() as u64;
                    sent += send(client, &bytes(sent, ring)).unwrap_or(0) as u64;
                }
                rig.mover().jump(RING_MAX, false, None);
                server.attend(tid());
                if !taken_back {
                    sent = client.withdraw(tid(), &open).unwrap() as u64;
                    assert_eq!(sent, part.max(64) as u64);
                }
                let what = format!("{part} {taken_back} {ring}");
                let rest = bytes(sent, 150_000);
                let count = send(client, &rest).unwrap_or_else(|failure| panic!("{what}: {failure}"));
                sent += count as u64;
                got.extend(drain(server, 9000));
                assert_eq!(got.len() as u64, sent, "{what}");
                check(&got, 0);
            }
        }
    }
}

#[test]
fn dead_circuit_fetches_nothing_after_the_call_is_over() {
    let rig = Rig::new(RING_MAX, false);
    let [client, server] = &rig.ends;
    let mut source = registered(0, 50_000);
    let mut open = announce(client, &source);
    let mut got = receive(server, 1000).unwrap();
    rig.hosts[0].status.store(status_word(0, STATUS_CABLE), Relaxed);
    assert_eq!(client.stand(tid(), &mut open), Ok(Stand::Unwanted));
    assert_eq!(client.withdraw(tid(), &open), Ok(1000));
    assert_eq!(send(client, &source[1000..]), Err(Failure::Reset));
    source.fill(0xff);
    got.extend(drain(server, 1 << 16));
    check(&got, 0);
    rig.hosts[1].status.store(status_word(0, STATUS_CABLE), Relaxed);
    assert_eq!(receive(server, 10), Err(Failure::Reset));
}

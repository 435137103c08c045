//! Long calls give the lock that processes share back after each piece; to the threads of one process they stay whole. And a
//! direction that is to end while somebody keeps the lock ends as soon as that one gives it back.

use crate::rig::{Rig, byte, bytes, receive, send, tid};
use crate::zcopy::registered;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicUsize};
use crosslane_client::buffers::{FarBuffer, locate_bytes};
use crosslane_client::{End, Failure};
use crosslane_wire::Reach;
use crosslane_wire::record::Kind;
use std::io::IoSliceMut;
use std::sync::Barrier;

const RING_MAX: u64 = 8 << 20;
/// Longer than two pieces, and short enough that two calls fit a ring that nobody reads.
const LONG: usize = 400_000;
/// Most rounds until two threads meet.
const ROUNDS: u32 = 20_000;

/// Whether anybody else can have the lock of sending while `end` is in the middle of one call.
fn comes_between(end: &End, call: impl FnOnce() + Send) -> bool {
    let over = AtomicBool::new(false);
    let counters = &end.shared().counters;
    let moved = || counters.tx_bytes.load(Relaxed) + counters.rx_bytes.load(Relaxed);
    let (before, mut between) = (moved(), None);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            call();
            over.store(true, Relaxed);
        });
        let (sending, receiving) = (&end.shared().sending.lock, &end.shared().receiving.lock);
        while !over.load(Relaxed) {
            let both = (sending.try_lock(tid()), receiving.try_lock(tid()));
            if let (Some(_), Some(_)) = both
                && moved() > before
            {
                between.get_or_insert(moved());
            }
        }
    });
    between.is_some_and(|between| between < moved())
}

fn drain(end: &End) -> Vec<u8> {
    let mut all = Vec::new();
    while let Ok(more) = receive(end, LONG) {
        all.extend(more);
    }
    all
}

#[test]
fn lock_is_released_after_each_piece_of_a_long_call() {
    let rig = Rig::new(RING_MAX, false);
    let [client, server] = &rig.ends;
    let (mut sends, mut receives, out) = (0, 0, bytes(0, LONG));
    for _ in 0..ROUNDS {
        // Whoever looks holds the lock at times: then the call comes again.
        sends += u32::from(comes_between(client, || {
            let _ = send(client, &out);
        }));
        let mut target = vec![0; LONG];
        receives += u32::from(comes_between(server, || {
            let _ = server.try_receive(tid(), &mut [IoSliceMut::new(&mut target)]);
        }));
        drain(server);
        if sends > 0 && receives > 0 {
            return;
        }
    }
    panic!("{sends} sends and {receives} receives gave their lock back");
}

#[test]
fn peek_that_is_long_copies_without_the_lock() {
    let rig = Rig::new(RING_MAX, false);
    let [client, server] = &rig.ends;
    let len = 2 * LONG;
    assert_eq!(send(client, &vec![1; len]), Ok(len));
    let mut target = registered(0, len);
    // The same memory, for those who look at it meanwhile.
    let place = locate_bytes(&target).unwrap();
    let memory = place.share(|fd| fd.try_clone_to_owned().unwrap()).unwrap();
    let view = FarBuffer::map(&memory, place.len, Reach::Load).unwrap();
    let is_written = |index: usize| {
        let mut byte = [0];
        view.copy_out(place.offset + index as u64, &mut byte).unwrap();
        byte != [0]
    };
    for _ in 0..ROUNDS {
        target.fill(0);
        let mut between = false;
        std::thread::scope(|scope| {
            let peek = scope.spawn(|| server.try_peek(tid(), &mut [IoSliceMut::new(&mut target)]));
            while !peek.is_finished() {
                let begun = is_written(0);
                let taken = server.shared().receiving.lock.try_lock(tid()).is_some();
                between |= begun && taken && !is_written(len - 1);
            }
            // Whoever looks may have the lock for long, on a busy machine.
            between &= peek.join().unwrap() == Ok(len);
        });
        assert!(!between || target.iter().all(|byte| *byte == 1));
        if between {
            return;
        }
    }
    panic!("nobody else could have the lock");
}

/// Whoever consumes in between, a peek gives what nobody has taken.
#[test]
fn peek_that_is_long_begins_anew_when_others_consume() {
    let rig = Rig::new(RING_MAX, false);
    let [client, server] = &rig.ends;
    let (total, piece, taken) = (40 * LONG, 60_000, AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut sent = 0;
            while sent < total {
                let count = LONG.min(total - sent);
                sent += send(client, &bytes(sent as u64, count)).unwrap_or(0);
            }
        });
        scope.spawn(|| {
            let mut done = 0;
            while done < total {
                done += receive(server, piece).map_or(0, |more| more.len());
                taken.store(done, Relaxed);
            }
        });
        let mut target = vec![0; LONG];
        while taken.load(Relaxed) < total {
            let before = taken.load(Relaxed);
            let Ok(count) = server.try_peek(tid(), &mut [IoSliceMut::new(&mut target)]) else { continue };
            let starts = before..=taken.load(Relaxed) + piece;
            let is_from =
                |start: usize| (start as u64..).zip(&target[..count]).all(|(at, got)| byte(at) == *got);
            assert!(starts.clone().any(is_from), "{count} bytes that do not lie at any of {starts:?}");
        }
    });
}

#[test]
fn send_of_one_call_stays_together() {
    for round in 0..200 {
        let rig = Rig::new(RING_MAX, false);
        let ([client, server], start) = (&rig.ends, Barrier::new(2));
        std::thread::scope(|scope| {
            for byte in [1, 2] {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    let (out, mut done) = (vec![byte; LONG], 0);
                    while done < LONG {
                        let moved = client.try_send(tid(), &[std::io::IoSlice::new(&out)], done);
                        assert!(done == 0 || moved.is_err(), "it had room");
                        done += moved.map_or(0, |moved| moved.bytes);
                    }
                });
            }
        });
        let got = drain(server);
        let changes = got.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert_eq!((got.len(), changes), (2 * LONG, 1), "round {round}");
    }
}

#[test]
fn receive_of_several_threads_gets_each_byte_once() {
    let rig = Rig::new(RING_MAX, false);
    let [client, server] = &rig.ends;
    assert_eq!(send(client, &bytes(0, 2 * LONG)), Ok(2 * LONG));
    let total: usize = std::thread::scope(|scope| {
        let take = || scope.spawn(|| drain(server).len());
        let threads = [take(), take(), take()];
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(total + drain(server).len(), 2 * LONG);
}

#[test]
fn direction_that_is_to_end_does_so_when_the_lock_is_released() {
    let rig = Rig::new(RING_MAX, false);
    let [client, server] = &rig.ends;
    let sharer = rig.hosts[0].hold(0);
    assert_eq!(send(client, &bytes(0, 100)), Ok(100));
    let (taken, given) = (&Barrier::new(2), &Barrier::new(2));
    std::thread::scope(|scope| {
        let lock = &client.shared().sending.lock;
        scope.spawn(move || {
            let guard = lock.lock(tid()).unwrap();
            taken.wait();
            given.wait();
            drop(guard);
        });
        taken.wait();
        assert_eq!(client.end_sending(tid()), Err(Failure::WouldBlock));
        assert!(client.is_ending());
        given.wait();
    });
    assert_eq!(receive(server, 100).map(|got| got.len()), Ok(100));
    assert_eq!(receive(server, 100), Err(Failure::WouldBlock));
    // To every holder it has ended; whoever had the lock last says so to the far side.
    assert_eq!(sharer.try_send(tid(), &[std::io::IoSlice::new(b"more")], 0), Err(Failure::Ended));
    assert!(client.is_ending());
    assert_eq!(sharer.send_control(tid(), Kind::Downgrade), Err(Failure::Ended));
    assert!(!client.is_ending());
    assert_eq!(receive(server, 100), Err(Failure::Ended));
    assert_eq!(client.send_control(tid(), Kind::DisConn), Err(Failure::Ended));
    assert_eq!(send(server, b"answer"), Ok(6));
    assert_eq!(receive(client, 6).as_deref(), Ok(&b"answer"[..]));
}

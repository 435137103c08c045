//! Random traffic both ways in threads, while the circuit moves again and again.

use crate::rig::{Dice, Mover, Rig, byte, bytes, receive, send, tid};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use crosslane_client::{End, Failure};
use crosslane_wire::record::Kind;
use std::io::IoSliceMut;
use std::time::{Duration, Instant};

/// What a run is like.
#[derive(Clone, Copy)]
struct Run {
    start: Instant,
    seed: u64,
    /// Bytes each way.
    total: u64,
    ring_max: u64,
    /// Of ten circuits, how many are longer than one cable, and lose what is under way.
    longer: u64,
    /// Processes at each end.
    processes: usize,
    /// Longest send and receive, bytes. With short ones receivers rest now and then, so that they fall behind.
    longest: usize,
}

/// The usual runs.
fn usual(seed: u64, ring_max: u64, longer: u64) -> Run {
    let total = 8_000_000;
    Run { start: Instant::now(), seed, total, ring_max, longer, processes: 1, longest: usize::MAX }
}

/// Runs of sends that are gathered.
fn small(seed: u64, longer: u64) -> Run {
    Run { total: 1_000_000, longest: 60, ..usual(seed, 1 << 17, longer) }
}

/// To be asked in each loop that waits for other threads: one of them may have failed.
fn goes_on(run: Run) {
    assert!(run.start.elapsed() < Duration::from_secs(60), "the stream stands still, or a thread has failed");
    std::thread::yield_now();
}

/// Sends all and the end, by handles that take turns. Then the kernel's FIN comes to the `far` end at once, by a way of its own.
fn sender(ends: &[&End], far: &End, run: Run, moved: &AtomicU32, mut dice: Dice) {
    let mut sent = 0;
    while sent < run.total {
        // Else all might be sent before anything has moved.
        while sent > run.total / 2 && moved.load(Ordering::Relaxed) < 4 {
            ends[0].attend(tid());
            goes_on(run);
        }
        let end = ends[usize::try_from(dice.below(ends.len() as u64)).unwrap()];
        let count = dice.size().min(run.longest).min(usize::try_from(run.total - sent).unwrap());
        match send(end, &bytes(sent, count)) {
            Ok(count) => sent += count as u64,
            Err(Failure::WouldBlock) => {
                end.request_grow();
                end.request_retention();
                end.has_room(tid());
                goes_on(run);
            }
            Err(failure) => panic!("sending at {sent}: {failure}"),
        }
    }
    while let Err(failure) = ends[0].send_control(tid(), Kind::DisConn) {
        assert_eq!(failure, Failure::WouldBlock);
        goes_on(run);
    }
    while !ends[0].fin_may_go() {
        ends[0].attend(tid());
        goes_on(run);
    }
    far.note_fin(|| Duration::MAX);
}

/// Receives all and the end. Handles take turns; readiness and edges are asked for as programs do.
fn receiver(ends: &[&End], run: Run, mut dice: Dice) {
    let (mut got, mut seen) = (0, None);
    loop {
        let end = ends[usize::try_from(dice.below(ends.len() as u64)).unwrap()];
        let count = dice.size().min(run.longest.saturating_mul(10));
        if run.longest < 100 && dice.below(256) == 0 {
            std::thread::sleep(Duration::from_micros(dice.below(1000)));
        }
        if dice.below(8) == 0 {
            let mut peeked = vec![0; count];
            let count = end.try_peek(tid(), &mut [IoSliceMut::new(&mut peeked)]).unwrap_or(0);
            assert!(peeked[..count].iter().zip(got..).all(|(&seen, at)| seen == byte(at)), "peeked at {got}");
        }
        match receive(end, count) {
            Ok(bytes) => {
                for seen in bytes {
                    assert_eq!(seen, byte(got), "at {got}");
                    got += 1;
                }
            }
            Err(Failure::WouldBlock) => {
                // Whoever reads until it would block reads on at the next edge only.
                while !end.arrivals(&mut seen) && !end.ready(tid()).read_closed {
                    end.attend(tid());
                    goes_on(run);
                }
            }
            Err(Failure::Ended) => break,
            Err(failure) => panic!("receiving at {got}: {failure}"),
        }
    }
    assert_eq!(got, run.total);
}

fn moves(mut mover: Mover, run: Run, done: &AtomicUsize, moved: &AtomicU32, mut dice: Dice) {
    let mut loses = run.longer == 10;
    while done.load(Ordering::Relaxed) < 4 {
        goes_on(run);
        mover.lose();
        std::thread::sleep(Duration::from_micros(dice.below(300)));
        let retained = dice.below(10) < run.longer;
        mover.find(run.ring_max, retained, loses.then_some(&mut dice));
        loses = retained;
        moved.fetch_add(1, Ordering::Relaxed);
        for _ in 0..dice.below(8) {
            mover.land();
            std::thread::sleep(Duration::from_micros(dice.below(500)));
        }
    }
}

fn go(run: Run) {
    let rig = Rig::new(run.ring_max, run.longer == 10);
    let mover = rig.mover();
    let others = rig.hosts.map(|host| (1..run.processes).map(|_| host.hold(0)).collect::<Vec<_>>());
    let of = |index: usize| rig.ends[index..=index].iter().chain(&others[index]).collect::<Vec<_>>();
    let ends = [of(0), of(1)];
    let (done, moved) = (AtomicUsize::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for (index, ends) in ends.iter().enumerate() {
            let dice = move |more| Dice(run.seed * 10 + index as u64 * 2 + more);
            let finish = move |done: &AtomicUsize| {
                done.fetch_add(1, Ordering::Relaxed);
                // A process that lives looks after its streams now and then, though all is sent.
                while done.load(Ordering::Relaxed) < 4 {
                    ends[0].attend(tid());
                    goes_on(run);
                }
            };
            let (done, moved, far) = (&done, &moved, &rig.ends[1 - index]);
            scope.spawn(move || {
                sender(ends, far, run, moved, dice(0));
                finish(done);
            });
            scope.spawn(move || {
                receiver(ends, run, dice(1));
                finish(done);
            });
        }
        scope.spawn(|| moves(mover, run, &done, &moved, Dice(run.seed)));
    });
}

#[test]
fn on_single_cables_nothing_is_kept_and_nothing_lost() {
    (1..4).for_each(|seed| go(usual(seed, 1 << 20, 0)));
}

#[test]
fn on_longer_ways_what_was_under_way_is_sent_again() {
    (4..7).for_each(|seed| go(usual(seed, 1 << 19, 10)));
}

#[test]
fn from_longer_to_shorter_ways_and_back() {
    (7..10).for_each(|seed| go(usual(seed, 1 << 18, 5)));
}

#[test]
fn several_processes_hold_the_ends() {
    (10..13).for_each(|seed| go(Run { processes: 3, ..usual(seed, 1 << 18, 5) }));
}

#[test]
fn small_sends_are_gathered_and_nothing_is_lost() {
    for seed in 13..17 {
        for longer in [0, 5, 10] {
            go(small(seed, longer));
        }
    }
    go(Run { processes: 3, ..small(17, 5) });
}

#[test]
fn fin_waits_for_an_end_that_was_noted_between_two_circuits() {
    let rig = Rig::new(1 << 18, false);
    let (mut mover, end) = (rig.mover(), &rig.ends[0]);
    mover.lose();
    assert!(end.send_control(tid(), Kind::DisConn).is_ok());
    assert!(!end.fin_may_go());
    mover.find(1 << 18, false, None);
    end.attend(tid());
    assert!(end.fin_may_go());
    assert_eq!(receive(&rig.ends[1], 1).err(), Some(Failure::Ended));
}

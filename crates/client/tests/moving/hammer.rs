//! Threads that announce, take back and send at random times to one that receives, while the stream may move.

use crate::rig::{Dice, Mover, Rig, tid};
use crate::zcopy::{place, registered};
use core::sync::atomic::{AtomicBool, Ordering};
use crosslane_client::end::zcopy::announce::{Announcement, Attempt, Behind, Stand};
use crosslane_client::{End, Failure};
use std::io::{IoSlice, IoSliceMut};
use std::time::{Duration, Instant};

/// No run takes longer.
const LIMIT: Duration = Duration::from_secs(60);
/// Byte of memory that was given back.
const GARBAGE: u8 = 0xff;
/// Each sender's bytes count up to this.
const COUNTS: u64 = 64;

/// What a run is like.
#[derive(Clone, Copy)]
struct Run {
    seed: u64,
    senders: u64,
    /// Bytes of each of them.
    total: u64,
    ring_max: u64,
    moves: bool,
    /// Of the receiver: now and then it peeks, which refuses what is announced.
    peeks: bool,
    start: Instant,
    /// One of its threads has failed: the others need not go on.
    failed: &'static AtomicBool,
}

/// Notes that a thread of a run fails.
struct Watch(Run);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.failed.fetch_or(std::thread::panicking(), Ordering::Relaxed);
    }
}

impl Run {
    fn of(seed: u64, senders: u64) -> Self {
        Self {
            seed,
            senders,
            total: 6_000_000 / senders,
            ring_max: 1 << 20,
            moves: false,
            peeks: true,
            start: Instant::now(),
            failed: Box::leak(Box::default()),
        }
    }

    fn goes_on(self) {
        assert!(!self.failed.load(Ordering::Relaxed), "seed {}: another thread failed", self.seed);
        assert!(self.start.elapsed() < LIMIT, "seed {}: it takes too long", self.seed);
        std::thread::yield_now();
    }
}

/// Bytes of sender `who` from its byte `from` on: its number, and a count.
fn bytes(who: u64, from: u64, len: usize) -> Vec<u8> {
    (from..).take(len).map(|at| u8::try_from(who * COUNTS + at % COUNTS).unwrap()).collect()
}

fn settle(end: &End, mut open: Announcement, run: Run, dice: &mut Dice) -> usize {
    let mut patience = [0, 3, 100, 100_000][usize::try_from(dice.below(4)).unwrap()];
    loop {
        match end.stand(tid(), &mut open).unwrap_or_else(|failure| panic!("seed {}: {failure}", run.seed)) {
            Stand::Over(count) => return count,
            Stand::Open(_) if patience > 0 => patience -= 1,
            Stand::Open(_) | Stand::Unwanted => {
                return end
                    .withdraw(tid(), &open)
                    .unwrap_or_else(|failure| panic!("seed {}: {failure}", run.seed));
            }
        }
        run.goes_on();
    }
}

fn sender(end: &End, who: u64, run: Run) {
    let _watch = Watch(run);
    let (mut dice, mut sent) = (Dice(run.seed * 100 + who), 0);
    let mut memory = registered(0, Dice::MOST);
    while sent < run.total {
        let len = dice.size().min(usize::try_from(run.total - sent).unwrap());
        let source = &mut memory[..len];
        source.copy_from_slice(&bytes(who, sent, len));
        let attempt = if dice.below(4) == 0 {
            Attempt::Ring
        } else {
            match end.announce(tid(), source, place(end, source), Behind::Nothing) {
                Ok(attempt) => attempt,
                Err(failure) => panic!("seed {}: announcing at {sent}: {failure}", run.seed),
            }
        };
        let mut count = match attempt {
            Attempt::Open(open, _) => settle(end, open, run, &mut dice),
            Attempt::Over(count, _) => count,
            Attempt::Ring => 0,
        };
        if count < len {
            match end.try_send(tid(), &[IoSlice::new(source)], count) {
                Ok(moved) => count += moved.bytes,
                Err(Failure::WouldBlock) => run.goes_on(),
                Err(failure) => panic!("seed {}: sending at {sent}: {failure}", run.seed),
            }
        }
        source.fill(GARBAGE);
        sent += count as u64;
    }
}

fn receiver(end: &End, run: Run) {
    let _watch = Watch(run);
    let mut dice = Dice(run.seed * 100 + 99);
    let mut got = vec![0; usize::try_from(run.senders).unwrap()];
    while got.iter().sum::<u64>() < run.total * run.senders {
        let count = dice.size();
        let mut target = vec![0; count];
        match dice.below(if run.peeks { 12 } else { 8 }) {
            0 => drop(end.ready(tid())),
            1 => drop(end.unread(tid())),
            8 => drop(end.try_peek(tid(), &mut [IoSliceMut::new(&mut target)])),
            9 if dice.below(20) == 0 => std::thread::sleep(Duration::from_millis(1)),
            _ => {}
        }
        match end.try_receive(tid(), &mut [IoSliceMut::new(&mut target)]) {
            Ok(moved) => {
                for &byte in &target[..moved.bytes] {
                    let who = usize::from(byte) / usize::try_from(COUNTS).unwrap();
                    assert!(who < got.len(), "seed {}: a byte of nobody's: {byte}", run.seed);
                    assert_eq!(
                        u64::from(byte) % COUNTS,
                        got[who] % COUNTS,
                        "seed {}: {who} at {}",
                        run.seed,
                        got[who]
                    );
                    got[who] += 1;
                }
            }
            Err(Failure::WouldBlock) => {
                end.attend(tid());
                run.goes_on();
            }
            Err(failure) => panic!("seed {}: receiving at {got:?}: {failure}", run.seed),
        }
    }
}

fn mover(mut mover: Mover, run: Run, over: &AtomicBool) {
    let mut dice = Dice(run.seed);
    while run.moves && !over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_micros(dice.below(3000)));
        mover.lose();
        std::thread::sleep(Duration::from_micros(dice.below(300)));
        mover.find(run.ring_max, false, None);
    }
}

/// Returns how many bytes were fetched, and how many announcements taken back.
fn go(run: Run) -> [u64; 2] {
    let rig = Rig::new(run.ring_max, false);
    let over = AtomicBool::new(false);
    // Every second sender is another process.
    let other = rig.hosts[0].hold(0);
    let (client, server) = (&rig.ends[0], &rig.ends[1]);
    std::thread::scope(|scope| {
        scope.spawn(|| mover(rig.mover(), run, &over));
        let senders = (0..run.senders).map(|who| {
            let end = if who % 2 == 0 { client } else { &other };
            scope.spawn(move || sender(end, who, run))
        });
        let senders: Vec<_> = senders.collect();
        let received = scope.spawn(|| receiver(server, run)).join();
        let sent: Vec<_> = senders.into_iter().map(|sender| sender.join()).collect();
        over.store(true, Ordering::Relaxed);
        assert!(received.is_ok() && sent.iter().all(Result::is_ok), "seed {}", run.seed);
    });
    let sent = client.statistics().sent;
    [sent.read_zcopy, sent.cancelled]
}

/// Runs them all; both must have happened.
fn go_all(runs: impl Iterator<Item = Run>) {
    let [fetched, cancelled] =
        runs.map(go).fold([0, 0], |[a, b], [fetched, cancelled]| [a + fetched, b + cancelled]);
    assert!(fetched > 0 && cancelled > 0, "{fetched} bytes fetched, {cancelled} taken back");
}

/// The ring of a run: a short one is read up soon, and then memory is announced again.
fn ring(seed: u64) -> u64 {
    if seed.is_multiple_of(4) { 1 << 20 } else { 1 << 16 }
}

#[test]
fn sender_withdraws_at_random() {
    go_all((1..9).map(|seed| Run { peeks: seed % 2 == 0, ring_max: ring(seed), ..Run::of(seed, 1) }));
}

#[test]
fn several_senders_of_two_processes_take_one_anothers_back() {
    go_all((11..19).map(|seed| Run { ring_max: ring(seed), ..Run::of(seed, 2 + seed % 2) }));
}

#[test]
fn while_the_stream_moves() {
    go_all((21..29).map(|seed| Run { moves: true, ring_max: ring(seed), ..Run::of(seed, 1 + seed % 2) }));
}

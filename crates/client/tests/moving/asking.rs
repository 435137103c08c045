//! Transactions between two threads, given up at random moments, while the stream may move: every answer comes once.

use crate::offers::content;
use crate::rig::{Dice, Mover, Rig, bytes, tid};
use crate::zcopy::check;
use core::sync::atomic::{AtomicBool, Ordering};
use crosslane_client::buffers::{Landing, OpenBuffer};
use crosslane_client::{End, Failure};
use std::io::{IoSlice, IoSliceMut};
use std::time::{Duration, Instant};

/// No run takes longer.
const LIMIT: Duration = Duration::from_secs(60);
/// Byte of memory that was given back.
const GARBAGE: u8 = 0xff;
/// Bytes of the offered memory, and of a request, which says how long the answer is to be.
const PLACE: usize = 200_000;
const REQUEST: usize = 8;
/// Moves of a run at most: each takes memory until the process ends.
const MOVES: usize = 100;

#[derive(Clone, Copy)]
struct Run {
    seed: u64,
    requests: usize,
    moves: bool,
    start: Instant,
}

impl Run {
    fn goes_on(self) {
        assert!(self.start.elapsed() < LIMIT, "seed {}: it takes too long", self.seed);
        std::thread::yield_now();
    }

    /// What may be waited for came, or not yet.
    fn came<T>(self, what: &str, outcome: Result<T, Failure>) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(Failure::WouldBlock) => None,
            Err(failure) => panic!("seed {}: {what}: {failure}", self.seed),
        }
    }

    fn send(self, end: &End, mut rest: &[u8]) {
        while !rest.is_empty() {
            let moved = self.came("sending", end.try_send(tid(), &[IoSlice::new(rest)], 0));
            match moved {
                Some(moved) => rest = &rest[moved.bytes..],
                None => {
                    end.attend(tid());
                    self.goes_on();
                }
            }
        }
    }

    /// What can be received now, `most` bytes at most.
    fn receive(self, end: &End, most: usize) -> Vec<u8> {
        let mut bytes = vec![0; most];
        let moved = self.came("receiving", end.try_receive(tid(), &mut [IoSliceMut::new(&mut bytes)]));
        bytes.truncate(moved.map_or(0, |moved| moved.bytes));
        if bytes.is_empty() {
            end.attend(tid());
            self.goes_on();
        }
        bytes
    }
}

/// Answers requests with the next bytes of the stream.
fn answer_all(end: &End, run: Run) {
    let mut sent = 0;
    for _ in 0..run.requests {
        let mut request = Vec::new();
        while request.len() < REQUEST {
            request.extend(run.receive(end, REQUEST - request.len()));
        }
        let len = u64::from_ne_bytes(request.try_into().unwrap());
        assert!(len <= 1 << 20, "seed {}: a request for {len} bytes", run.seed);
        let mut answer = bytes(sent, usize::try_from(len).unwrap());
        run.send(end, &answer);
        answer.fill(GARBAGE);
        sent += len;
    }
}

/// Waits for an answer in the offered memory, with more patience or less: what was written there. It is garbage again then.
fn land(end: &End, (answer, line): (&OpenBuffer, &Landing<'_>), run: Run, patience: u64) -> Vec<u8> {
    for _ in 0..patience {
        let landed = end.take_landed(tid(), line);
        if let Some(count) = landed.unwrap_or_else(|why| panic!("seed {}: {why}", run.seed)) {
            return spoil(answer, count);
        }
        if end.ready(tid()).readable {
            break;
        }
        run.goes_on();
    }
    let count = end.take_back(tid(), line).unwrap_or_else(|why| panic!("seed {}: {why}", run.seed));
    spoil(answer, count.unwrap_or(0))
}

fn spoil(answer: &OpenBuffer, count: usize) -> Vec<u8> {
    let landed = content(answer, count);
    answer.write(0, &vec![GARBAGE; PLACE]).unwrap();
    landed
}

fn ask_all(end: &End, run: Run) -> usize {
    let (mut dice, mut got, mut offered) = (Dice(run.seed * 100), 0, 0);
    let answer = OpenBuffer::new(PLACE).unwrap();
    spoil(&answer, 0);
    for _ in 0..run.requests {
        let len = dice.size();
        let (request, place) = ((len as u64).to_ne_bytes(), answer.locate(0, PLACE).unwrap());
        let line = answer.landing().unwrap();
        let free = content(&answer, PLACE);
        assert!(free.iter().all(|&byte| byte == GARBAGE), "seed {}: written after it was over", run.seed);
        let outcome = match dice.below(8) {
            0 => None,
            _ if end.export_buffer(&place).is_err() => None,
            _ => end.offer(tid(), &request, (&place, &line), PLACE).unwrap_or_else(|why| panic!("{why}")),
        };
        let mut all = match outcome {
            Some(_) => {
                offered += 1;
                land(
                    end,
                    (&answer, &line),
                    run,
                    [0, 1, 30, u64::MAX][usize::try_from(dice.below(4)).unwrap()],
                )
            }
            None => {
                run.send(end, &request);
                Vec::new()
            }
        };
        while all.len() < len {
            all.extend(run.receive(end, len - all.len()));
        }
        assert_eq!(all.len(), len, "seed {}", run.seed);
        check(&all, got);
        got += len as u64;
    }
    offered
}

fn move_about(mut mover: Mover, run: Run, over: &AtomicBool) {
    let mut dice = Dice(run.seed);
    let mut left = if run.moves { MOVES } else { 0 };
    while left > 0 && !over.load(Ordering::Relaxed) {
        left -= 1;
        std::thread::sleep(Duration::from_micros([50, 500, 3000][usize::try_from(dice.below(3)).unwrap()]));
        mover.lose();
        if dice.below(2) == 0 {
            std::thread::sleep(Duration::from_micros(dice.below(200)));
        }
        mover.find(1 << 20, false, None);
    }
}

/// Returns how many requests were offered memory, and how many bytes of answers were written there.
fn go(run: Run) -> (usize, u64) {
    let rig = Rig::new(1 << 20, false);
    let over = AtomicBool::new(false);
    let offered = std::thread::scope(|scope| {
        scope.spawn(|| move_about(rig.mover(), run, &over));
        let server = scope.spawn(|| answer_all(&rig.ends[1], run));
        let client = scope.spawn(|| ask_all(&rig.ends[0], run)).join();
        let server = server.join();
        over.store(true, Ordering::Relaxed);
        assert!(server.is_ok(), "seed {}", run.seed);
        client.unwrap_or_else(|_| panic!("seed {}", run.seed))
    });
    (offered, rig.ends[1].statistics().sent.write_zcopy)
}

fn go_all(seeds: core::ops::Range<u64>, moves: bool) {
    let runs = seeds.map(|seed| go(Run { seed, requests: 400, moves, start: Instant::now() }));
    let (offered, written) = runs.fold((0, 0), |all, run| (all.0 + run.0, all.1 + run.1));
    assert!(offered > 0 && written > 0, "{offered} requests were offered memory, {written} bytes written");
}

#[test]
fn given_up_at_random() {
    go_all(1..9, false);
}

#[test]
fn given_up_at_random_while_the_stream_moves() {
    go_all(11..21, true);
}

//! Tests of the turns that programs and their transfers get. They use no clock: a share is a number of bytes, and a wait
//! is the number of bytes that others moved meanwhile.

use super::rig::{ENDLESS, RING, Rig};
use crate::offload::copy::PIECE;
use crosslane_shm::submission::Way;

const STREAMS: usize = 1000;

/// One of a thousand streams never ends, the others send a few pieces each. Between two pieces of any stream none of the
/// others moves more than one piece.
#[test]
fn stream_waits_for_one_piece_of_each_other_at_most() {
    let mut rig = Rig::new(Way::Out, &[STREAMS]);
    rig.submit(0, 0, ENDLESS);
    for stream in 1..STREAMS {
        rig.submit(0, stream, PIECE * (1 + stream % 5));
    }
    while !(1..STREAMS).all(|stream| rig.is_idle(0, stream)) {
        rig.round(|_, _| false);
    }
    let (moved, mut last) = (rig.moved(), vec![None; STREAMS]);
    assert_eq!(moved.len(), moved.iter().filter(|moved| moved.2 == PIECE).count(), "pieces were cut short");
    for (at, &(_, stream, _)) in moved.iter().enumerate() {
        if let Some(before) = last[stream].replace(at) {
            let mut between: Vec<_> = moved[before + 1..at].iter().map(|moved| moved.1).collect();
            let count = between.len();
            between.sort_unstable();
            between.dedup();
            assert_eq!(between.len(), count, "another stream came twice before stream {stream}");
        }
    }
    let greedy = moved.iter().filter(|moved| moved.1 == 0).count();
    assert!(greedy <= 6, "{greedy} pieces of the greedy stream, 5 of the longest other one");
}

/// A program with very many streams, one with a single stream, and one whose pieces are slightly shorter than a turn: all
/// get equal shares.
#[test]
fn programs_have_equal_shares_whatever_they_ask_for() {
    const ROUNDS: usize = 300;
    let mut rig = Rig::new(Way::Out, &[1, STREAMS - 10, 8]);
    let mut last = [0; 3];
    rig.submit(0, 0, ENDLESS);
    for stream in 0..STREAMS - 10 {
        rig.submit(1, stream, ENDLESS);
    }
    for round in 1..=ROUNDS {
        for stream in 0..8 {
            if rig.is_idle(2, stream) {
                rig.submit(2, stream, PIECE - 1000);
            }
        }
        rig.round(|_, _| false);
        let now = [0, 1, 2].map(|program| rig.bytes_of(program));
        for (program, (now, last)) in now.iter().zip(last).enumerate() {
            assert!(now - last < 2 * PIECE, "program {program} moved {} bytes in a turn", now - last);
            assert!(now.abs_diff(round * PIECE) < 2 * PIECE, "program {program} has {now} after {round}");
        }
        last = now;
    }
}

/// Streams whose far ends do not read delay neither their own program's other streams nor another program.
#[test]
fn streams_that_nobody_reads_take_no_turns() {
    const ROUNDS: usize = 100;
    const STUCK: usize = 100;
    let mut rig = Rig::new(Way::Out, &[STUCK + 1, 1]);
    for stream in 0..=STUCK {
        rig.submit(0, stream, ENDLESS);
    }
    rig.submit(1, 0, ENDLESS);
    let stuck = |program: usize, stream: usize| program == 0 && stream != STUCK;
    // Until their rings are full.
    let full = STUCK * usize::try_from(RING).unwrap() / PIECE;
    (0..2 * full).for_each(|_| rig.round(stuck));
    let before = rig.moved().len();
    (0..ROUNDS).for_each(|_| rig.round(stuck));
    let moved = rig.moved()[before..].to_vec();
    assert!(moved.iter().all(|moved| !stuck(moved.0, moved.1)), "a full ring took more");
    for program in [0, 1] {
        assert_eq!(moved.iter().filter(|moved| moved.0 == program).count(), ROUNDS, "of program {program}");
    }
}

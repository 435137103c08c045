//! Detects whether a thread and the far side take turns (request and response). Then a program waits for each message,
//! and latency counts; the daemon's engine is only for bulk in one direction.
//!
//! ```text
//!   thread A:  send  receive  send  receive ...      turns: A has received since it sent last, and the reverse
//!   thread A:  send  send  send ...                  a run: from LONGEST bytes on it is bulk, not a response
//!   threads A, B:  send | receive                    no turns: the thread that sends is not the one that receives
//! ```

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// Longest response, bytes: the bytes behind it are bulk.
const LONGEST: u64 = 4 << 20;

/// One direction of an end, as this process uses it.
#[derive(Debug, Default)]
pub(super) struct Side {
    /// The thread that last moved bytes in this direction.
    by: AtomicU32,
    /// Bytes that the other direction had moved at that time.
    others: AtomicU64,
    /// The present run began with a turn, at this byte of the direction (`from`).
    turned: AtomicBool,
    from: AtomicU64,
}

impl Side {
    /// Thread `tid` is about to move bytes; `moved` bytes were moved so far, and `others` by the direction `other`.
    /// Returns whether a program probably waits for them.
    pub(super) fn is_turn(&self, tid: u32, moved: u64, other: &Self, others: u64) -> bool {
        let turned = others != self.others.load(Relaxed) && other.by.load(Relaxed) == tid;
        self.by.store(tid, Relaxed);
        self.others.store(others, Relaxed);
        if turned {
            self.turned.store(true, Relaxed);
            self.from.store(moved, Relaxed);
        }
        self.turned.load(Relaxed) && moved.saturating_sub(self.from.load(Relaxed)) < LONGEST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_answers_are_turns() {
        let (out, into) = (Side::default(), Side::default());
        assert!(!out.is_turn(7, 0, &into, 0), "nothing was said before");
        for round in 1..5 {
            assert!(into.is_turn(7, (round - 1) * 50, &out, round * 100));
            assert!(into.is_turn(7, (round - 1) * 50 + 20, &out, round * 100), "the rest of the answer");
            assert!(out.is_turn(7, round * 100, &into, round * 50));
        }
    }

    #[test]
    fn turns_end_one_way_and_with_a_long_answer() {
        let (out, into) = (Side::default(), Side::default());
        assert!((0..9).all(|at| !out.is_turn(7, at << 20, &into, 0)));
        assert!(into.is_turn(7, 0, &out, 9 << 20) && into.is_turn(7, LONGEST - 1, &out, 9 << 20));
        assert!(!into.is_turn(7, LONGEST, &out, 9 << 20));
        assert!(out.is_turn(7, 9 << 20, &into, LONGEST), "the next question");
    }

    #[test]
    fn turns_are_none_of_a_thread_that_only_sends() {
        let (out, into) = (Side::default(), Side::default());
        for round in 0..5 {
            assert!(!out.is_turn(7, round, &into, round));
            assert!(!into.is_turn(8, round, &out, round + 1));
        }
    }
}

//! The operations of a requester and their results. Pure.
//!
//! Commands are numbered. *Unsignaled* ones (puts, notifications, fences) are done when the owner reports that one or a later
//! one as done; each other command has an answer of its own. The number of results that are kept is limited by [`MOST`].

use crate::memory::SharedBytes;
use crosslane_wire::access::{Answer, Denial};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most operations that are under way, or done with a result that was not read; unsignaled ones that succeed do not count.
pub(super) const MOST: usize = 4096;
/// Most unsignaled commands without a report, more than the longest ring holds: limits an owner that takes commands,
/// reports nothing, and then refuses them all.
const UNSIGNALED_MAX: u64 = 1 << 21;

/// An operation that was posted. Pass it to [`super::Peer::wait`], or drop it: then [`super::Peer::flush`] reports a failure.
#[derive(Debug, PartialEq, Eq)]
pub struct Op {
    /// Number of its first command.
    first: u64,
    /// Number of its last command.
    last: u64,
    unsignaled: bool,
}

impl Op {
    /// This unsignaled operation and the one posted right after it, as one operation.
    pub(super) fn with(self, next: Self) -> Self {
        Self { last: next.last, ..self }
    }
}

/// Destination of the bytes of a get.
#[derive(Debug, Clone)]
pub(super) enum Target {
    /// To the buffer of the call that waits for it.
    Caller,
    /// Discard them: the get was abandoned.
    Nowhere,
    /// A place in a buffer, which was checked.
    Buffer(Arc<SharedBytes>, u64),
}

#[derive(Debug)]
enum Waiting {
    Value,
    /// Discard the value: the operation was abandoned.
    Nobody,
    Get {
        target: Target,
        len: u64,
        done: u64,
    },
}

/// Bytes of a get that follow an answer.
#[derive(Debug)]
pub(super) struct Coming {
    pub(super) number: u64,
    pub(super) target: Target,
    /// Offset in the target.
    pub(super) at: u64,
    pub(super) left: u64,
}

/// All operations of one requester.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Number of the next command.
    next: u64,
    /// One more than the last unsignaled command.
    unsignaled: u64,
    /// All unsignaled commands with a lower number are done.
    done: u64,
    waiting: BTreeMap<u64, Waiting>,
    /// Values of atomic operations, or their refusals, until they are read.
    values: BTreeMap<u64, Result<u64, Denial>>,
    /// Refusals of other commands, until they are read.
    failures: BTreeMap<u64, Denial>,
}

/// The owner's answer fits no command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Senseless(pub(super) &'static str);

impl Ledger {
    /// Whether another operation may be posted.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() + self.values.len() + self.failures.len() < MOST
    }

    /// Whether answers must arrive before another command is sent.
    pub(super) fn is_crowded(&self) -> bool {
        self.unsignaled.saturating_sub(self.done) >= UNSIGNALED_MAX
    }

    /// Enters an unsignaled command that was sent.
    pub(super) fn unsignaled(&mut self) -> Op {
        let number = self.next;
        self.next += 1;
        self.unsignaled = self.next;
        Op { first: number, last: number, unsignaled: true }
    }

    /// Enters a command whose answer is a word.
    pub(super) fn value(&mut self) -> Op {
        self.expect(Waiting::Value)
    }

    /// Enters a get whose bytes go to the caller or to a buffer.
    pub(super) fn get(&mut self, len: u64, target: Target) -> Op {
        self.expect(Waiting::Get { target, len, done: 0 })
    }

    fn expect(&mut self, waiting: Waiting) -> Op {
        let number = self.next;
        self.next += 1;
        self.waiting.insert(number, waiting);
        Op { first: number, last: number, unsignaled: false }
    }

    /// Handles an answer of the owner; returns the bytes of a get that follow it, if any.
    pub(super) fn answer(&mut self, answer: Answer) -> Result<Option<Coming>, Senseless> {
        match answer {
            Answer::Done { upto } => {
                if upto >= self.unsignaled || upto < self.done {
                    return Err(Senseless("more is done than was asked for"));
                }
                self.done = upto + 1;
                Ok(None)
            }
            Answer::Value { number, value } => match self.waiting.remove(&number) {
                Some(Waiting::Value) => {
                    self.values.insert(number, Ok(value));
                    Ok(None)
                }
                Some(Waiting::Nobody) => Ok(None),
                _ => Err(Senseless("a value that was not asked for")),
            },
            Answer::Data { number, offset, len } => self.data(number, offset, len).map(Some),
            Answer::Denied { number, why } => self.denied(number, why).map(|()| None),
        }
    }

    fn denied(&mut self, number: u64, why: Denial) -> Result<(), Senseless> {
        match self.waiting.remove(&number) {
            Some(Waiting::Value) => {
                self.values.insert(number, Err(why));
            }
            Some(Waiting::Nobody) => {}
            Some(Waiting::Get { .. }) => {
                self.failures.insert(number, why);
            }
            None => {
                let unsignaled =
                    (self.done..self.unsignaled).contains(&number) && !self.values.contains_key(&number);
                if !unsignaled || self.failures.insert(number, why).is_some() {
                    return Err(Senseless("a denial of what was not asked for"));
                }
            }
        }
        Ok(())
    }

    fn data(&mut self, number: u64, offset: u64, len: u32) -> Result<Coming, Senseless> {
        let Some(Waiting::Get { target, len: whole, done }) = self.waiting.get_mut(&number) else {
            return Err(Senseless("bytes that were not asked for"));
        };
        let left = u64::from(len);
        if offset != *done || left > *whole - *done || (left == 0 && *whole > 0) {
            return Err(Senseless("other bytes than were asked for"));
        }
        let at = match &target {
            Target::Caller | Target::Nowhere => offset,
            Target::Buffer(_, base) => base + offset,
        };
        *done += left;
        Ok(Coming { number, target: target.clone(), at, left })
    }

    /// All bytes of a get have arrived, which may complete it.
    pub(super) fn came(&mut self, number: u64) {
        if matches!(self.waiting.get(&number), Some(Waiting::Get { len, done, .. }) if done == len) {
            self.waiting.remove(&number);
        }
    }

    /// Whether an operation is done, with or without success.
    pub(super) fn is_done(&self, op: &Op) -> bool {
        if op.unsignaled { op.last < self.done } else { !self.waiting.contains_key(&op.last) }
    }

    /// Takes the result of an operation that is done: the word's value before, else 0.
    pub(super) fn take(&mut self, op: &Op) -> Result<u64, Denial> {
        let mut failed = None;
        while let Some((&number, &why)) = self.failures.range(op.first..=op.last).next() {
            self.failures.remove(&number);
            failed = failed.or(Some(why));
        }
        failed.map_or_else(|| self.values.remove(&op.last).unwrap_or(Ok(0)), Err)
    }

    /// The caller does not wait for an operation any more: discards the word's value, and the bytes of a get to its
    /// caller. If it fails, [`Self::finish`] reports that, as for an operation that was never waited for.
    pub(super) fn abandon(&mut self, op: &Op) {
        if op.unsignaled {
            return;
        }
        match self.waiting.get_mut(&op.last) {
            Some(Waiting::Get { target, .. }) if matches!(target, Target::Caller) => {
                *target = Target::Nowhere
            }
            Some(waiting @ Waiting::Value) => *waiting = Waiting::Nobody,
            _ => {}
        }
    }

    /// Whether all operations are done.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.done >= self.unsignaled
    }

    /// The first failure that was not read, except those of atomic operations; forgets all of them.
    pub(super) fn finish(&mut self) -> Result<(), Denial> {
        core::mem::take(&mut self.failures).into_values().next().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(number: u64) -> Answer {
        Answer::Denied { number, why: Denial::WrongKey }
    }

    #[test]
    fn unsignaled_operations_are_done_when_the_last_of_their_commands_is() {
        let mut ledger = Ledger::default();
        let (one, three) =
            (ledger.unsignaled(), ledger.unsignaled().with(ledger.unsignaled()).with(ledger.unsignaled()));
        assert!(!ledger.is_done(&one) && !ledger.is_idle());
        ledger.answer(Answer::Done { upto: 2 }).unwrap();
        assert!(ledger.is_done(&one) && !ledger.is_done(&three));
        assert_eq!(ledger.take(&one), Ok(0));
        ledger.answer(denied(3)).unwrap();
        ledger.answer(Answer::Done { upto: 3 }).unwrap();
        assert!(ledger.is_done(&three) && ledger.is_idle());
        assert_eq!(ledger.take(&three), Err(Denial::WrongKey));
        assert_eq!(ledger.finish(), Ok(()));
    }

    #[test]
    fn values_stay_until_somebody_asks_and_failures_until_a_flush() {
        let mut ledger = Ledger::default();
        let (add, swap, put) = (ledger.value(), ledger.value(), ledger.unsignaled());
        ledger.answer(Answer::Value { number: 0, value: 7 }).unwrap();
        ledger.answer(denied(1)).unwrap();
        ledger.answer(denied(2)).unwrap();
        ledger.answer(Answer::Done { upto: 2 }).unwrap();
        assert_eq!(ledger.finish(), Err(Denial::WrongKey));
        assert_eq!(ledger.finish(), Ok(()));
        assert_eq!((ledger.take(&add), ledger.take(&swap)), (Ok(7), Err(Denial::WrongKey)));
        assert_eq!(ledger.take(&put), Ok(0));
    }

    #[test]
    fn get_is_done_with_its_last_byte() {
        let mut ledger = Ledger::default();
        let get = ledger.get(10, Target::Caller);
        for (offset, len) in [(0, 4), (4, 6)] {
            assert!(!ledger.is_done(&get));
            let coming = ledger.answer(Answer::Data { number: 0, offset, len }).unwrap().unwrap();
            assert_eq!((coming.at, coming.left), (offset, len.into()));
            ledger.came(coming.number);
        }
        assert!(ledger.is_done(&get) && ledger.is_idle());
    }

    #[test]
    fn answer_that_nobody_waits_for_takes_no_room_when_it_comes() {
        let mut ledger = Ledger::default();
        let (get, add, swap, put) =
            (ledger.get(10, Target::Caller), ledger.value(), ledger.value(), ledger.unsignaled());
        [&get, &add, &swap, &put].into_iter().for_each(|op| ledger.abandon(op));
        let coming = ledger.answer(Answer::Data { number: 0, offset: 0, len: 10 }).unwrap().unwrap();
        assert!(matches!(coming.target, Target::Nowhere));
        ledger.came(coming.number);
        ledger.answer(Answer::Value { number: 1, value: 7 }).unwrap();
        ledger.answer(denied(2)).unwrap();
        ledger.answer(denied(3)).unwrap();
        ledger.answer(Answer::Done { upto: 3 }).unwrap();
        assert!(ledger.is_idle() && ledger.values.is_empty());
        assert_eq!(ledger.finish(), Err(Denial::WrongKey));
    }

    #[test]
    fn answers_that_make_no_sense_are_refused() {
        let mut ledger = Ledger::default();
        let _put = ledger.unsignaled();
        let _get = ledger.get(10, Target::Caller);
        let _add = ledger.value();
        ledger.answer(Answer::Done { upto: 0 }).unwrap();
        let lies = [
            Answer::Done { upto: 1 },
            Answer::Done { upto: u64::MAX },
            denied(0),
            denied(3),
            Answer::Value { number: 3, value: 0 },
            Answer::Data { number: 2, offset: 0, len: 1 },
            Answer::Data { number: 1, offset: 1, len: 1 },
            Answer::Data { number: 1, offset: 0, len: 11 },
            Answer::Data { number: 1, offset: 0, len: 0 },
        ];
        for lie in lies {
            assert!(ledger.answer(lie).is_err(), "{lie:?}");
        }
        ledger.answer(denied(1)).unwrap();
        assert!(ledger.answer(Answer::Data { number: 1, offset: 0, len: 1 }).is_err());
        ledger.answer(denied(2)).unwrap();
        assert!(ledger.answer(denied(2)).is_err());
    }

    #[test]
    fn results_that_nobody_asks_for_are_bounded() {
        let mut ledger = Ledger::default();
        let ops: Vec<Op> = (0..MOST).map(|_| ledger.value()).collect();
        assert!(!ledger.has_room());
        (0..MOST as u64).for_each(|number| {
            ledger.answer(Answer::Value { number, value: number }).unwrap();
        });
        assert!(!ledger.has_room());
        assert_eq!(ledger.take(&ops[9]), Ok(9));
        assert!(ledger.has_room());
    }

    #[test]
    fn unsignaled_commands_without_an_answer_are_bounded() {
        let mut ledger = Ledger::default();
        (1..UNSIGNALED_MAX).for_each(|_| {
            ledger.unsignaled();
        });
        assert!(!ledger.is_crowded());
        let _last = ledger.unsignaled();
        assert!(ledger.is_crowded());
        ledger.answer(Answer::Done { upto: 0 }).unwrap();
        assert!(!ledger.is_crowded());
    }
}

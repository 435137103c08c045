//! What a program and its daemon share where one hands transfers to the other: a slot for each transfer that is under
//! way, and a bit for each slot that was filled since the daemon looked.
//!
//! ```text
//!   program:  FREE --fill, submit--> READY ---cancel---> CANCELLED         (it has its buffer back)
//!   daemon:                          READY --claim--> COPYING --commit--> COMMITTING --go on--> READY, or DONE
//! ```
//! A piece is copied between claim and commit and takes effect in ring and arena between commit and the next step. A
//! program gets its buffer back by [`SubmissionQueue::cancel`] between two pieces, when it is told that all is done, or when the
//! daemon can copy no more and did not come to commit ([`SubmissionQueue::revoke`]). Each change is a compare-exchange of one word
//! that has the transfer's number in it, so whoever comes late changes nothing. All other words are plain, have one
//! writer at a time, and the daemon believes none: it copies them once, and loses at most the transfer.

use crate::MapError;
use crate::mem::{Mapping, new_segment};
use crate::remote::Span;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicU64, fence};
use rustix::thread::{Timespec, futex};
use std::os::fd::{AsFd, OwnedFd};

/// Transfers of one process under way at a time, each direction.
pub const SLOTS: usize = 1024;
/// Places in the program's memory of one transfer.
pub const SPANS: usize = 30;
/// Words of bits.
const WORDS: usize = SLOTS / 64;
/// Bytes of a submission queue.
const LEN: u64 = (size_of::<Head>() + 2 * SLOTS * size_of::<Slot>()) as u64;

const FREE: u32 = 0;
const READY: u32 = 1;
const COPYING: u32 = 2;
const COMMITTING: u32 = 3;
const DONE: u32 = 4;
const CANCELLED: u32 = 5;
const PHASES: u32 = 8;
/// Somebody sleeps on the slot.
const ASLEEP: u32 = 1;
/// The engine is to wake the program through its waker.
const WAKER: u32 = 2;
/// Transfers are told apart by this much of their number.
const NUMBERS: u32 = 1 << 28;
/// In the word of what was done: the bytes, above them the outcome, above that the transfer's number, so that what comes
/// late is not taken for a later transfer's.
const OUTCOME_AT: u32 = 33;
const NUMBER_AT: u32 = 36;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the program into a ring.
    Out = 0,
    /// From a ring into the program.
    In = 1,
}

/// A transfer, as the program describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// The daemon's name for the stream's rings.
    pub handle: u32,
    /// The daemon's name for the registered buffer that all of `spans` lie in, at addresses from its start on; 0: they lie in
    /// the program's memory.
    pub buffer: u32,
    /// The program's buffer; those of no length end the list.
    pub spans: [Span; SPANS],
    /// Last `WANT` value that was answered with a wake-up; if the far side's word differs, the transfer stops early, and the
    /// program wakes it.
    pub rung: u64,
}

/// Why a transfer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Outcome {
    /// All is done, or what could be in the time that the daemon waits; or a look by the program is due.
    Done = 1,
    /// The buffer is not there.
    Fault = 2,
    /// The daemon cannot do it: not this time.
    Stale = 3,
    /// The kernel does not let the daemon reach the program: never.
    Refused = 4,
    /// As [`Self::Done`], and room was given back to the far side, which may sleep for it.
    Credited = 5,
}

/// What became of a wish to have a transfer back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// The buffer is the program's again.
    Yes,
    /// A piece is being moved now.
    Busy {
        /// It has not come to taking effect.
        copying: bool,
    },
    /// It ended by itself.
    Ended,
}

/// One transfer.
#[repr(C, align(128))]
#[derive(Debug, Default)]
struct Slot {
    /// Its number, and how it stands.
    state: AtomicU32,
    /// 1 once it has ended: what the program sleeps on.
    ended: AtomicU32,
    /// Whether somebody sleeps, and how: [`ASLEEP`], [`WAKER`].
    waited: AtomicU32,
    handle: AtomicU32,
    buffer: AtomicU32,
    /// Number, outcome, bytes.
    done: AtomicU64,
    rung: AtomicU64,
    spans: [[AtomicU64; 2]; SPANS],
}

#[repr(C, align(128))]
#[derive(Debug, Default)]
struct Side {
    filled: [AtomicU64; WORDS],
    /// Not 0: the daemon's thread sleeps, and must be rung for.
    asleep: AtomicU32,
}

#[repr(C, align(4096))]
#[derive(Debug, Default)]
struct Head {
    sides: [Side; 2],
}

/// A submission queue, mapped.
#[derive(Debug)]
pub struct SubmissionQueue(Mapping);

/// A transfer that the program handed over, or the daemon took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId {
    way: Way,
    index: usize,
    number: u32,
}

impl RequestId {
    /// Its slot.
    pub fn index(self) -> usize {
        self.index
    }

    fn at(self, phase: u32) -> u32 {
        self.number.wrapping_mul(PHASES) | phase
    }

    fn done(self, outcome: u32, bytes: u64) -> u64 {
        u64::from(self.number) << NUMBER_AT
            | u64::from(outcome) << OUTCOME_AT
            | bytes & ((1 << OUTCOME_AT) - 1)
    }
}

impl SubmissionQueue {
    /// Makes a submission queue; the descriptor is for the daemon.
    pub fn create() -> Result<(Self, OwnedFd), MapError> {
        let fd = new_segment("crosslane-submission", LEN)?;
        Ok((Self(Mapping::new(&fd, LEN)?), fd))
    }

    /// Maps a submission queue that a program made, after checking its length and seals.
    pub fn open(fd: impl AsFd) -> Result<Self, MapError> {
        Mapping::new(fd, LEN).map(Self)
    }

    fn side(&self, way: Way) -> &Side {
        // SAFETY: in range, aligned to a page, mapped as long as `self`; all fields are atomics, for which all bytes are
        // valid.
        let head = unsafe { &*self.0.at(0, size_of::<Head>()).cast::<Head>() };
        &head.sides[way as usize]
    }

    fn slot(&self, way: Way, index: usize) -> &Slot {
        let at = size_of::<Head>() + (way as usize * SLOTS + index % SLOTS) * size_of::<Slot>();
        // SAFETY: as in `side`.
        unsafe { &*self.0.at(at, size_of::<Slot>()).cast::<Slot>() }
    }

    fn step(&self, request: RequestId, from: u32, to: u32) -> bool {
        let state = &self.slot(request.way, request.index).state;
        state.compare_exchange(request.at(from), request.at(to), AcqRel, Acquire).is_ok()
    }

    /// Program: hands a transfer over in a slot that no other thread uses. Whether the daemon's thread must be rung for.
    pub fn submit(&self, way: Way, index: usize, descriptor: &Descriptor) -> (RequestId, bool) {
        let slot = self.slot(way, index);
        let number = (slot.state.load(Relaxed) / PHASES + 1) % NUMBERS;
        let request = RequestId { way, index, number };
        slot.ended.store(0, Relaxed);
        slot.waited.store(0, Relaxed);
        slot.handle.store(descriptor.handle, Relaxed);
        slot.buffer.store(descriptor.buffer, Relaxed);
        slot.done.store(request.done(0, 0), Relaxed);
        slot.rung.store(descriptor.rung, Relaxed);
        for (words, span) in slot.spans.iter().zip(&descriptor.spans) {
            words[0].store(span.address, Relaxed);
            words[1].store(span.len as u64, Relaxed);
            if span.len == 0 {
                break;
            }
        }
        slot.state.store(request.at(READY), Release);
        let side = self.side(way);
        side.filled[index / 64 % WORDS].fetch_or(1 << (index % 64), SeqCst);
        fence(SeqCst);
        let asleep = side.asleep.load(Relaxed) != 0;
        if asleep {
            side.asleep.store(0, Relaxed);
        }
        (request, asleep)
    }

    /// Program: whether the transfer has ended.
    #[inline]
    pub fn has_ended(&self, request: RequestId) -> bool {
        self.slot(request.way, request.index).ended.load(Acquire) != 0
    }

    /// Program: sleeps until the transfer has ended, at most for `timeout`; whether it has.
    pub fn sleep(&self, request: RequestId, timeout: &Timespec) -> bool {
        let slot = self.slot(request.way, request.index);
        slot.waited.store(ASLEEP, SeqCst);
        if slot.ended.load(SeqCst) == 0 {
            let _ = futex::wait(&slot.ended, futex::Flags::empty(), 0, Some(timeout));
        }
        slot.ended.load(Acquire) != 0
    }

    /// Program: the engine is to wake it when the transfer ends; whether it has ended already.
    pub fn want_waker(&self, request: RequestId) -> bool {
        let slot = self.slot(request.way, request.index);
        slot.waited.store(WAKER, SeqCst);
        slot.ended.load(SeqCst) != 0
    }

    /// Program: bytes moved so far, and why it ended if it has.
    pub fn result(&self, request: RequestId) -> (u64, Option<Outcome>) {
        let word = self.slot(request.way, request.index).done.load(Acquire);
        if word >> NUMBER_AT != u64::from(request.number) {
            return (0, None);
        }
        let outcome = match word >> OUTCOME_AT & 7 {
            1 => Some(Outcome::Done),
            2 => Some(Outcome::Fault),
            3 => Some(Outcome::Stale),
            4 => Some(Outcome::Refused),
            5 => Some(Outcome::Credited),
            _ => None,
        };
        (word & ((1 << OUTCOME_AT) - 1), outcome)
    }

    /// Program: wants its buffer back.
    pub fn cancel(&self, request: RequestId) -> Cancelled {
        if self.step(request, READY, CANCELLED) {
            return Cancelled::Yes;
        }
        let state = self.slot(request.way, request.index).state.load(Acquire);
        if state == request.at(COPYING) || state == request.at(READY) {
            Cancelled::Busy { copying: true }
        } else if state == request.at(COMMITTING) {
            Cancelled::Busy { copying: false }
        } else {
            Cancelled::Ended
        }
    }

    /// Program: takes a piece back that was being copied. Only once nothing copies any more, nor can.
    pub fn revoke(&self, request: RequestId) -> bool {
        self.step(request, COPYING, CANCELLED)
    }

    /// Daemon: the slots that were filled since the last look.
    pub fn filled(&self, way: Way) -> impl Iterator<Item = usize> + use<> {
        let side = self.side(way);
        let words = core::array::from_fn::<u64, WORDS, _>(|at| match side.filled[at].load(Relaxed) {
            0 => 0,
            _ => side.filled[at].swap(0, AcqRel),
        });
        words.into_iter().enumerate().flat_map(|(at, word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit)
        })
    }

    /// Daemon: whether anything was filled.
    #[inline]
    pub fn is_filled(&self, way: Way) -> bool {
        self.side(way).filled.iter().any(|word| word.load(Relaxed) != 0)
    }

    /// Daemon: says that its thread is about to sleep, or awake. A look must follow the former.
    pub fn set_asleep(&self, way: Way, asleep: bool) {
        self.side(way).asleep.store(asleep.into(), Relaxed);
        fence(SeqCst);
    }

    /// Daemon: what is in a slot that was filled, copied once; `None` if nothing is.
    pub fn take(&self, way: Way, index: usize) -> Option<(RequestId, Descriptor)> {
        let slot = self.slot(way, index);
        let state = slot.state.load(Acquire);
        let request = RequestId { way, index: index % SLOTS, number: state / PHASES };
        if state != request.at(READY) {
            return None;
        }
        let mut spans = [Span::default(); SPANS];
        for (span, words) in spans.iter_mut().zip(&slot.spans) {
            let len = usize::try_from(words[1].load(Relaxed)).unwrap_or(usize::MAX);
            if len == 0 {
                break;
            }
            *span = Span { address: words[0].load(Relaxed), len };
        }
        let (handle, buffer) = (slot.handle.load(Relaxed), slot.buffer.load(Relaxed));
        Some((request, Descriptor { handle, buffer, spans, rung: slot.rung.load(Relaxed) }))
    }

    /// Daemon: begins a piece; `false` if the transfer is the program's again.
    pub fn claim(&self, request: RequestId) -> bool {
        self.step(request, READY, COPYING)
    }

    /// Daemon: the piece takes effect now; `false` if it must not.
    pub fn commit(&self, request: RequestId) -> bool {
        self.step(request, COPYING, COMMITTING)
    }

    /// Daemon: the piece is moved; `done` bytes are in all. More is to come.
    pub fn go_on(&self, request: RequestId, done: u64) -> bool {
        self.slot(request.way, request.index).done.store(request.done(0, done), Relaxed);
        self.step(request, COMMITTING, READY)
    }

    /// Daemon: the transfer has ended, by a piece that took effect or before one was begun, and whoever sleeps for it is
    /// woken; `true`: the engine must wake the program through its waker.
    #[must_use]
    pub fn finish(&self, request: RequestId, done: u64, outcome: Outcome) -> bool {
        let slot = self.slot(request.way, request.index);
        if ![READY, COPYING, COMMITTING].iter().any(|phase| slot.state.load(Relaxed) == request.at(*phase)) {
            return false;
        }
        slot.done.store(request.done(outcome as u32, done), Relaxed);
        let ended = [READY, COPYING, COMMITTING].into_iter().any(|phase| self.step(request, phase, DONE));
        if !ended {
            return false;
        }
        slot.ended.store(1, SeqCst);
        match slot.waited.load(SeqCst) {
            0 => {}
            WAKER => return true,
            _ => {
                let _ = futex::wake(&slot.ended, futex::Flags::empty(), 1);
            }
        }
        false
    }

    /// Program: the slot is not used any more.
    pub fn free(&self, request: RequestId) {
        self.slot(request.way, request.index).state.store(request.at(FREE), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(len: usize) -> Descriptor {
        let mut descriptor = Descriptor { handle: 3, buffer: 4, rung: 9, ..Descriptor::default() };
        descriptor.spans[0] = Span { address: 4096, len };
        descriptor
    }

    fn pair() -> (SubmissionQueue, SubmissionQueue) {
        let (program, fd) = SubmissionQueue::create().unwrap();
        (program, SubmissionQueue::open(&fd).unwrap())
    }

    #[test]
    fn a_transfer_goes_there_and_its_end_comes_back() {
        let (program, daemon) = pair();
        let (request, asleep) = program.submit(Way::Out, 70, &descriptor(5));
        assert!(!asleep && daemon.filled(Way::In).next().is_none());
        assert!(daemon.is_filled(Way::Out));
        assert!(daemon.filled(Way::Out).eq([70]) && !daemon.is_filled(Way::Out));
        let (taken, said) = daemon.take(Way::Out, 70).unwrap();
        assert_eq!((taken, said), (request, descriptor(5)));
        assert!(daemon.claim(taken) && !daemon.claim(taken) && daemon.commit(taken));
        assert!(daemon.go_on(taken, 3) && daemon.claim(taken) && daemon.commit(taken));
        assert_eq!((program.has_ended(request), program.result(request)), (false, (3, None)));
        let _ = daemon.finish(taken, 5, Outcome::Done);
        assert!(program.sleep(request, &Timespec { tv_sec: 9, tv_nsec: 0 }));
        assert_eq!(program.result(request), (5, Some(Outcome::Done)));
        assert_eq!(program.cancel(request), Cancelled::Ended);
    }

    #[test]
    fn a_buffer_that_was_taken_back_is_not_touched_again() {
        let (program, daemon) = pair();
        let (request, _) = program.submit(Way::In, 1, &descriptor(5));
        let (taken, _) = daemon.take(Way::In, 1).unwrap();
        assert_eq!(program.cancel(request), Cancelled::Yes);
        assert!(!daemon.claim(taken) && daemon.take(Way::In, 1).is_none());
        let _ = daemon.finish(taken, 1, Outcome::Done);
        assert!(!program.has_ended(request));
        // The same slot again: the daemon's hold on the old transfer is of no use.
        let (next, _) = program.submit(Way::In, 1, &descriptor(6));
        assert!(!daemon.claim(taken) && !daemon.commit(taken) && !daemon.go_on(taken, 1));
        let _ = daemon.finish(taken, 1, Outcome::Done);
        assert_eq!((program.has_ended(next), program.result(next)), (false, (0, None)));
    }

    #[test]
    fn a_piece_can_be_revoked_until_it_takes_effect() {
        let (program, daemon) = pair();
        let (request, _) = program.submit(Way::In, 0, &descriptor(5));
        let (taken, _) = daemon.take(Way::In, 0).unwrap();
        assert!(!program.revoke(request) && daemon.claim(taken));
        assert_eq!(program.cancel(request), Cancelled::Busy { copying: true });
        assert!(program.revoke(request) && !daemon.commit(taken));
        let (request, _) = program.submit(Way::In, 0, &descriptor(5));
        let (taken, _) = daemon.take(Way::In, 0).unwrap();
        assert!(daemon.claim(taken) && daemon.commit(taken));
        assert_eq!(program.cancel(request), Cancelled::Busy { copying: false });
        assert!(!program.revoke(request));
    }

    #[test]
    fn a_sleeping_daemon_is_rung_for_once() {
        let (program, daemon) = pair();
        daemon.set_asleep(Way::Out, true);
        assert!(program.submit(Way::Out, 0, &descriptor(1)).1);
        assert!(!program.submit(Way::Out, 1, &descriptor(1)).1);
        assert!(daemon.filled(Way::Out).eq([0, 1]));
    }

    #[test]
    fn whoever_wants_a_wake_gets_one_at_the_end() {
        let (program, daemon) = pair();
        for wanted in [true, false] {
            let (request, _) = program.submit(Way::In, 0, &descriptor(5));
            assert!(!wanted || !program.want_waker(request));
            let (taken, _) = daemon.take(Way::In, 0).unwrap();
            assert_eq!(daemon.finish(taken, 5, Outcome::Done), wanted);
            assert!(!daemon.finish(taken, 5, Outcome::Done) && program.want_waker(request));
        }
    }

    #[test]
    fn a_desk_of_another_length_is_refused() {
        let fd = new_segment("submission", LEN + 1).unwrap();
        assert!(SubmissionQueue::open(&fd).is_err());
    }

    #[test]
    fn whatever_lies_in_a_desk_the_daemon_survives_it() {
        use crate::{Outbound, Store};
        let (_, fd) = SubmissionQueue::create().unwrap();
        let (daemon, scribbler) = (SubmissionQueue::open(&fd).unwrap(), Outbound::sealed(&fd, LEN).unwrap());
        for fill in [0xff, 0x01, 0x09, 0x55] {
            scribbler.write(0, &vec![fill; usize::try_from(LEN).unwrap()]);
            for way in [Way::Out, Way::In] {
                let mut seen = 0;
                for index in daemon.filled(way) {
                    seen += 1;
                    let Some((request, _)) = daemon.take(way, index) else { continue };
                    let claimed = daemon.claim(request) && daemon.commit(request);
                    let _ = daemon.finish(request, 7, Outcome::Done);
                    assert!(claimed && !daemon.claim(request));
                }
                assert!(seen <= SLOTS && !daemon.is_filled(way));
            }
        }
    }
}

//! The submission queue: memory by which a program hands transfers to its daemon's offload engine. It has a slot for each transfer
//! under way, and a bit for each slot that the program filled since the daemon looked.
//!
//! ```text
//!   program:  FREE --fill, submit--> READY ---cancel---> CANCELLED         (it has its buffer back)
//!   daemon:                          READY --claim--> COPYING --commit--> COMMITTING --go on--> READY, or DONE
//! ```
//! The daemon copies a piece between claim and commit, and changes the ring's state between commit and the next step. The
//! program gets its buffer back when the transfer is done; by [`SubmissionQueue::cancel`] between two pieces; or by
//! [`SubmissionQueue::revoke`] after the daemon's threads have ended before a commit. Each step is a compare-exchange of one
//! word that contains the transfer's number, so a late step of either side changes nothing. All other words are plain and
//! have one writer at a time. The daemon trusts no word: it copies each once, and a false one makes only that transfer fail.

use crate::MapError;
use crate::mem::{Mapping, new_segment};
use crate::remote::Span;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicU64, fence};
use rustix::thread::{Timespec, futex};
use std::os::fd::{AsFd, OwnedFd};

/// Most transfers of one process under way at a time, in each direction.
pub const SLOTS: usize = 1024;
/// Most pieces of the program's memory in one transfer.
pub const SPANS: usize = 30;
/// Words of the bitmap of filled slots.
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
/// A thread of the program sleeps on the slot (`futex`).
const ASLEEP: u32 = 1;
/// The engine must wake the program through its waker.
const WAKER: u32 = 2;
/// Transfers' numbers are counted modulo this.
const NUMBERS: u32 = 1 << 28;
/// Lowest bit of the outcome in a slot's `done` word. Below it is the count of bytes, above it the transfer's number, so
/// that the program does not take a late store for the outcome of a later transfer.
const OUTCOME_AT: u32 = 33;
const NUMBER_AT: u32 = 36;

/// Direction of a transfer.
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
    /// The daemon's number for the stream's rings.
    pub handle: u32,
    /// The daemon's number for the registered buffer in which all of `spans` lie, as offsets from its start; 0: `spans` are
    /// addresses in the program's memory.
    pub buffer: u32,
    /// The pieces of the program's memory; one of length 0 ends the list.
    pub spans: [Span; SPANS],
    /// Last `WANT` value of the far side that this program has answered with a wake. If the far side's word differs, the
    /// engine stops the transfer early, and the program wakes the far side.
    pub rung: u64,
}

/// Why a transfer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Outcome {
    /// All bytes are moved, or as many as fit within the time that the daemon waits, or the program must process a record of the stream.
    Done = 1,
    /// A page of the program's memory is not mapped.
    Fault = 2,
    /// The daemon cannot do this transfer now; a later one may succeed.
    Stale = 3,
    /// The kernel does not let the daemon reach the program's memory; no transfer will succeed.
    Refused = 4,
    /// As [`Self::Done`], and the daemon gave the far side credit: the program must wake the far side if it sleeps for room.
    Credited = 5,
}

/// Result of [`SubmissionQueue::cancel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// The transfer is cancelled: the daemon does not touch the buffer any more.
    Yes,
    /// The daemon is moving a piece.
    Busy {
        /// It has not committed the piece.
        copying: bool,
    },
    /// The transfer had ended before.
    Ended,
}

/// The slot of one transfer.
#[repr(C, align(128))]
#[derive(Debug, Default)]
struct Slot {
    /// The transfer's number and its state (see the module).
    state: AtomicU32,
    /// 1 once the transfer has ended: the `futex` on which the program sleeps.
    ended: AtomicU32,
    /// How the program waits: 0 not at all, [`ASLEEP`], [`WAKER`].
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
    /// Not 0: the daemon's thread sleeps, and the program must wake it after a submit.
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

/// Names a transfer that the program has submitted.
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

    /// Program: submits a transfer in slot `index`, which no other thread uses. Also returns whether the program must wake the
    /// daemon's thread.
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

    /// Program: sleeps until the transfer has ended, at most for `timeout`; returns whether it has ended.
    pub fn sleep(&self, request: RequestId, timeout: &Timespec) -> bool {
        let slot = self.slot(request.way, request.index);
        slot.waited.store(ASLEEP, SeqCst);
        if slot.ended.load(SeqCst) == 0 {
            let _ = futex::wait(&slot.ended, futex::Flags::empty(), 0, Some(timeout));
        }
        slot.ended.load(Acquire) != 0
    }

    /// Program: asks the engine to wake the program through its waker when the transfer ends. Returns whether it has ended already.
    pub fn want_waker(&self, request: RequestId) -> bool {
        let slot = self.slot(request.way, request.index);
        slot.waited.store(WAKER, SeqCst);
        slot.ended.load(SeqCst) != 0
    }

    /// Program: bytes moved so far, and the outcome if the transfer has ended.
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

    /// Program: cancels the transfer, to get its buffer back.
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

    /// Program: cancels a transfer of which a piece was being copied. Only when the daemon cannot copy any more: its threads have
    /// ended, or have lost access to this process.
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

    /// Daemon: whether any slot was filled since the last look.
    #[inline]
    pub fn is_filled(&self, way: Way) -> bool {
        self.side(way).filled.iter().any(|word| word.load(Relaxed) != 0)
    }

    /// Daemon: stores whether its thread is about to sleep. After `true` it must look at [`Self::filled`] once more.
    pub fn set_asleep(&self, way: Way, asleep: bool) {
        self.side(way).asleep.store(asleep.into(), Relaxed);
        fence(SeqCst);
    }

    /// Daemon: copies the descriptor out of a filled slot, once; `None` if the slot holds no submitted transfer.
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

    /// Daemon: begins a piece; `false` if the program has cancelled the transfer.
    pub fn claim(&self, request: RequestId) -> bool {
        self.step(request, READY, COPYING)
    }

    /// Daemon: the piece takes effect now; `false` if the program has revoked the transfer: the piece must not take effect.
    pub fn commit(&self, request: RequestId) -> bool {
        self.step(request, COPYING, COMMITTING)
    }

    /// Daemon: the piece is moved, `done` bytes in all so far, and more pieces follow. `false` if the slot's state was
    /// changed by the program.
    pub fn go_on(&self, request: RequestId, done: u64) -> bool {
        self.slot(request.way, request.index).done.store(request.done(0, done), Relaxed);
        self.step(request, COMMITTING, READY)
    }

    /// Daemon: the transfer has ended, by a piece that took effect or before one was begun. Wakes a thread that sleeps on
    /// the slot; `true`: the engine must wake the program through its waker.
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

    /// Program: frees the slot.
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
    fn submission_of_a_transfer_and_its_completion() {
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
    fn submission_that_is_cancelled_touches_no_buffer() {
        let (program, daemon) = pair();
        let (request, _) = program.submit(Way::In, 1, &descriptor(5));
        let (taken, _) = daemon.take(Way::In, 1).unwrap();
        assert_eq!(program.cancel(request), Cancelled::Yes);
        assert!(!daemon.claim(taken) && daemon.take(Way::In, 1).is_none());
        let _ = daemon.finish(taken, 1, Outcome::Done);
        assert!(!program.has_ended(request));
        // The slot is used again: the daemon's id of the old transfer is not valid any more.
        let (next, _) = program.submit(Way::In, 1, &descriptor(6));
        assert!(!daemon.claim(taken) && !daemon.commit(taken) && !daemon.go_on(taken, 1));
        let _ = daemon.finish(taken, 1, Outcome::Done);
        assert_eq!((program.has_ended(next), program.result(next)), (false, (0, None)));
    }

    #[test]
    fn submission_is_revoked_until_its_piece_is_committed() {
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
    fn submission_wakes_a_sleeping_daemon_once() {
        let (program, daemon) = pair();
        daemon.set_asleep(Way::Out, true);
        assert!(program.submit(Way::Out, 0, &descriptor(1)).1);
        assert!(!program.submit(Way::Out, 1, &descriptor(1)).1);
        assert!(daemon.filled(Way::Out).eq([0, 1]));
    }

    #[test]
    fn submission_wakes_whoever_asked_for_it() {
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
    fn submission_queue_of_another_length_is_refused() {
        let fd = new_segment("submission", LEN + 1).unwrap();
        assert!(SubmissionQueue::open(&fd).is_err());
    }

    #[test]
    fn submission_queue_of_rubbish_does_not_harm_the_daemon() {
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

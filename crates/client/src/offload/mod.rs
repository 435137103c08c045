//! Handing transfers to the daemon's engine (decision 15): the program describes its buffer on a submission queue and sleeps while
//! another processor copies.
//!
//! ```text
//!   attach: submission queue, wakers, guard page --> run: fill a slot, wake the engine if it sleeps, sleep --> outcome
//! ```
//! A transfer that does not end is cancelled, see `stall`. A program gets no buffer back that the engine may still touch.

mod flight;
mod signals;
mod stall;

pub(crate) use flight::Flight;
pub(crate) use signals::is_allowed;
pub use signals::{Allowed, take_interrupted};

use crate::SessionError;
use crate::session::Session;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicBool, AtomicU64};
use crosslane_shm::buffer::Located;
use crosslane_shm::clock::now_ns;
use crosslane_shm::guard::Guard;
use crosslane_shm::submission::{Descriptor, Outcome, RequestId, SLOTS, SubmissionQueue, Way};
use crosslane_shm::wake;
use crosslane_wire::BufferId;
use crosslane_wire::local::{Reply, Request};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use stall::{Stall, Stalled};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Sleep of a call between two looks at a transfer that does not end.
const LOOK: Duration = Duration::from_millis(20);

/// Buffers that are remembered; the daemon remembers more.
const REGISTERED_MAX: usize = 32;

/// How long no transfers are submitted after the engine did not get to one in time, ns.
const REST_NS: u64 = 1_000_000_000;

/// What a process shares with the engine. It belongs to one session, and exists until the process ends.
#[derive(Debug)]
pub struct Offload {
    queue: SubmissionQueue,
    /// Bitmaps of the slots in use, for each direction.
    taken: [[AtomicU64; SLOTS / 64]; 2],
    /// Wakers of the engine's threads, each with its word.
    wakers: [(BorrowedFd<'static>, u64); 2],
    /// Woken at the end of a transfer for which [`Flight::want_waker`] asked. This process never clears it: the daemon
    /// does, before the next wake.
    completions: BorrowedFd<'static>,
    guard: Guard,
    stall: Stall,
    least: usize,
    /// Buffers registered with the engine, and its handles for them; 0: the engine does not take the buffer.
    registered: Mutex<VecDeque<(BufferId, u32)>>,
    /// The engine cannot be used any more.
    over: AtomicBool,
    /// No transfer is submitted before this time: ns of the monotonic clock; 0 unless the engine was late.
    rest: AtomicU64,
}

/// Outcome of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handed {
    /// Bytes were moved.
    Transferred {
        /// Bytes.
        bytes: usize,
        /// The engine gave credit, and the far side may sleep for it.
        credited: bool,
    },
    /// The engine does not do this transfer, or the rest of it: the caller must, now and perhaps always.
    Declined {
        /// Bytes that were moved.
        bytes: usize,
    },
    /// A page of the program's buffer is not mapped.
    Fault {
        /// Bytes that were moved.
        bytes: usize,
    },
    /// The engine is stuck where the program cannot continue its work: the stream is over, and the slot must not be used again.
    Lost,
}

impl Offload {
    /// Sets up: makes a submission queue and wakers, sends them to the daemon, and maps the guard page where the daemon's
    /// answer says. `keep` moves a descriptor out of the program's way; it stays open.
    pub fn attach(
        session: &Session,
        keep: impl Fn(OwnedFd) -> BorrowedFd<'static>,
    ) -> Result<Self, SessionError> {
        let (queue, fd) = SubmissionQueue::create()?;
        let (reply, fds) = session.ask(&Request::Offload, &[fd.as_fd()])?;
        let (words, guard, nonce, threads, least) = match reply {
            Reply::Offload { words, guard, nonce, threads, least } => (words, guard, nonce, threads, least),
            _ => return Err(SessionError::Unexpected("an offload was asked for")),
        };
        let Ok([out, into, completions, lease]) = <[OwnedFd; 4]>::try_from(fds) else {
            return Err(SessionError::NoDescriptors);
        };
        wake::check(&out).and_then(|_| wake::check(&into))?;
        let stall = Stall::new(session.socket(), keep(lease), threads).ok_or_else(|| {
            SessionError::Refused("the engine's threads cannot be seen in /proc".to_owned())
        })?;
        stall.let_in();
        let guard = Guard::put(guard, nonce)?;
        let taken = [const { [const { AtomicU64::new(0) }; SLOTS / 64] }; 2];
        let least = usize::try_from(least).unwrap_or(usize::MAX);
        Ok(Self {
            queue,
            taken,
            wakers: [(keep(out), words[0]), (keep(into), words[1])],
            completions: keep(completions),
            guard,
            stall,
            least,
            registered: Mutex::new(VecDeque::new()),
            over: AtomicBool::new(false),
            rest: AtomicU64::new(0),
        })
    }

    /// Whether a call of this many bytes is worth a transfer.
    #[inline]
    pub fn is_worth(&self, bytes: usize) -> bool {
        bytes >= self.least && !self.over.load(Relaxed) && (self.rest.load(Relaxed) == 0 || self.has_rested())
    }

    /// Whether the engine may be used again after it did not get to a transfer in time: it has too much to do, or is
    /// delayed by another program's memory.
    #[cold]
    fn has_rested(&self) -> bool {
        let rested = now_ns() >= self.rest.load(Relaxed);
        if rested {
            self.rest.store(0, Relaxed);
        }
        rested
    }

    /// The engine's handle for a buffer, which `register_buffer` requests the first time; `None`: the engine does not
    /// take it, or another thread is requesting one just now.
    pub(crate) fn registered(&self, located: &Located, register_buffer: impl FnOnce() -> u32) -> Option<u32> {
        let mut registered = self.registered.try_lock().ok()?;
        let known = registered.iter().find(|(id, _)| *id == located.id).map(|(_, handle)| *handle);
        let handle = known.unwrap_or_else(|| {
            let handle = register_buffer();
            registered.truncate(REGISTERED_MAX - 1);
            registered.push_front((located.id, handle));
            handle
        });
        (handle != 0).then_some(handle)
    }

    /// Submits a transfer and sleeps until it has ended. Call it only while an [`Allowed`] exists, which delays signals
    /// until it is dropped: no handler runs, or jumps away, while the engine may touch the buffer.
    pub fn run(&self, way: Way, descriptor: &Descriptor) -> Handed {
        let Some(index) = self.take_slot(way) else { return Handed::Declined { bytes: 0 } };
        signals::mask();
        let request = self.submit(way, index, descriptor);
        let handed = self.wait(request, way);
        let wanted: usize = descriptor.spans.iter().map(|span| span.len).sum();
        signals::set_partly(!matches!(handed, Handed::Transferred { bytes, .. } if bytes == wanted));
        self.give_back(request, way, handed);
        handed
    }

    fn submit(&self, way: Way, index: usize, descriptor: &Descriptor) -> RequestId {
        let (request, asleep) = self.queue.submit(way, index, descriptor);
        if asleep {
            self.wake(way);
        }
        request
    }

    /// Frees the slot, unless the engine may still write to it.
    fn give_back(&self, request: RequestId, way: Way, handed: Handed) {
        if handed != Handed::Lost {
            self.queue.free(request);
            self.free_slot(way, request.index());
        }
    }

    fn wait(&self, request: RequestId, way: Way) -> Handed {
        let look = rustix::thread::Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
        let (mut begun, mut before) = (Instant::now(), 0);
        while !self.queue.sleep(request, &look) {
            let (done, _) = self.queue.result(request);
            if done != before {
                (begun, before) = (Instant::now(), done);
            } else if let Some(handed) = self.look(request, way, begun.elapsed()) {
                return handed;
            }
        }
        self.ended(request)
    }

    /// Checks a transfer that has made no progress for `still`: its outcome, if it was cancelled.
    fn look(&self, request: RequestId, way: Way, still: Duration) -> Option<Handed> {
        match self.stall.look(&self.queue, request, way, still, &self.guard) {
            Stalled::No => None,
            Stalled::Back => {
                self.rest.store(now_ns() + REST_NS, Relaxed);
                Some(self.back(request))
            }
            Stalled::Gone => {
                self.over.store(true, Relaxed);
                Some(self.back(request))
            }
            Stalled::Lost => {
                self.over.store(true, Relaxed);
                Some(Handed::Lost)
            }
        }
    }

    /// Outcome of a transfer that has ended.
    fn ended(&self, request: RequestId) -> Handed {
        let (done, outcome) = self.queue.result(request);
        let bytes = usize::try_from(done).unwrap_or(0);
        match outcome {
            Some(Outcome::Done) => Handed::Transferred { bytes, credited: false },
            Some(Outcome::Credited) => Handed::Transferred { bytes, credited: true },
            Some(Outcome::Fault) => Handed::Fault { bytes },
            Some(Outcome::Refused) => {
                self.over.store(true, Relaxed);
                Handed::Declined { bytes }
            }
            Some(Outcome::Stale) | None => Handed::Declined { bytes },
        }
    }

    /// Outcome of a transfer that was cancelled. If it received bytes, the engine may have given credit.
    fn back(&self, request: RequestId) -> Handed {
        let bytes = usize::try_from(self.queue.result(request).0).unwrap_or(0);
        if bytes > 0 { Handed::Transferred { bytes, credited: true } } else { Handed::Declined { bytes } }
    }

    fn wake(&self, way: Way) {
        let (waker, word) = self.wakers[way as usize];
        wake::wake(waker, word, wake::By::Send, wake::NOBODY);
    }

    fn take_slot(&self, way: Way) -> Option<usize> {
        for (at, word) in self.taken[way as usize].iter().enumerate() {
            let mut seen = word.load(Relaxed);
            while seen != u64::MAX {
                let bit = seen.trailing_ones();
                match word.compare_exchange_weak(seen, seen | 1 << bit, Acquire, Relaxed) {
                    Ok(_) => return Some(at * 64 + bit as usize),
                    Err(now) => seen = now,
                }
            }
        }
        None
    }

    fn free_slot(&self, way: Way, index: usize) {
        self.taken[way as usize][index / 64].fetch_and(!(1 << (index % 64)), AcqRel);
    }
}

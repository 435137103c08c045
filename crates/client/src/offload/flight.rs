//! A transfer for which no thread waits: its program checks it from time to time.

use super::{Handed, LOOK, Offload};
use crosslane_shm::submission::{Cancelled, Descriptor, RequestId, Way};
use rustix::fd::BorrowedFd;
use rustix::thread::Timespec;
use std::time::Instant;

/// A transfer under way. Land or recall it before its buffers are used otherwise.
#[derive(Debug)]
#[must_use]
pub(crate) struct Flight {
    engine: &'static Offload,
    request: RequestId,
    way: Way,
    /// When it was last seen to have made progress, and the bytes moved by then.
    moved: (Instant, u64),
}

impl Offload {
    /// Submits a transfer; `None`: not possible now.
    pub(crate) fn launch(&'static self, way: Way, descriptor: &Descriptor) -> Option<Flight> {
        let index = self.take_slot(way)?;
        let request = self.submit(way, index, descriptor);
        Some(Flight { engine: self, request, way, moved: (Instant::now(), 0) })
    }

    /// The engine wakes this for flights that asked for it. Poll it edge-triggered, since this process never reads it.
    pub fn completions(&self) -> BorrowedFd<'static> {
        self.completions
    }
}

impl Flight {
    fn has_ended(&self) -> bool {
        self.engine.queue.has_ended(self.request)
    }

    /// Asks the engine to signal the end of the transfer through [`Offload::completions`]; `true` if it has ended already.
    pub(crate) fn want_waker(&self) -> bool {
        self.engine.queue.want_waker(self.request)
    }

    /// The outcome, if the transfer has ended, or made no progress and could be cancelled.
    pub(crate) fn land(&mut self) -> Option<Handed> {
        if self.has_ended() {
            return Some(self.over(self.engine.ended(self.request)));
        }
        let done = self.engine.queue.result(self.request).0;
        if done != self.moved.1 {
            self.moved = (Instant::now(), done);
            return None;
        }
        let still = self.moved.0.elapsed();
        if still < LOOK {
            return None;
        }
        let handed = self.engine.look(self.request, self.way, still)?;
        Some(self.over(handed))
    }

    /// Cancels the transfer; waits while a piece of it is being copied.
    pub(crate) fn recall(&mut self) -> Handed {
        let (pause, begun) = (Timespec { tv_sec: 0, tv_nsec: 1_000_000 }, Instant::now());
        loop {
            match self.engine.queue.cancel(self.request) {
                Cancelled::Yes => return self.over(self.engine.back(self.request)),
                Cancelled::Ended if self.has_ended() => {
                    return self.over(self.engine.ended(self.request));
                }
                Cancelled::Ended | Cancelled::Busy { .. } => {}
            }
            if !self.engine.queue.sleep(self.request, &pause)
                && let Some(handed) = self.engine.look(self.request, self.way, begun.elapsed())
            {
                return self.over(handed);
            }
        }
    }

    fn over(&self, handed: Handed) -> Handed {
        self.engine.give_back(self.request, self.way, handed);
        handed
    }
}

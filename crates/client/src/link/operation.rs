//! Sends and receives as operations: made of a program's buffers, advanced as often as anybody likes, done at some time.
//!
//! ```text
//!   Send::new(buffers)     --try_advance-->  Done: `done()` bytes are moved
//!   Receive::new(buffers)              `-->  Pending(what): wait for that, poll for it, or have a queue sleep for it; then advance again
//! ```
//! Nobody waits in here, and no thread is bound to an operation: blocking calls, calls that must not wait, and queues are front ends to
//! these. A failure leaves what was moved before in `done()`.

use super::WaitFor;
use crate::{End, Failure};
use crosslane_shm::lock;
use crosslane_wire::WaiterId;
use std::io::{IoSlice, IoSliceMut};

/// How far an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// It is done.
    Done,
    /// It goes on when this has come.
    Pending(WaitFor),
}

/// Bytes to be sent, all of them.
#[derive(Debug)]
pub struct Send<'a> {
    buffers: &'a [IoSlice<'a>],
    total: usize,
    done: usize,
}

/// Bytes to be received.
#[derive(Debug)]
pub struct Receive<'a, 'b> {
    buffers: &'a mut [IoSliceMut<'b>],
    least: usize,
    done: usize,
}

impl<'a> Send<'a> {
    /// Sends all of `buffers` but the first `done` bytes.
    #[inline]
    pub fn new(buffers: &'a [IoSlice<'a>], done: usize) -> Self {
        let total = buffers.iter().map(|buffer| buffer.len()).sum();
        Self { buffers, total, done }
    }

    /// Bytes that are sent.
    #[inline]
    pub fn done(&self) -> usize {
        self.done
    }

    /// Bytes in all.
    #[inline]
    pub fn total(&self) -> usize {
        self.total
    }

    /// Whether it is done; else it is pending on room.
    pub fn state(&self) -> Advance {
        if self.done >= self.total { Advance::Done } else { Advance::Pending(WaitFor::Room) }
    }

    /// So many more bytes went another way.
    pub fn add(&mut self, bytes: usize) {
        self.done += bytes;
    }

    /// Sends what there is room for; `wake` is to wake the far side's waiter, if there is one. Pending on [`WaitFor::Credit`]: if
    /// that does not come soon, the ring can be longer ([`End::request_room`]).
    ///
    /// # Errors
    /// Nothing more can be sent.
    #[inline(always)]
    pub fn try_advance(
        &mut self,
        end: &End,
        tid: u32,
        wake: impl FnOnce(Option<WaiterId>),
    ) -> Result<Advance, Failure> {
        match end.try_send(tid, self.buffers, self.done) {
            Ok(moved) => {
                wake(moved.wake);
                self.done += moved.bytes;
                if self.done >= self.total {
                    return Ok(Advance::Done);
                }
            }
            Err(Failure::WouldBlock) => {}
            Err(failure) => return Err(failure),
        }
        let may_grow = end.can_grow() || end.keeps_too_little();
        Ok(Advance::Pending(if may_grow { WaitFor::Credit } else { WaitFor::Room }))
    }
}

impl<'a, 'b> Receive<'a, 'b> {
    /// Receives what is there; with a `least` of more than 1 into one buffer after the other, until there are so many bytes.
    #[inline]
    pub fn new(buffers: &'a mut [IoSliceMut<'b>], least: usize) -> Self {
        Self { buffers, least, done: 0 }
    }

    /// Bytes that were received.
    #[inline]
    pub fn done(&self) -> usize {
        self.done
    }

    /// Receives what is there; `wake` is to wake the far side's waiter, if there is one.
    ///
    /// # Errors
    /// Nothing more comes: [`Failure::Ended`] in order.
    #[inline(always)]
    pub fn try_advance(
        &mut self,
        end: &End,
        tid: u32,
        wake: impl Fn(Option<WaiterId>),
    ) -> Result<Advance, Failure> {
        if self.least > 1 {
            return self.try_fill(end, tid, wake);
        }
        match end.try_receive(tid, self.buffers) {
            Ok(moved) => {
                wake(moved.wake);
                self.done = moved.bytes;
                Ok(Advance::Done)
            }
            Err(Failure::WouldBlock) => Ok(Advance::Pending(WaitFor::Data)),
            Err(failure) => Err(failure),
        }
    }

    /// As [`Self::try_advance`], but leaves the bytes where they are, however few.
    ///
    /// # Errors
    /// As there.
    pub fn try_peek(&mut self, end: &End, tid: u32) -> Result<Advance, Failure> {
        match end.try_peek(tid, self.buffers) {
            Ok(bytes) => {
                self.done = bytes;
                Ok(Advance::Done)
            }
            Err(Failure::WouldBlock) => Ok(Advance::Pending(WaitFor::Data)),
            Err(failure) => Err(failure),
        }
    }

    fn try_fill(&mut self, end: &End, tid: u32, wake: impl Fn(Option<WaiterId>)) -> Result<Advance, Failure> {
        let mut skip = self.done;
        for buffer in self.buffers.iter_mut() {
            let mut at = skip.min(buffer.len());
            skip -= at;
            while at < buffer.len() {
                match end.try_receive(tid, &mut [IoSliceMut::new(&mut buffer[at..])]) {
                    Ok(moved) => {
                        wake(moved.wake);
                        at += moved.bytes;
                        self.done += moved.bytes;
                    }
                    Err(Failure::WouldBlock) if self.done >= self.least => {
                        lock::forget_busy();
                        return Ok(Advance::Done);
                    }
                    Err(Failure::WouldBlock) => return Ok(Advance::Pending(WaitFor::Data)),
                    Err(failure) => return Err(failure),
                }
            }
        }
        Ok(Advance::Done)
    }
}

impl End {
    /// The reader takes nothing: lets the ring, or what keeps sent bytes until they have landed, become longer.
    pub fn request_room(&self) {
        if self.keeps_too_little() {
            self.request_retention();
        } else {
            self.request_grow();
        }
    }
}

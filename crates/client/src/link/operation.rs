//! Sends and receives as operations on a program's buffers: advanced any number of times, until done.
//!
//! ```text
//!   Send::new(buffers)     --try_advance-->  Done: `done()` bytes are moved
//!   Receive::new(buffers)              `-->  Pending(what): wait, poll or have a queue sleep for `what`; then advance again
//! ```
//! Nothing here waits, and no thread is bound to an operation: blocking calls, non-blocking calls and queues are built on
//! these. After a failure `done()` has the bytes that were moved before it.

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
    /// The operation goes on when this has come.
    Pending(WaitFor),
}

/// A send of all bytes of its buffers.
#[derive(Debug)]
pub struct Send<'a> {
    buffers: &'a [IoSlice<'a>],
    total: usize,
    done: usize,
}

/// A receive into its buffers.
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

    /// Bytes sent so far.
    #[inline]
    pub fn done(&self) -> usize {
        self.done
    }

    /// Bytes to be sent in all.
    #[inline]
    pub fn total(&self) -> usize {
        self.total
    }

    /// Whether the send is done; else it is pending on room.
    pub fn state(&self) -> Advance {
        if self.done >= self.total { Advance::Done } else { Advance::Pending(WaitFor::Room) }
    }

    /// Counts `bytes` that were moved another way.
    pub fn add(&mut self, bytes: usize) {
        self.done += bytes;
    }

    /// Sends as many bytes as there is room for; calls `wake` to wake the far side's waiter, if there is one. Pending on
    /// [`WaitFor::Credit`]: if that does not come soon, the ring can be made longer ([`End::request_room`]).
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
    /// Receives the bytes that have arrived. With a `least` of more than 1, fills one buffer after the other until
    /// `least` bytes are there.
    #[inline]
    pub fn new(buffers: &'a mut [IoSliceMut<'b>], least: usize) -> Self {
        Self { buffers, least, done: 0 }
    }

    /// Bytes received so far.
    #[inline]
    pub fn done(&self) -> usize {
        self.done
    }

    /// Receives the bytes that have arrived; calls `wake` to wake the far side's waiter, if there is one.
    ///
    /// # Errors
    /// Nothing more comes: [`Failure::Ended`] is the regular end.
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

    /// As [`Self::try_advance`], but leaves the bytes in the ring, however few.
    ///
    /// # Errors
    /// As for [`Self::try_advance`].
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
    /// Called when the reader takes nothing: lets the ring, or the retention ring, become longer.
    pub fn request_room(&self) {
        if self.keeps_too_little() {
            self.request_retention();
        } else {
            self.request_grow();
        }
    }
}

//! One direction of a stream in a queue: its pending buffers, in order.

use super::{Completion, Member, Way, here};
use crate::error::Error;
use crate::stream::Stream;
use crosslane_client::end::flight::Aloft;
use crosslane_client::link::{Advance, Receive, Send, WaitFor};
use crosslane_client::{Failure, Transferred};
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};

/// A submitted buffer.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) tag: u64,
    pub(super) buffer: Vec<u8>,
    pub(super) done: usize,
}

/// While a transfer is aloft, the engine uses the memory of its buffers: no other code touches it until it has landed.
#[derive(Debug)]
pub(super) struct Lane {
    way: Way,
    under_way: VecDeque<Transfer>,
    aloft: Option<Aloft>,
    /// Bytes of the transfer that is aloft.
    launched: usize,
    /// No byte could be moved: the lane waits for the far side.
    blocked: bool,
    /// There was an event, but no byte could be moved: perhaps no wake comes when that changes.
    unsure: bool,
    /// The engine moved no byte: this thread tries by itself first.
    by_hand: bool,
}

impl Lane {
    pub(super) fn new(way: Way) -> Self {
        Self {
            way,
            under_way: VecDeque::new(),
            aloft: None,
            launched: 0,
            blocked: false,
            unsure: false,
            by_hand: false,
        }
    }

    pub(super) fn push(&mut self, transfer: Transfer) {
        self.under_way.push_back(transfer);
    }

    pub(super) fn len(&self) -> usize {
        self.under_way.len()
    }

    pub(super) fn is_aloft(&self) -> bool {
        self.aloft.is_some()
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked && !self.under_way.is_empty()
    }

    /// Whether the lane must be checked again after a while.
    pub(super) fn is_unsure(&self) -> bool {
        self.unsure && self.is_blocked()
    }

    /// Asks the engine to signal the end of the transfer that is aloft, if there is one.
    pub(super) fn want_waker(&self) -> bool {
        self.aloft.as_ref().is_some_and(Aloft::want_waker)
    }

    /// Moves as many bytes as possible now, or hands them to the engine.
    pub(super) fn advance(&mut self, stream: &Stream, member: Member, done: &mut VecDeque<Completion>) {
        if !self.land(stream, member, done) {
            return;
        }
        while let Some(front) = self.under_way.front() {
            if front.done == front.buffer.len() {
                self.complete(member, Ok(()), done);
                continue;
            }
            if self.blocked && !stream.is_ready(self.what()) {
                return;
            }
            self.blocked = false;
            if !self.by_hand && self.launch(stream, member, done) {
                return;
            }
            match self.step(stream) {
                Ok(Some(0)) => self.complete(member, Ok(()), done),
                Ok(Some(count)) => {
                    self.by_hand = false;
                    self.moved(count, member, done);
                }
                Ok(None) => {
                    self.by_hand = false;
                    self.blocked = true;
                    self.unsure = stream.is_ready(self.what());
                    return;
                }
                Err(error) => self.complete(member, Err(error), done),
            }
        }
    }

    /// Cancels everything.
    pub(super) fn cancel(&mut self, stream: &Stream, member: Member, done: &mut VecDeque<Completion>) {
        if let Some(aloft) = self.aloft.take() {
            let outcome = stream.end().recall(here(), aloft);
            self.landed(outcome, stream, member, done);
        }
        while !self.under_way.is_empty() {
            self.complete(member, Err(Error::Cancelled), done);
        }
        self.blocked = false;
    }

    fn what(&self) -> WaitFor {
        if self.way == Way::Out { WaitFor::Room } else { WaitFor::Data }
    }

    /// Lands the transfer that is aloft if it has ended; returns whether none is aloft any more.
    fn land(&mut self, stream: &Stream, member: Member, done: &mut VecDeque<Completion>) -> bool {
        let Some(aloft) = self.aloft.take() else { return true };
        match stream.end().land(here(), aloft) {
            Ok(outcome) => {
                self.landed(outcome, stream, member, done);
                true
            }
            Err(aloft) => {
                self.aloft = Some(aloft);
                false
            }
        }
    }

    fn landed(
        &mut self,
        outcome: Result<Transferred, Failure>,
        stream: &Stream,
        member: Member,
        done: &mut VecDeque<Completion>,
    ) {
        match outcome {
            Ok(moved) => {
                stream.wake(moved.wake);
                self.by_hand = moved.bytes == 0;
                // The engine moved as many bytes as possible.
                self.blocked = moved.bytes > 0 && moved.bytes < self.launched;
                self.moved(moved.bytes, member, done);
            }
            Err(failure) => self.complete(member, Err(stream.failed(failure)), done),
        }
    }

    /// Hands all pending buffers to the engine, if it takes them. Returns whether nothing is left to do now.
    fn launch(&mut self, stream: &Stream, member: Member, done: &mut VecDeque<Completion>) -> bool {
        if self.way == Way::Out && stream.has_posts() {
            return false;
        }
        let spans = self.under_way.iter_mut().map(|transfer| {
            let rest = &mut transfer.buffer[transfer.done..];
            (rest.as_mut_ptr() as u64, rest.len())
        });
        let spans: Vec<(u64, usize)> = spans.filter(|span| span.1 > 0).take(SPANS).collect();
        self.launched = spans.iter().map(|span| span.1).sum();
        match stream.end().launch(here(), self.way, spans.iter().copied()) {
            Ok(aloft) => self.aloft = aloft,
            Err(failure) => self.complete(member, Err(stream.failed(failure)), done),
        }
        self.aloft.is_some()
    }

    /// Moves a part of the first buffer by this thread; `None`: no byte can be moved now, 0: the stream has ended.
    fn step(&mut self, stream: &Stream) -> Result<Option<usize>, Error> {
        let Some(front) = self.under_way.front_mut() else { return Ok(None) };
        match self.way {
            Way::Out => {
                let buffers = [IoSlice::new(&front.buffer)];
                let mut send = Send::new(&buffers, front.done);
                stream.advance_send(&mut send)?;
                let count = send.done() - front.done;
                Ok((count > 0).then_some(count))
            }
            Way::In => {
                let mut buffers = [IoSliceMut::new(&mut front.buffer[front.done..])];
                let mut receive = Receive::new(&mut buffers, 1);
                let advance = stream.advance_receive(&mut receive)?;
                Ok((advance == Advance::Done).then_some(receive.done()))
            }
        }
    }

    /// Counts `bytes` more as done, from the first buffer on.
    fn moved(&mut self, mut bytes: usize, member: Member, done: &mut VecDeque<Completion>) {
        while let Some(front) = self.under_way.front_mut() {
            let count = bytes.min(front.buffer.len() - front.done);
            front.done += count;
            bytes -= count;
            if front.done < front.buffer.len() {
                return;
            }
            self.complete(member, Ok(()), done);
        }
    }

    fn complete(&mut self, member: Member, outcome: Result<(), Error>, done: &mut VecDeque<Completion>) {
        if let Some(Transfer { tag, buffer, done: bytes }) = self.under_way.pop_front() {
            done.push_back(Completion { member, tag, way: self.way, buffer, bytes, outcome });
        }
    }
}

/// Most buffers handed over at once.
const SPANS: usize = crosslane_shm::submission::SPANS;

//! Zero copy for programs written for it: posted buffers, which the far end copies out of, and memory into which it writes its answer.

use super::Stream;
use crate::error::Error;
use crate::wait::{Patience, tid};
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;
use crosslane_client::Failure;
use crosslane_client::buffers::{Buffer, Landing, OpenBuffer, locate_bytes};
use crosslane_client::end::zcopy::announce::{Announcement, Behind};
use crosslane_client::end::zcopy::offer::REQUEST_MAX;
use crosslane_client::link::WaitFor;
use crosslane_client::link::announced::STALL;
use crosslane_stream::zcopy::PIPELINE;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Bytes that the far program should still have to fetch when it wakes the sender: about as many as it fetches in the
/// time of the wake-up. If less is posted, half of that.
const AHEAD: usize = 2 << 20;
/// Bytes of an answer that are copied from the ring at a time.
const PIECE: usize = 64 * 1024;

/// Posted buffers.
#[derive(Debug, Default)]
pub(super) struct Posts {
    queues: Mutex<Queues>,
    /// Number of `open` buffers.
    open: AtomicUsize,
}

#[derive(Debug, Default)]
struct Queues {
    /// Not sent in full, in order.
    open: VecDeque<Post>,
    /// Sent; the program may have them back.
    done: VecDeque<Buffer>,
}

#[derive(Debug)]
struct Post {
    buffer: Buffer,
    len: usize,
    sent: usize,
    announced: Option<Announcement>,
}

impl Queues {
    /// The announcement for whose end the sender should be woken, if the oldest buffer is announced: a wake-up costs both
    /// programs as much time as copying a quarter of a megabyte.
    fn awaited(&self) -> Option<Announcement> {
        self.open.front()?.announced?;
        let (count, most) = (self.open.len(), self.open.len() * 3 / 4);
        let behind: usize = self.open.iter().skip(most).map(|post| post.len).sum();
        let most = if behind >= AHEAD { most } else { count / 2 };
        self.open.iter().take(most.max(1)).rev().find_map(|post| post.announced)
    }
}

impl Posts {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no posted buffer must be sent before other bytes.
    pub(super) fn is_empty(&self) -> bool {
        self.open.load(Relaxed) == 0
    }
}

impl Stream {
    /// Sends the first `len` bytes of `buffer` without a copy by this program, if the far program can map the buffer: it copies the
    /// bytes out when it receives. Until then the buffer belongs to the stream: see [`Self::reclaim`]. Waits while [`PIPELINE`]
    /// buffers are under way. If the far program cannot map the buffer, or does not read, the bytes are copied into the ring.
    ///
    /// # Errors
    /// The stream is over, or [`Error::TimedOut`]; the buffer is lost with it.
    pub fn post(&self, buffer: Buffer, len: usize) -> Result<(), Error> {
        let len = len.min(buffer.len());
        let mut patience = self.send_limit.patience();
        self.await_posts(PIPELINE - 1, &mut patience)?;
        let mut queues = self.posts.lock();
        let (sent, announced) = match queues.open.back() {
            Some(Post { announced: None, .. }) => (0, None),
            Some(Post { announced, .. }) => self.announce(&buffer[..len], announced.as_ref())?,
            None => self.announce(&buffer[..len], None)?,
        };
        queues.open.push_back(Post { buffer, len, sent, announced });
        self.posts.open.store(queues.open.len(), Relaxed);
        drop(queues);
        if announced.is_none() {
            self.advance_posts(false)?;
        }
        Ok(())
    }

    /// The next buffer that is sent and free again; waits for one. `None` if nothing is posted.
    ///
    /// # Errors
    /// The stream is over, or [`Error::TimedOut`].
    pub fn reclaim(&self) -> Result<Option<Buffer>, Error> {
        if let Some(buffer) = self.try_reclaim()? {
            return Ok(Some(buffer));
        }
        // Waits for several at a time, so that they cost one wake-up.
        let open = self.posts.open.load(Relaxed);
        self.await_posts((open / 2).min(open.saturating_sub(1)), &mut self.send_limit.patience())?;
        self.try_reclaim()
    }

    /// The next buffer that is sent and free again, without waiting.
    ///
    /// # Errors
    /// The stream is over.
    pub fn try_reclaim(&self) -> Result<Option<Buffer>, Error> {
        self.advance_posts(false)?;
        Ok(self.posts.lock().done.pop_front())
    }

    /// Waits until all posted buffers are sent.
    ///
    /// # Errors
    /// The stream is over, or [`Error::TimedOut`].
    pub fn flush(&self) -> Result<(), Error> {
        self.await_posts(0, &mut self.send_limit.patience())
    }

    /// Waits until at most `most` posted buffers are left to send.
    pub(super) fn await_posts(&self, most: usize, patience: &mut Patience) -> Result<(), Error> {
        let (mut left, mut stalled) = (usize::MAX, false);
        loop {
            if self.posts.is_empty() {
                return Ok(());
            }
            self.advance_posts(stalled)?;
            let now = self.posts.lock().open.len();
            if now <= most {
                return Ok(());
            }
            if now < left {
                left = now;
                patience.moved();
            }
            let (until, soon) = (patience.end(), Instant::now() + STALL);
            let deadline = until.map_or(soon, |until| until.min(soon));
            self.wait(self.posted(), Some(deadline))?;
            stalled = Instant::now() >= deadline;
            if stalled && until.is_some_and(|until| Instant::now() >= until) {
                return Err(Error::TimedOut { remote: self.peer(), after: patience.limit(), done: 0 });
            }
        }
    }

    /// Announces `bytes`, if that can be; returns how many of them are sent already.
    fn announce(
        &self,
        bytes: &[u8],
        last: Option<&Announcement>,
    ) -> Result<(usize, Option<Announcement>), Error> {
        let Some(place) = locate_bytes(bytes) else { return Ok((0, None)) };
        let (behind, wake) = (Behind::Others(last), |waiter| self.wake(waiter));
        let begun = Announcement::begin(&self.end, tid(), bytes, &place, behind, wake);
        Ok(self.checked(begun)?.map_or_else(|count| (count, None), |open| (0, Some(open))))
    }

    /// Checks the oldest announcements, and sends through the ring what is not fetched. `stalled`: the oldest was waited for.
    pub(super) fn advance_posts(&self, mut stalled: bool) -> Result<(), Error> {
        let mut queues = self.posts.lock();
        while let Some(front) = queues.open.front_mut() {
            if let Some(announced) = &mut front.announced {
                let stalled = core::mem::take(&mut stalled);
                let over = self.checked(announced.try_advance(&self.end, tid(), stalled))?;
                let Some(count) = over else { return Ok(()) };
                front.sent += count;
                front.announced = None;
            }
            if front.sent < front.len {
                let rest = [IoSlice::new(&front.buffer[..front.len])];
                front.sent += self.send_now(&rest, front.sent)?;
            }
            if front.sent < front.len {
                return Ok(());
            }
            let done = queues.open.pop_front().map(|post| post.buffer);
            queues.done.extend(done);
            self.posts.open.store(queues.open.len(), Relaxed);
        }
        Ok(())
    }

    /// What is worth a wake-up: enough of the posted bytes is fetched, or can be sent through the ring.
    fn posted(&self) -> WaitFor {
        self.posts.lock().awaited().map_or(WaitFor::Room, WaitFor::Posted)
    }

    /// Sends `request` and receives the following bytes of the stream into `answer`, from its start on; returns their
    /// number. If the far program can map `answer`, the request offers it, and the far program writes the answer there:
    /// it takes no record, no credit and no copy by this program. Else the answer comes through the ring and is copied.
    ///
    /// Until the call returns no other thread may receive from the stream.
    ///
    /// # Errors
    /// The stream is over, [`Error::Closed`] if it ends without an answer, or [`Error::TimedOut`].
    pub fn transact(&self, request: &[u8], answer: &OpenBuffer) -> Result<usize, Error> {
        let (head, tail) = request.split_at(request.len().saturating_sub(REQUEST_MAX));
        if !head.is_empty() {
            self.send(head)?;
        }
        if !self.posts.is_empty() {
            self.flush()?;
        }
        let Some(line) = self.offer(tail, answer)? else {
            self.send(tail)?;
            return self.receive_copied(answer);
        };
        let mut patience = self.receive_limit.patience();
        while !self.end.has_landed(&line) && !self.is_ready(WaitFor::Data) {
            let landed = || self.end.has_landed(&line);
            if let Err(error) = self.pause_until(WaitFor::Data, &mut patience, landed) {
                return self.checked(self.end.take_back(tid(), &line))?.ok_or(error);
            }
        }
        let landed = self.checked(self.end.take_offered(tid(), &line))?;
        landed.map_or_else(|| self.receive_copied(answer), Ok)
    }

    /// Receives the following bytes of the stream into `target`; the far program writes them there if it can map it
    /// (Write Zcopy). As [`Self::transact`] without a request.
    ///
    /// # Errors
    /// As for [`Self::transact`].
    pub fn receive_offered(&self, target: &OpenBuffer) -> Result<usize, Error> {
        self.transact(&[], target)
    }

    fn offer<'a>(&self, request: &[u8], answer: &'a OpenBuffer) -> Result<Option<Landing<'a>>, Error> {
        let (Ok(place), Some(line)) = (answer.locate(0, answer.len()), answer.landing()) else {
            return Ok(None);
        };
        if self.end.export_buffer(&place).is_err() {
            return Ok(None);
        }
        let offered = self.checked(self.end.offer(tid(), request, (&place, &line), answer.len()))?;
        let Some(wake) = offered else { return Ok(None) };
        self.wake(wake);
        Ok(Some(line))
    }

    /// Receives through the ring.
    fn receive_copied(&self, target: &OpenBuffer) -> Result<usize, Error> {
        let mut bytes = vec![0; target.len().min(PIECE)];
        let count = self.receive(&mut bytes)?;
        if count == 0 {
            return Err(Error::Closed);
        }
        target.write(0, &bytes[..count]).map_err(|_| Error::Closed)?;
        Ok(count)
    }

    fn checked<T>(&self, outcome: Result<T, Failure>) -> Result<T, Error> {
        outcome.map_err(|failure| self.failed(failure))
    }
}

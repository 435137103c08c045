//! Sends and receives that are submitted with their buffers, and completed later, in the manner of work requests.
//!
//! ```text
//!   Queue::new --add(stream)--> Member     send(member, tag, bytes), receive(member, tag, buffer): under way, in order
//!     wait: sleeps once for many | try_next: never waits | as_fd: readable when try_next should be called
//!                                         --> Completion { member, tag, way, buffer, bytes, outcome }
//! ```
//! The pending buffers of one stream and direction are handed to the daemon's engine together (decision 15), up to 30
//! buffers and 32 MiB at a time, so that one wake-up of the program is enough for all of them. The thread that calls the
//! queue copies what the engine does not take: too few bytes, a stream over several cables, an engine that may not access
//! this process or is late. In this case, too, no call but [`Queue::wait`] waits.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use crosslane::fabric::Fabric;
//! use crosslane::queue::Queue;
//! let fabric = Fabric::open()?;
//! let stream = fabric.connect("10.86.0.2:7000".parse()?)?;
//! let mut queue = Queue::new(&fabric)?;
//! let member = queue.add(stream)?;
//! for number in 0..8 {
//!     queue.send(member, number, vec![7; 140_000]);
//! }
//! while let Some(done) = queue.wait()? {
//!     done.outcome?;
//! }
//! # Ok(())
//! # }
//! ```

mod lane;
mod sleep;

use crate::attachment::Attachment;
use crate::error::Error;
use crate::fabric::Fabric;
use crate::stream::Stream;
use crate::wait::{Patience, tid};
use lane::{Lane, Transfer};
use sleep::Sleep;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

pub use crosslane_client::end::chosen::Statistics;
pub use crosslane_shm::submission::Way;

/// Identifies a stream of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Member(usize);

/// A send or receive that has ended, with or without success.
#[derive(Debug)]
pub struct Completion {
    /// The stream.
    pub member: Member,
    /// The tag that the program gave.
    pub tag: u64,
    /// Whether it was a send or a receive.
    pub way: Way,
    /// The buffer that the program gave; a receive has changed only the received bytes.
    pub buffer: Vec<u8>,
    /// Bytes from its start that were sent or received. A receive with fewer bytes than its buffer and no error has met
    /// the end of the stream.
    pub bytes: usize,
    /// The error that ended it; later ones in that direction end as well. [`Error::Cancelled`] if the program cancelled it.
    pub outcome: Result<(), Error>,
}

/// A stream, and its pending sends and receives.
#[derive(Debug)]
struct Entry {
    stream: Stream,
    lanes: [Lane; 2],
}

/// Streams of one session, and their pending sends and receives. Dropping it cancels all of them and closes the streams.
#[derive(Debug)]
pub struct Queue {
    attachment: &'static Attachment,
    entries: Vec<Option<Entry>>,
    done: VecDeque<Completion>,
    sleep: Sleep,
}

impl Queue {
    /// A queue for streams of the fabric's present session.
    ///
    /// # Errors
    /// The daemon refuses or does not answer, or there are no descriptors.
    pub fn new(fabric: &Fabric) -> Result<Self, Error> {
        let attachment = fabric.attachment()?;
        let sleep = Sleep::new(attachment)?;
        Ok(Self { attachment, entries: Vec::new(), done: VecDeque::new(), sleep })
    }

    /// Adds a stream; from now on the engine may copy its large transfers.
    ///
    /// # Errors
    /// [`Error::DaemonGone`]: the stream belongs to an earlier session, and is closed. [`Error::System`]: the kernel has
    /// no memory to watch it.
    pub fn add(&mut self, stream: Stream) -> Result<Member, Error> {
        if !core::ptr::eq(stream.attachment(), self.attachment) {
            return Err(Error::DaemonGone);
        }
        let free = self.entries.iter().position(Option::is_none);
        let member = free.unwrap_or(self.entries.len());
        self.sleep.watch(stream.carrier(), member)?;
        stream.set_offload(true);
        let entry = Some(Entry { stream, lanes: [Lane::new(Way::Out), Lane::new(Way::In)] });
        match self.entries.get_mut(member) {
            Some(place) => *place = entry,
            None => self.entries.push(entry),
        }
        Ok(Member(member))
    }

    /// Sends all of `buffer`, after the buffers that were submitted before.
    ///
    /// # Panics
    /// The member was removed.
    pub fn send(&mut self, member: Member, tag: u64, buffer: Vec<u8>) {
        self.submit(member, Way::Out, tag, buffer);
    }

    /// Fills all of `buffer`, after the buffers that were submitted before.
    ///
    /// # Panics
    /// The member was removed.
    pub fn receive(&mut self, member: Member, tag: u64, buffer: Vec<u8>) {
        self.submit(member, Way::In, tag, buffer);
    }

    fn submit(&mut self, member: Member, way: Way, tag: u64, buffer: Vec<u8>) {
        let entry = self.entries.get_mut(member.0).and_then(Option::as_mut).expect("a member of this queue");
        entry.lanes[way as usize].push(Transfer { tag, buffer, done: 0 });
    }

    /// The next completion; waits for it. `None` if nothing is pending. Submitted transfers begin at the first call of
    /// this or of [`Self::try_next`] after the submission.
    ///
    /// # Errors
    /// The kernel refuses the sleep.
    pub fn wait(&mut self) -> Result<Option<Completion>, Error> {
        self.wait_by(&mut Patience::still(None))
    }

    /// As [`Self::wait`], for `limit` at most; `None` also if nothing is completed by then.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub fn wait_within(&mut self, limit: Duration) -> Result<Option<Completion>, Error> {
        self.wait_by(&mut Patience::within(limit))
    }

    fn wait_by(&mut self, patience: &mut Patience) -> Result<Option<Completion>, Error> {
        loop {
            if let Some(done) = self.look() {
                return Ok(Some(done));
            }
            if self.is_idle() {
                return Ok(None);
            }
            let deadline = patience.end();
            if let Some(done) = self.arm() {
                return Ok(Some(done));
            }
            let heard = self.sleep.sleep(deadline)?;
            self.heard(&heard);
            if heard.is_empty() && deadline.is_some_and(|end| std::time::Instant::now() >= end) {
                return Ok(self.look());
            }
        }
    }

    /// The next completion, without waiting. After `None`, [`Self::as_fd`] becomes readable as soon as another call is useful.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub fn try_next(&mut self) -> Result<Option<Completion>, Error> {
        if let Some(done) = self.look() {
            return Ok(Some(done));
        }
        let heard = self.sleep.drain()?;
        self.heard(&heard);
        Ok(self.look().or_else(|| self.arm()))
    }

    /// Number of sends and receives that are pending, or completed and not returned yet.
    pub fn len(&self) -> usize {
        let waiting = |entry: &Entry| entry.lanes.iter().map(Lane::len).sum::<usize>();
        self.done.len() + self.entries.iter().flatten().map(waiting).sum::<usize>()
    }

    /// Whether there is nothing to wait for.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that a stream has moved so far, by way; `None` once it was removed.
    pub fn statistics(&self, member: Member) -> Option<Statistics> {
        self.entries.get(member.0)?.as_ref().map(|entry| entry.stream.statistics())
    }

    /// Cancels all that is pending on a stream: each ends with [`Error::Cancelled`]. Waits for a piece that is being
    /// copied. A send may have sent a part of its bytes; its completion says how many.
    pub fn cancel(&mut self, member: Member) {
        let Some(entry) = self.entries.get_mut(member.0).and_then(Option::as_mut) else { return };
        self.sleep.disarm(member.0, &entry.stream);
        for lane in &mut entry.lanes {
            lane.cancel(&entry.stream, member, &mut self.done);
        }
    }

    /// Cancels all that is pending on a stream as [`Self::cancel`] does, and returns the stream.
    pub fn remove(&mut self, member: Member) -> Option<Stream> {
        self.cancel(member);
        let entry = self.entries.get_mut(member.0)?.take()?;
        self.sleep.forget(entry.stream.carrier());
        Some(entry.stream)
    }

    fn is_idle(&self) -> bool {
        self.entries.iter().flatten().all(|entry| entry.lanes.iter().all(|lane| lane.len() == 0))
    }

    /// Moves as many bytes as possible, if no completion is ready.
    fn look(&mut self) -> Option<Completion> {
        if self.done.is_empty() {
            self.advance();
        }
        self.done.pop_front()
    }

    fn advance(&mut self) {
        for (at, entry) in self.entries.iter_mut().enumerate() {
            let Some(Entry { stream, lanes }) = entry else { continue };
            for lane in lanes {
                lane.advance(stream, Member(at), &mut self.done);
            }
        }
    }

    /// Asks far sides and engine to wake the queue from now on; returns a completion that is ready already.
    fn arm(&mut self) -> Option<Completion> {
        let mut aloft = false;
        for (at, entry) in self.entries.iter().enumerate() {
            let Some(Entry { stream, lanes }) = entry else { continue };
            if lanes.iter().any(Lane::is_aloft) {
                aloft = true;
                self.sleep.hear_engine(stream);
            }
            let [out, into] = lanes;
            self.sleep.arm(at, stream, into.is_blocked(), out.is_blocked());
            aloft |= lanes.iter().any(|lane| lane.want_waker() || lane.is_unsure());
        }
        if aloft {
            self.sleep.tick();
        }
        self.sleep.is_armed();
        self.advance();
        self.done.pop_front()
    }

    fn heard(&mut self, heard: &sleep::Heard) {
        for (at, entry) in self.entries.iter().enumerate() {
            let Some(Entry { stream, .. }) = entry else { continue };
            if !heard.is_landed() {
                self.sleep.disarm(at, stream);
            }
            if heard.is_news_of(at) {
                stream.look_at_kernel();
            }
        }
    }
}

impl AsFd for Queue {
    /// To be polled for input by `poll`, `select` or `epoll`; nothing else may be done with it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sleep.as_fd()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        for member in 0..self.entries.len() {
            drop(self.remove(Member(member)));
        }
        self.sleep.end(self.attachment);
    }
}

/// This thread's id.
fn here() -> u32 {
    tid()
}

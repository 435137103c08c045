//! One transfer that an engine's thread executes, piece by piece: it plans each piece on a copy of the ring's state,
//! copies the bytes, and then publishes the new state.

use super::copy::{CopyEngine, PIECE};
use super::mapped;
use super::marks::Marks;
use super::table::Table;
use super::tally::Tally;
use super::work::Work;
use core::sync::atomic::Ordering::Relaxed;
use crosslane_shm::FarBuffer;
use crosslane_shm::account::{self, Function};
use crosslane_shm::remote::{PLACES, Remote, RemoteError, Span};
use crosslane_shm::ring::{Consumer, Duplex, Producer, Violation};
use crosslane_shm::submission::{Descriptor, Outcome, RequestId, SPANS, Way};
use crosslane_shm::{Load, Store};
use crosslane_wire::record::{Kind, MAX_PAYLOAD, span};
use crosslane_wire::segment::{LINE, WANT_DATA, WANT_ROOM};
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

/// Most records of one piece.
const RECORDS: usize = PLACES / 2;
/// Longest transfer, bytes: a longer one is cut, since the descriptor may lie.
const LONGEST: usize = 1 << 30;
/// Less room than this, or fewer bytes behind others of the same call, are waited for shortly, so that records do not become small.
const WORTHWHILE: usize = 16 * 1024;

/// How long a transfer that has received bytes waits for more of the same message, ns.
const LINGER_NS: u32 = 10_000;

/// The result of a turn.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// This many bytes were moved.
    Moved(usize),
    /// Nothing can be moved now.
    Waits,
    /// The transfer has ended, and the program has been told, or has cancelled it.
    Ended(usize),
}

/// The ring's state before the piece under way.
#[derive(Debug)]
enum State {
    Out(Producer),
    In(Consumer),
}

/// A piece, with the state that it leads to.
#[derive(Debug)]
struct Piece {
    after: State,
    marks: Marks,
    places: Vec<(usize, usize)>,
    bytes: usize,
}

/// A transfer.
#[derive(Debug)]
pub(super) struct Job {
    request: RequestId,
    spans: Vec<Span>,
    rung: u64,
    work: Arc<Work>,
    /// The registered buffer that contains `spans`; none: they are in the program's memory.
    registered: Option<Arc<FarBuffer>>,
    state: State,
    total: usize,
    done: usize,
    /// Credit was given.
    gave: bool,
    /// When bytes last moved, or the transfer began.
    pub(super) moved: Instant,
    under_way: Option<Piece>,
    tag: u64,
}

/// What a turn needs of its thread and of the program.
pub(super) struct Hand<'a> {
    pub(super) table: &'a Table,
    pub(super) remote: &'a Remote,
    pub(super) engine: &'a mut dyn CopyEngine,
    pub(super) cpu: u16,
    pub(super) tally: &'a Tally,
}

impl Job {
    /// A transfer out of a program or into it; `None` if the state of its ring is impossible, or its spans are not inside
    /// the buffer that it names.
    pub(super) fn new(
        tag: u64,
        way: Way,
        request: RequestId,
        descriptor: &Descriptor,
        (work, registered): (Arc<Work>, Option<Arc<FarBuffer>>),
        now: Instant,
    ) -> Option<Self> {
        let state = match way {
            Way::Out => State::Out(work.producer()?),
            Way::In => State::In(work.consumer()?),
        };
        let mut spans = Vec::with_capacity(SPANS);
        let mut total = 0;
        for span in descriptor.spans.iter().take_while(|span| span.len > 0) {
            let len = span.len.min(LONGEST - total);
            spans.push(Span { address: span.address, len });
            total += len;
        }
        if registered.as_ref().is_some_and(|registered| !mapped::may_lie_in(registered, way, &spans)) {
            return None;
        }
        let rung = descriptor.rung;
        Some(Self {
            request,
            spans,
            rung,
            work,
            registered,
            state,
            total,
            done: 0,
            gave: false,
            moved: now,
            under_way: None,
            tag,
        })
    }

    /// The transfer's slot on the submission queue.
    pub(super) fn index(&self) -> usize {
        self.request.index()
    }

    /// Whether nothing has moved for longer than a wait pays: `limit_ns` at most, or less if bytes were moved before,
    /// with which the program may go on.
    pub(super) fn has_waited(&self, now: Instant, limit_ns: u32) -> bool {
        if self.under_way.is_some() {
            return false;
        }
        let waited = u64::try_from((now - self.moved).as_nanos()).unwrap_or(u64::MAX);
        let patience = match self.state {
            State::In(_) if self.done > 0 => LINGER_NS.min(limit_ns),
            _ => limit_ns,
        };
        waited >= patience.into()
    }

    /// Moves a piece, if possible.
    pub(super) fn run_once(&mut self, hand: &mut Hand<'_>) -> Step {
        let (piece, copied) = match self.under_way.take() {
            Some(piece) => {
                let copied = hand.engine.poll(self.tag);
                (piece, copied)
            }
            None => match self.begin(hand) {
                Ok(begun) => begun,
                Err(step) => return step,
            },
        };
        match copied {
            Poll::Pending => {
                self.under_way = Some(piece);
                Step::Waits
            }
            Poll::Ready(Ok(())) => self.take_effect(piece, hand),
            Poll::Ready(Err(error)) => {
                let outcome = outcome(error);
                if outcome == Outcome::Refused {
                    hand.tally.refused.fetch_add(1, Relaxed);
                }
                self.end(hand.table, outcome)
            }
        }
    }

    /// Ends the transfer with the bytes that were moved.
    pub(super) fn end(&mut self, table: &Table, outcome: Outcome) -> Step {
        let outcome = if outcome == Outcome::Done && self.gave { Outcome::Credited } else { outcome };
        table.finish(self.request, self.done as u64, outcome);
        Step::Ended(0)
    }

    fn begin(&mut self, hand: &mut Hand<'_>) -> Result<(Piece, Poll<Result<(), RemoteError>>), Step> {
        if !self.work.lives() {
            return Err(self.end(hand.table, Outcome::Stale));
        }
        let piece = match self.plan(hand.cpu) {
            Ok(Some(piece)) => piece,
            // The far side sleeps: the program must wake it.
            Ok(None) if self.done > 0 && self.is_wanted() => return Err(self.end(hand.table, Outcome::Done)),
            Ok(None) => return Err(Step::Waits),
            // The program finds the violation by itself, and reports it.
            Err(_) => return Err(self.end(hand.table, Outcome::Stale)),
        };
        if piece.bytes == 0 {
            return Err(self.end(hand.table, Outcome::Done));
        }
        if !hand.table.queue.claim(self.request) {
            return Err(Step::Ended(0));
        }
        if self.registered.is_some() {
            // The processor copies these bytes once the piece can no longer be revoked.
            return Ok((piece, Poll::Ready(Ok(()))));
        }
        let spans = self.part(piece.bytes);
        let copied = match &piece.after {
            State::Out(_) => {
                let _span = account::sending(Function::CopyIn);
                hand.engine.fetch(self.tag, (hand.remote, &spans), (&self.work.outbound, &piece.places))
            }
            State::In(_) => {
                let _span = account::receiving(Function::CopyOut);
                hand.engine.store(self.tag, (&self.work.inbound, &piece.places), (hand.remote, &spans))
            }
        };
        Ok((piece, copied))
    }

    /// The bytes of a piece are copied: publishes them in ring and state, and ends the transfer if that was all.
    fn take_effect(&mut self, piece: Piece, hand: &mut Hand<'_>) -> Step {
        let (table, Piece { after, marks, places, bytes }) = (hand.table, piece);
        if !table.queue.commit(self.request) {
            return Step::Ended(0);
        }
        let (producer, consumer) = self.work.rings();
        match &after {
            State::Out(after) => {
                match &self.registered {
                    Some(registered) => {
                        let _span = account::sending(Function::CopyIn);
                        mapped::send(registered, &self.part(bytes), &self.work.outbound, &places);
                    }
                    None => hand.engine.land((&self.work.outbound, &places)),
                }
                marks.play(&self.work.outbound);
                after.publish(producer);
            }
            State::In(after) => {
                if let Some(registered) = &self.registered {
                    let _span = account::receiving(Function::CopyOut);
                    mapped::receive(&self.work.inbound, &places, registered, &self.part(bytes));
                }
                let _span = account::receiving(Function::Free);
                after.publish(consumer);
                let _span = account::receiving(Function::Acknowledge);
                self.gave |= consumer.give_credit(&self.work.outbound, false);
            }
        }
        if self.registered.is_some() {
            hand.tally.registered.fetch_add(bytes as u64, Relaxed);
        }
        self.state = after;
        self.done += bytes;
        if self.done == self.total || self.is_wanted() {
            self.end(table, Outcome::Done);
            return Step::Ended(bytes);
        }
        if table.queue.go_on(self.request, self.done as u64) {
            Step::Moved(bytes)
        } else {
            Step::Ended(bytes)
        }
    }

    /// Whether the far side sleeps, and must be woken.
    fn is_wanted(&self) -> bool {
        let word = match self.state {
            State::Out(_) => WANT_DATA,
            State::In(_) if !self.gave => return false,
            State::In(_) => WANT_ROOM,
        };
        self.work.outbound.fence();
        let want = self.work.inbound.load_u64(word);
        want != 0 && want != self.rung
    }

    /// The next piece; `None` if there is no room, or no data, now. A piece of no bytes: the next record is for the program to process.
    fn plan(&self, cpu: u16) -> Result<Option<Piece>, Violation> {
        let left = self.reach();
        match &self.state {
            State::Out(producer) => {
                let _span = account::sending(Function::Allot);
                self.plan_out(producer, left, cpu)
            }
            State::In(consumer) => {
                let _span = account::receiving(Function::HeaderCheck);
                self.plan_in(consumer, left)
            }
        }
    }

    fn plan_out(&self, producer: &Producer, left: usize, cpu: u16) -> Result<Option<Piece>, Violation> {
        let (_, consumer) = self.work.rings();
        let credits = &Duplex { words: &self.work.inbound, consumer, rides: false };
        let least = span(left.min(WORTHWHILE) as u64) + LINE;
        if producer.room(credits, least)? < least && !producer.may_grow() {
            return Ok(None);
        }
        let Some(after) = producer.checked(self.work.generation, self.work.ring_max, self.work.tx_key) else {
            return Ok(None);
        };
        let (marks, mut places, mut bytes) = (Marks::default(), Vec::with_capacity(RECORDS), 0);
        while places.len() < RECORDS && bytes < left.min(PIECE) {
            let wanted = (left - bytes).min(PIECE - bytes);
            let Some(offer) = after.offer(&marks, credits, wanted, cpu)? else { break };
            after.commit(&marks, credits, Kind::Data, offer, cpu)?;
            places.push((offer.at, offer.len));
            bytes += offer.len;
        }
        if bytes == 0 {
            return Ok(None);
        }
        Ok(Some(Piece { after: State::Out(after), marks, places, bytes }))
    }

    fn plan_in(&self, consumer: &Consumer, left: usize) -> Result<Option<Piece>, Violation> {
        let ring = &self.work.inbound;
        let Some(after) = consumer.checked(self.work.generation, self.work.ring_max, self.work.rx_key) else {
            return Ok(None);
        };
        after.heed(self.work.rings().1);
        let (mut places, mut bytes, mut other) = (Vec::with_capacity(RECORDS), 0, false);
        while places.len() < RECORDS && bytes < left.min(PIECE) {
            let Some(head) = after.head_if(ring, || self.work.lives())? else { break };
            if head.kind != Kind::Data || head.left == 0 {
                other = true;
                break;
            }
            let count = head.left.min(left - bytes).min(PIECE - bytes);
            places.push((after.front(ring, head)?, count));
            after.skip(head, count)?;
            bytes += count;
        }
        if bytes == 0 && !other {
            return Ok(None);
        }
        Ok(Some(Piece { after: State::In(after), marks: Marks::default(), places, bytes }))
    }

    /// Bytes of the next places in the program that one system call can copy.
    fn reach(&self) -> usize {
        let mut skip = self.done;
        let rest = self.spans.iter().map(|span| {
            let len = span.len.saturating_sub(skip);
            skip = skip.saturating_sub(span.len);
            len
        });
        rest.filter(|len| *len > 0).take(PLACES).sum()
    }

    /// The next `bytes` of the program's buffer.
    fn part(&self, bytes: usize) -> Vec<Span> {
        let (mut skip, mut left, mut part) = (self.done, bytes, Vec::with_capacity(SPANS));
        for span in &self.spans {
            let len = span.len.saturating_sub(skip).min(left);
            if len > 0 {
                part.push(Span { address: span.address.wrapping_add(skip as u64), len });
            }
            skip = skip.saturating_sub(span.len);
            left -= len;
        }
        part
    }
}

fn outcome(error: RemoteError) -> Outcome {
    match error {
        RemoteError::Fault => Outcome::Fault,
        RemoteError::Unguarded => Outcome::Stale,
        RemoteError::Refused(_) => Outcome::Refused,
    }
}

const _: () = assert!(PIECE as u64 <= RECORDS as u64 * MAX_PAYLOAD);

//! One requester, as the owner's agent serves it: executes its commands in order, a limited number in a turn, and reads
//! no more of them while the requester does not take its answers.

use super::SharedBytes;
use super::handle::Handle;
use super::notices::{Notice, Notices};
use super::regions::{Access, Opened, Regions};
use crate::error::Error;
use crate::outbox::{Outbox, arrived};
use crate::stream::Stream;
use core::sync::atomic::AtomicU32;
use crosslane_client::link::WaitFor;
use crosslane_wire::access::{ANSWER, Answer, COMMAND, Command, Denial, HANDSHAKE, PIECE, Place};
use std::collections::VecDeque;
use std::sync::Arc;

/// Most commands, and bytes, of one requester in one turn.
const COMMANDS: usize = 64;
const BYTES: usize = 4 * PIECE;
/// Bytes of unsent answers from which on no more commands are read; one piece of a get may be added to them.
const WAITING: usize = 64 * ANSWER;
/// Most gets of one requester that may be pending.
const GETS: usize = 64;

/// The memory and the notices that commands work on.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) regions: Arc<Regions>,
    pub(super) notices: Arc<Notices>,
    pub(super) handle: Handle,
    /// Buffer for one piece: bytes of a get on their way, or bytes of a put that must be discarded.
    pub(super) scratch: Vec<u8>,
}

/// A requester.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Stream,
    stage: Stage,
    /// The bytes of the next command (or the handshake) that have arrived.
    head: [u8; COMMAND],
    have: usize,
    /// Number of the next command.
    next: u64,
    /// Number of the last unsignaled command that was executed, if that was not reported yet.
    done: Option<u64>,
    gets: VecDeque<Get>,
    /// A fence was read: no commands are read until all gets are served.
    fenced: bool,
    outbox: Outbox,
    /// Number of this requester's notices that wait for the program.
    notices: Arc<AtomicU32>,
    /// The kernel reported an event: check the stream, whatever the ring shows.
    pub(super) maybe_readable: bool,
}

#[derive(Debug)]
enum Stage {
    Handshake,
    Command,
    Data(Put),
}

/// A put whose data is being received.
#[derive(Debug)]
struct Put {
    number: u64,
    /// Destination of the next byte.
    place: Place,
    left: usize,
    /// The region, or the reason of refusal.
    region: Result<Arc<Opened>, Denial>,
}

/// A get that is being served.
#[derive(Debug)]
struct Get {
    number: u64,
    /// Source of the next byte.
    place: Place,
    done: u64,
    left: u64,
}

impl Connection {
    pub(super) fn new(stream: Stream) -> Result<Self, Error> {
        let mut outbox = Outbox::default();
        outbox.send(&stream, &HANDSHAKE, &[])?;
        Ok(Self {
            stream,
            stage: Stage::Handshake,
            head: [0; COMMAND],
            have: 0,
            next: 0,
            done: None,
            gets: VecDeque::new(),
            fenced: false,
            outbox,
            notices: Arc::default(),
            maybe_readable: true,
        })
    }

    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Works for one turn; returns whether anything was done. An error: the connection is over.
    pub(super) fn run_once(&mut self, owner: &mut Owner) -> Result<bool, Error> {
        self.maybe_readable = false;
        let mut done = self.outbox.flush(&self.stream)?;
        done += self.serve_get(owner)?;
        let (mut commands, mut bytes) = (0, 0);
        while commands < COMMANDS && bytes < BYTES && self.reads(owner) {
            match self.read(owner)? {
                0 => break,
                count => bytes += count,
            }
            commands += 1;
        }
        if let Some(upto) = self.done.take() {
            self.answer(Answer::Done { upto })?;
        }
        Ok(done + bytes > 0)
    }

    /// What the agent must wait for before it sleeps.
    pub(super) fn wants(&self, owner: &Owner) -> Option<WaitFor> {
        let room = !self.outbox.is_empty() || !self.gets.is_empty();
        WaitFor::of(self.reads(owner), room)
    }

    /// Whether a turn would find work.
    #[inline]
    pub(super) fn is_ready(&self, owner: &Owner) -> bool {
        self.maybe_readable || self.wants(owner).is_some_and(|what| self.stream.is_ready(what))
    }

    /// Whether more commands are read now.
    fn reads(&self, owner: &Owner) -> bool {
        self.outbox.len() <= WAITING
            && self.gets.len() < if self.fenced { 1 } else { GETS }
            && !owner.notices.holds(&self.notices, &owner.handle)
    }

    /// Reads a part of a command or its data, and executes a command that is complete. Returns how many bytes were read.
    fn read(&mut self, owner: &mut Owner) -> Result<usize, Error> {
        let count = match &mut self.stage {
            Stage::Handshake => {
                let count = arrived(self.stream.try_receive(&mut self.head[self.have..HANDSHAKE.len()])?)?;
                self.have += count;
                if self.have == HANDSHAKE.len() {
                    self.have = 0;
                    self.stage = Stage::Command;
                    if self.head[..HANDSHAKE.len()] != HANDSHAKE {
                        return Err(self.violated("no handshake of a requester".to_owned()));
                    }
                }
                count
            }
            Stage::Command => {
                let count = arrived(self.stream.try_receive(&mut self.head[self.have..])?)?;
                self.have += count;
                if self.have == COMMAND {
                    self.have = 0;
                    let command = Command::decode(&self.head);
                    let command = command.map_err(|error| self.violated(error.to_string()))?;
                    self.execute(command, owner)?;
                }
                count
            }
            Stage::Data(put) => {
                let count = put.receive(&self.stream, owner)?;
                if put.left == 0 {
                    let (number, outcome) = (put.number, put.outcome());
                    self.stage = Stage::Command;
                    self.answer_unsignaled(number, outcome)?;
                }
                count
            }
        };
        Ok(count)
    }

    fn execute(&mut self, command: Command, owner: &mut Owner) -> Result<(), Error> {
        let (number, regions) = (self.next, &owner.regions);
        self.next += 1;
        match command {
            Command::Put { place, len } => {
                let check = |bytes: &SharedBytes| bytes.check(place.offset, len.into());
                let region = regions.find(place.region).and_then(|region| {
                    region.access(place, Access::WRITE, check)?;
                    Ok(region)
                });
                if len == 0 {
                    return self.answer_unsignaled(number, region.map(drop));
                }
                self.stage = Stage::Data(Put { number, place, left: len as usize, region });
                Ok(())
            }
            Command::PutShort { place, len, bytes } => {
                let store = |memory: &SharedBytes| memory.write(place.offset, &bytes[..len as usize]);
                let outcome = regions.access(place, Access::WRITE, store);
                self.answer_unsignaled(number, outcome)
            }
            Command::Get { place, len } => {
                match regions.access(place, Access::READ, |bytes| bytes.check(place.offset, len)) {
                    Ok(()) => {
                        self.gets.push_back(Get { number, place, done: 0, left: len });
                        if self.gets.len() == 1 { self.serve_get(owner).map(drop) } else { Ok(()) }
                    }
                    Err(why) => self.answer(Answer::Denied { number, why }),
                }
            }
            Command::FetchAdd { place, value } => {
                let add = |bytes: &SharedBytes| bytes.fetch_add(place.offset, value);
                let outcome = regions.access(place, Access::ATOMIC, add);
                self.value(number, outcome)
            }
            Command::CompareSwap { place, expected, new } => {
                let swap = |bytes: &SharedBytes| bytes.compare_swap(place.offset, expected, new);
                let outcome = regions.access(place, Access::ATOMIC, swap);
                self.value(number, outcome)
            }
            Command::Fence => {
                self.fenced = !self.gets.is_empty();
                self.answer_unsignaled(number, Ok(()))
            }
            Command::Notify { place, value } => {
                let outcome = regions.access(place, Access::default(), |_| Ok(()));
                if outcome.is_ok() {
                    let notice = Notice { region: place.region, value, from: self.stream.peer() };
                    owner.notices.push(notice, &self.notices);
                }
                self.answer_unsignaled(number, outcome)
            }
        }
    }

    /// Sends the next piece of the first get, if all earlier answers are sent. Returns how many bytes were sent.
    fn serve_get(&mut self, owner: &mut Owner) -> Result<usize, Error> {
        if !self.outbox.is_empty() {
            return Ok(0);
        }
        let Some(get) = self.gets.front_mut() else { return Ok(0) };
        let len = get.left.min(PIECE as u64);
        let piece = &mut owner.scratch[..usize::try_from(len).unwrap_or(PIECE)];
        // The owner may have withdrawn the key since the last piece.
        let read = owner.regions.access(get.place, Access::READ, |bytes| bytes.read(get.place.offset, piece));
        let (number, offset) = (get.number, get.done);
        (get.place.offset, get.done, get.left) = (get.place.offset + len, get.done + len, get.left - len);
        if get.left == 0 || read.is_err() {
            self.gets.pop_front();
            self.fenced &= !self.gets.is_empty();
        }
        match read {
            Ok(()) => {
                let len = u32::try_from(len).unwrap_or(0);
                self.outbox.send(&self.stream, &Answer::Data { number, offset, len }.encode(), piece)?;
            }
            Err(why) => self.answer(Answer::Denied { number, why })?,
        }
        Ok(piece.len() + ANSWER)
    }

    /// Notes the outcome of an unsignaled command.
    fn answer_unsignaled(&mut self, number: u64, outcome: Result<(), Denial>) -> Result<(), Error> {
        self.done = Some(number);
        match outcome {
            Ok(()) => Ok(()),
            Err(why) => self.answer(Answer::Denied { number, why }),
        }
    }

    fn value(&mut self, number: u64, outcome: Result<u64, Denial>) -> Result<(), Error> {
        let answer = match outcome {
            Ok(value) => Answer::Value { number, value },
            Err(why) => Answer::Denied { number, why },
        };
        self.answer(answer)
    }

    fn answer(&mut self, answer: Answer) -> Result<(), Error> {
        self.outbox.send(&self.stream, &answer.encode(), &[])
    }

    fn violated(&self, text: String) -> Error {
        self.stream.violated(&text);
        Error::Violated(text)
    }
}

impl Put {
    fn outcome(&self) -> Result<(), Denial> {
        self.region.as_ref().map(drop).map_err(|why| *why)
    }

    /// Receives the next bytes of a put directly into the region; discards them if they may not be stored. The owner may
    /// have withdrawn the key since the last bytes.
    fn receive(&mut self, stream: &Stream, owner: &mut Owner) -> Result<usize, Error> {
        let stored = self.region.as_ref().map_err(|why| *why).and_then(|region| {
            region.access(self.place, Access::WRITE, |bytes| {
                let part = bytes.part(self.place.offset, self.left as u64)?;
                Ok(stream.try_receive_into(part))
            })
        });
        let count = match stored {
            Ok(received) => arrived(received?)?,
            Err(why) => {
                self.region = Err(why);
                arrived(stream.try_receive(&mut owner.scratch[..self.left])?)?
            }
        };
        self.place.offset = self.place.offset.wrapping_add(count as u64);
        self.left -= count;
        Ok(count)
    }
}

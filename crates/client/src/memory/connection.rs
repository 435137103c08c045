//! One requester, as the owner's agent sees it: its commands are executed as they come, a bounded number in a turn, and
//! no more are read while it does not take its answers.

use super::agent::Handle;
use super::notices::{Notice, Notices};
use super::outbox::Outbox;
use super::regions::{Access, Permit, Regions};
use super::{Buffer, Denial};
use crate::native::{Error, For, Stream};
use core::sync::atomic::{AtomicU32, Ordering};
use crosslane_wire::access::{ANSWER, Answer, COMMAND, Command, GREETING, PIECE, Place};
use std::collections::VecDeque;
use std::sync::Arc;

/// Commands, and bytes, of one requester in one turn.
const COMMANDS: usize = 64;
const BYTES: usize = 4 * PIECE;
/// Bytes of answers that may wait before no more commands are read: besides these, one piece of a get.
const WAITING: usize = 64 * ANSWER;
/// Gets of one requester that may wait.
const GETS: usize = 64;

/// What commands are executed on.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) regions: Arc<Regions>,
    pub(super) notices: Arc<Notices>,
    pub(super) handle: Handle,
    /// Bytes on their way, one piece.
    pub(super) scratch: Vec<u8>,
}

/// A requester.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Stream,
    stage: Stage,
    /// What has come of the command (or the greeting) that is being read.
    head: [u8; COMMAND],
    have: usize,
    /// Number of the next command.
    next: u64,
    /// The last command that was executed and has no answer of its own, if that was not said yet.
    done: Option<u64>,
    gets: VecDeque<Get>,
    /// A fence came: nothing is read before all gets are served.
    fenced: bool,
    outbox: Outbox,
    /// Notices of this requester that wait for the program.
    notices: Arc<AtomicU32>,
    /// The kernel said something: look, whatever the ring says.
    pub(super) stirred: bool,
}

#[derive(Debug)]
enum Stage {
    Greeting,
    Command,
    Data(Put),
}

/// The data of a put that is being read.
#[derive(Debug)]
struct Put {
    number: u64,
    permit: Result<Permit, Denial>,
    offset: u64,
    left: usize,
}

/// A get that is being served.
#[derive(Debug)]
struct Get {
    number: u64,
    permit: Permit,
    offset: u64,
    len: u64,
    done: u64,
}

impl Connection {
    pub(super) fn new(stream: Stream) -> Result<Self, Error> {
        let mut outbox = Outbox::default();
        outbox.send(&stream, &GREETING, &[])?;
        Ok(Self {
            stream,
            stage: Stage::Greeting,
            head: [0; COMMAND],
            have: 0,
            next: 0,
            done: None,
            gets: VecDeque::new(),
            fenced: false,
            outbox,
            notices: Arc::default(),
            stirred: true,
        })
    }

    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Works for a while; whether anything was done. An error: the connection is over.
    pub(super) fn turn(&mut self, owner: &mut Owner) -> Result<bool, Error> {
        self.stirred = false;
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
            self.answer(Answer::Done { upto }, &[])?;
        }
        Ok(done + bytes > 0)
    }

    /// What the agent must wait for, before it sleeps.
    pub(super) fn wants(&self, owner: &Owner) -> Option<For> {
        let room = !self.outbox.is_empty() || !self.gets.is_empty();
        match (self.reads(owner), room) {
            (true, true) => Some(For::Either),
            (true, false) => Some(For::Data),
            (false, true) => Some(For::Room),
            (false, false) => None,
        }
    }

    /// Whether a turn would do something.
    #[inline]
    pub(super) fn is_ready(&self, owner: &Owner) -> bool {
        self.stirred || self.wants(owner).is_some_and(|what| self.stream.is_ready(what))
    }

    /// Whether more commands are taken now.
    fn reads(&self, owner: &Owner) -> bool {
        self.outbox.len() <= WAITING
            && self.gets.len() < if self.fenced { 1 } else { GETS }
            && (self.notices.load(Ordering::Relaxed) < Notices::MOST
                || !owner.notices.hold(&self.notices, &owner.handle))
    }

    /// Reads a part of a command, or of its data, and executes what is whole. Returns how many bytes were read.
    fn read(&mut self, owner: &mut Owner) -> Result<usize, Error> {
        let count = match &mut self.stage {
            Stage::Greeting => {
                let count = receive(&self.stream, &mut self.head[self.have..GREETING.len()])?;
                self.have += count;
                if self.have == GREETING.len() {
                    self.have = 0;
                    self.stage = Stage::Command;
                    if self.head[..GREETING.len()] != GREETING {
                        return Err(self.violated("no greeting of a requester".to_owned()));
                    }
                }
                count
            }
            Stage::Command => {
                let count = receive(&self.stream, &mut self.head[self.have..])?;
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
                let part = &mut owner.scratch[..put.left];
                let count = receive(&self.stream, part)?;
                put.store(&part[..count]);
                if put.left == 0 {
                    let (number, outcome) = (put.number, put.permit.as_ref().map(|_| ()).map_err(|why| *why));
                    self.stage = Stage::Command;
                    self.quiet(number, outcome)?;
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
                let permit = regions.permit(place, Access::WRITE);
                let permit = permit.and_then(|permit| permit.range(place.offset, len.into()));
                if len == 0 {
                    return self.quiet(number, permit.map(drop));
                }
                self.stage = Stage::Data(Put { number, permit, offset: place.offset, left: len as usize });
                Ok(())
            }
            Command::PutShort { place, len, bytes } => {
                let permit = regions.permit(place, Access::WRITE);
                let store = |buffer: &Buffer| buffer.write(place.offset, &bytes[..len as usize]);
                let outcome = permit.and_then(|permit| store(permit.buffer()?).map_err(|_| Denial::Outside));
                self.quiet(number, outcome)
            }
            Command::Get { place, len } => {
                let permit = regions.permit(place, Access::READ);
                match permit.and_then(|permit| permit.range(place.offset, len)) {
                    Ok(permit) => {
                        self.gets.push_back(Get { number, permit, offset: place.offset, len, done: 0 });
                        if self.gets.len() == 1 { self.serve_get(owner).map(drop) } else { Ok(()) }
                    }
                    Err(why) => self.answer(Answer::Denied { number, why }, &[]),
                }
            }
            Command::FetchAdd { place, value } => {
                let outcome = on_word(regions, place, |buffer| buffer.fetch_add(place.offset, value));
                self.value(number, outcome)
            }
            Command::CompareSwap { place, expected, new } => {
                let swap = |buffer: &Buffer| buffer.compare_swap(place.offset, expected, new);
                let outcome = on_word(regions, place, swap);
                self.value(number, outcome)
            }
            Command::Fence => {
                self.fenced = !self.gets.is_empty();
                self.quiet(number, Ok(()))
            }
            Command::Notify { place, value } => {
                let outcome = regions.permit(place, Access::default()).map(|_| {
                    let notice = Notice { region: place.region, value, from: self.stream.peer() };
                    owner.notices.push(notice, &self.notices);
                });
                self.quiet(number, outcome)
            }
        }
    }

    /// Sends the next piece of the first get, if all before it is sent. Returns how many bytes that was.
    fn serve_get(&mut self, owner: &mut Owner) -> Result<usize, Error> {
        if !self.outbox.is_empty() {
            return Ok(0);
        }
        let Some(get) = self.gets.front_mut() else { return Ok(0) };
        let piece =
            &mut owner.scratch[..usize::try_from(get.len - get.done).map_or(PIECE, |left| left.min(PIECE))];
        let read = get
            .permit
            .buffer()
            .and_then(|buffer| buffer.read(get.offset + get.done, piece).map_err(|_| Denial::Outside));
        let (number, offset, len) = (get.number, get.done, u32::try_from(piece.len()).unwrap_or(0));
        get.done += u64::from(len);
        if get.done == get.len || read.is_err() {
            self.gets.pop_front();
            self.fenced &= !self.gets.is_empty();
        }
        match read {
            Ok(()) => {
                let head = Answer::Data { number, offset, len }.encode();
                self.outbox.send(&self.stream, &head, piece)?;
            }
            Err(why) => self.answer(Answer::Denied { number, why }, &[])?,
        }
        Ok(len as usize + ANSWER)
    }

    /// A command without an answer of its own was executed, or not.
    fn quiet(&mut self, number: u64, outcome: Result<(), Denial>) -> Result<(), Error> {
        self.done = Some(number);
        match outcome {
            Ok(()) => Ok(()),
            Err(why) => self.answer(Answer::Denied { number, why }, &[]),
        }
    }

    fn value(&mut self, number: u64, outcome: Result<u64, Denial>) -> Result<(), Error> {
        let answer = match outcome {
            Ok(value) => Answer::Value { number, value },
            Err(why) => Answer::Denied { number, why },
        };
        self.answer(answer, &[])
    }

    fn answer(&mut self, answer: Answer, data: &[u8]) -> Result<(), Error> {
        self.outbox.send(&self.stream, &answer.encode(), data)
    }

    fn violated(&self, text: String) -> Error {
        self.stream.violated(&text);
        Error::Violated(text)
    }
}

impl Put {
    /// Stores what came, if it may be stored; the right may have been taken back since the last part.
    fn store(&mut self, part: &[u8]) {
        let stored = match &self.permit {
            Ok(permit) => permit
                .buffer()
                .and_then(|buffer| buffer.write(self.offset, part).map_err(|_| Denial::Outside)),
            Err(why) => Err(*why),
        };
        if let Err(why) = stored {
            self.permit = Err(why);
        }
        self.offset = self.offset.wrapping_add(part.len() as u64);
        self.left -= part.len();
    }
}

/// Does an atomic operation, if that may be.
fn on_word(
    regions: &Regions,
    place: Place,
    work: impl FnOnce(&Buffer) -> Result<u64, super::BadPlace>,
) -> Result<u64, Denial> {
    let permit = regions.permit(place, Access::ATOMIC)?.word(place.offset)?;
    work(permit.buffer()?).map_err(|_| Denial::Outside)
}

/// Receives what is there; 0 if nothing is. The end of the stream is an error: the requester is gone.
fn receive(stream: &Stream, target: &mut [u8]) -> Result<usize, Error> {
    match stream.try_receive(target)? {
        Some(0) => Err(Error::Closed),
        count => Ok(count.unwrap_or(0)),
    }
}

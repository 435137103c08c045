//! A requester's connection to another program's memory.

use super::ledger::{Coming, Ledger, Op, Target};
use super::{Buffer, Error, RemoteRegion};
use crate::native::{self, Fabric, For, Stream};
use crosslane_wire::access::{ANSWER, Answer, Command, GREETING, PIECE, SHORT};
use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the far end may take to say that it serves memory.
const GREETING_PATIENCE: Duration = Duration::from_secs(10);

/// A connection to a program that serves memory. It belongs to one thread at a time; a program with several makes several
/// connections.
///
/// `put`, `start_*` and `fence` post: they return when the bytes are on their way and the caller's buffer is free again.
/// `get`, `fetch_add` and `compare_swap` wait for their result.
#[derive(Debug)]
pub struct Peer {
    stream: Stream,
    ledger: Ledger,
    /// What has come of the next answer.
    head: [u8; ANSWER],
    have: usize,
    /// Bytes of a get that come now.
    coming: Option<Coming>,
}

impl Peer {
    /// Connects to [`super::Memory::serve`] of another program, or of this one.
    ///
    /// # Errors
    /// [`Error::Stream`] if there is no such program or the connection would be plain TCP; [`Error::NotMemory`].
    pub fn connect(fabric: Fabric, address: SocketAddr) -> Result<Self, Error> {
        let stream = fabric.connect(address)?;
        stream.send(&GREETING)?;
        if !greets(&stream)? {
            return Err(Error::NotMemory);
        }
        Ok(Self { stream, ledger: Ledger::default(), head: [0; ANSWER], have: 0, coming: None })
    }

    /// Puts `bytes` at `offset` of a region. 8 bytes at a multiple of 8 are stored as a whole.
    ///
    /// # Errors
    /// [`Error::Stream`], [`Error::TooMany`]; whether the owner refuses, [`Self::wait`] or [`Self::flush`] tells.
    pub fn put(&mut self, to: &RemoteRegion, offset: u64, bytes: &[u8]) -> Result<Op, Error> {
        self.make_room()?;
        let mut place = to.place(offset);
        if let Some(short) = short(bytes) {
            let len = u32::try_from(bytes.len()).unwrap_or(0);
            let op = self.ledger.quiet(1);
            self.send(&Command::PutShort { place, len, bytes: short }, &[])?;
            return Ok(op);
        }
        let pieces = bytes.chunks(PIECE);
        let op = self.ledger.quiet(pieces.len() as u64);
        for piece in pieces {
            let len = u32::try_from(piece.len()).unwrap_or(0);
            self.send(&Command::Put { place, len }, piece)?;
            place.offset = place.offset.saturating_add(len.into());
        }
        Ok(op)
    }

    /// Gets `buffer.len()` bytes from `offset` of a region.
    ///
    /// # Errors
    /// [`Error::Denied`], [`Error::Stream`], [`Error::TooMany`].
    pub fn get(&mut self, from: &RemoteRegion, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        self.make_room()?;
        let len = buffer.len() as u64;
        let op = self.ledger.get(len, Target::Caller);
        self.send(&Command::Get { place: from.place(offset), len }, &[])?;
        self.wait_with(&op, buffer).map(drop)
    }

    /// Begins to get `len` bytes from `offset` of a region to place `at` of a buffer of this program's: wait for it before
    /// you look there.
    ///
    /// # Errors
    /// [`Error::Place`], [`Error::Stream`], [`Error::TooMany`].
    pub fn start_get(
        &mut self,
        from: &RemoteRegion,
        offset: u64,
        len: u64,
        to: &Arc<Buffer>,
        at: u64,
    ) -> Result<Op, Error> {
        to.check(at, len)?;
        self.make_room()?;
        let op = self.ledger.get(len, Target::Buffer(Arc::clone(to), at));
        self.send(&Command::Get { place: from.place(offset), len }, &[])?;
        Ok(op)
    }

    /// Adds to the aligned word at `offset` of a region, wrapping; returns what it held before.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn fetch_add(&mut self, at: &RemoteRegion, offset: u64, value: u64) -> Result<u64, Error> {
        let op = self.start_fetch_add(at, offset, value)?;
        self.wait(op)
    }

    /// As [`Self::fetch_add`], whose result [`Self::wait`] gives.
    ///
    /// # Errors
    /// [`Error::Stream`], [`Error::TooMany`].
    pub fn start_fetch_add(&mut self, at: &RemoteRegion, offset: u64, value: u64) -> Result<Op, Error> {
        self.make_room()?;
        let op = self.ledger.value();
        self.send(&Command::FetchAdd { place: at.place(offset), value }, &[])?;
        Ok(op)
    }

    /// Stores `new` into the aligned word at `offset` of a region if it holds `expected`; returns what it held.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn compare_swap(
        &mut self,
        at: &RemoteRegion,
        offset: u64,
        expected: u64,
        new: u64,
    ) -> Result<u64, Error> {
        let op = self.start_compare_swap(at, offset, expected, new)?;
        self.wait(op)
    }

    /// As [`Self::compare_swap`], whose result [`Self::wait`] gives.
    ///
    /// # Errors
    /// [`Error::Stream`], [`Error::TooMany`].
    pub fn start_compare_swap(
        &mut self,
        at: &RemoteRegion,
        offset: u64,
        expected: u64,
        new: u64,
    ) -> Result<Op, Error> {
        self.make_room()?;
        let op = self.ledger.value();
        self.send(&Command::CompareSwap { place: at.place(offset), expected, new }, &[])?;
        Ok(op)
    }

    /// Tells the owner's program a number ([`super::Notices`]), after everything before it but gets is executed. Any key
    /// of the region will do.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn notify(&mut self, region: &RemoteRegion, value: u64) -> Result<Op, Error> {
        self.make_room()?;
        let op = self.ledger.quiet(1);
        self.send(&Command::Notify { place: region.place(0), value }, &[])?;
        Ok(op)
    }

    /// Puts, and notifies when that is executed. If the put is refused, the notification comes nevertheless.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn put_notify(
        &mut self,
        to: &RemoteRegion,
        offset: u64,
        bytes: &[u8],
        value: u64,
    ) -> Result<Op, Error> {
        let put = self.put(to, offset, bytes)?;
        Ok(put.with(self.notify(to, value)?))
    }

    /// What is posted from here on is executed after everything before, gets as well.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn fence(&mut self) -> Result<(), Error> {
        let _ = self.ledger.quiet(1);
        self.send(&Command::Fence, &[])
    }

    /// Waits until an operation is executed; what the word held, if it is an atomic one, else 0.
    ///
    /// # Errors
    /// [`Error::Denied`] if the owner refused; [`Error::Stream`].
    pub fn wait(&mut self, op: Op) -> Result<u64, Error> {
        self.wait_with(&op, &mut [])
    }

    /// Whether an operation is executed, so that [`Self::wait`] returns at once.
    ///
    /// # Errors
    /// [`Error::Stream`].
    pub fn is_done(&mut self, op: &Op) -> Result<bool, Error> {
        if !self.ledger.is_done(op) {
            self.take_answers(&mut [])?;
        }
        Ok(self.ledger.is_done(op))
    }

    /// Waits until everything that was posted is executed.
    ///
    /// # Errors
    /// [`Error::Denied`] with the first refusal of a put, a get or a notification that nobody waited for; [`Error::Stream`].
    pub fn flush(&mut self) -> Result<(), Error> {
        while !self.ledger.is_idle() {
            self.advance(&mut [])?;
        }
        Ok(self.ledger.settle()?)
    }

    /// The owner's address.
    pub fn address(&self) -> SocketAddr {
        self.stream.peer()
    }

    fn wait_with(&mut self, op: &Op, buffer: &mut [u8]) -> Result<u64, Error> {
        while !self.ledger.is_done(op) {
            self.advance(buffer)?;
        }
        Ok(self.ledger.take(op)?)
    }

    /// Takes answers, or waits for some.
    fn advance(&mut self, buffer: &mut [u8]) -> Result<(), Error> {
        if !self.take_answers(buffer)? {
            self.stream.wait(For::Data, None)?;
        }
        Ok(())
    }

    fn make_room(&mut self) -> Result<(), Error> {
        if !self.ledger.has_room() {
            self.take_answers(&mut [])?;
        }
        if self.ledger.has_room() { Ok(()) } else { Err(Error::TooMany) }
    }

    /// Sends a command and its data. While there is no room, answers are taken: the owner reads no more commands before.
    fn send(&mut self, command: &Command, data: &[u8]) -> Result<(), Error> {
        let head = command.encode();
        let (buffers, total) = ([IoSlice::new(&head), IoSlice::new(data)], head.len() + data.len());
        let mut done = 0;
        while done < total {
            match self.stream.try_send(&buffers, done)? {
                0 if self.take_answers(&mut [])? => {}
                0 => self.stream.wait(For::Either, None).map(drop)?,
                count => done += count,
            }
        }
        Ok(())
    }

    /// Takes the answers that are there; whether there were any. `caller` is where the bytes of [`Target::Caller`] go.
    fn take_answers(&mut self, caller: &mut [u8]) -> Result<bool, Error> {
        let mut any = false;
        loop {
            let count = match self.coming.take() {
                Some(coming) => self.take_data(coming, caller)?,
                None => self.take_head()?,
            };
            if count == 0 {
                return Ok(any);
            }
            any = true;
        }
    }

    fn take_head(&mut self) -> Result<usize, Error> {
        let count = receive(&self.stream, &mut self.head[self.have..])?;
        self.have += count;
        if self.have == ANSWER {
            self.have = 0;
            let answer = Answer::decode(&self.head).map_err(|error| self.violated(&error.to_string()))?;
            let coming = self.ledger.answer(answer).map_err(|error| self.violated(error.0))?;
            self.expect(coming);
        }
        Ok(count)
    }

    fn take_data(&mut self, mut coming: Coming, caller: &mut [u8]) -> Result<usize, Error> {
        let left = usize::try_from(coming.left).unwrap_or(usize::MAX);
        let at = usize::try_from(coming.at).unwrap_or(usize::MAX);
        let count = match &coming.target {
            Target::Caller => match caller.get_mut(at..at.saturating_add(left)) {
                Some(target) => receive(&self.stream, target)?,
                None => return Err(self.violated("bytes for nobody")),
            },
            Target::Buffer(buffer, _) => {
                some(self.stream.try_receive_into(buffer.part(coming.at, coming.left)?)?)?
            }
        };
        coming.at += count as u64;
        coming.left -= count as u64;
        self.expect(Some(coming));
        Ok(count)
    }

    /// Bytes come now, or have all come.
    fn expect(&mut self, coming: Option<Coming>) {
        match coming {
            Some(coming) if coming.left == 0 => self.ledger.came(coming.number),
            coming => self.coming = coming,
        }
    }

    fn violated(&self, text: &str) -> Error {
        self.stream.violated(text);
        native::Error::Violated(text.to_owned()).into()
    }
}

/// Whether the far end says in time that it serves memory.
fn greets(stream: &Stream) -> Result<bool, native::Error> {
    let (mut greeting, mut have, deadline) = ([0; GREETING.len()], 0, Instant::now() + GREETING_PATIENCE);
    while have < greeting.len() {
        match stream.try_receive(&mut greeting[have..])? {
            Some(0) => return Ok(false),
            Some(count) => have += count,
            None => {
                if !stream.wait(For::Data, Some(deadline))? {
                    return Ok(false);
                }
            }
        }
    }
    Ok(greeting == GREETING)
}

/// Receives what is there; 0 if nothing is.
fn receive(stream: &Stream, target: &mut [u8]) -> Result<usize, native::Error> {
    some(stream.try_receive(target)?)
}

/// How many bytes came. The end of the stream is an error: the owner is gone.
fn some(received: Option<usize>) -> Result<usize, native::Error> {
    match received {
        Some(0) => Err(native::Error::Closed),
        count => Ok(count.unwrap_or(0)),
    }
}

/// Bytes that travel in the command itself.
fn short(bytes: &[u8]) -> Option<[u8; SHORT]> {
    let mut short = [0; SHORT];
    short.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(short)
}

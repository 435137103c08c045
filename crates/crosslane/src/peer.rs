//! Access to another program's memory: put, get, atomic operations, notifications.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use crosslane::fabric::Fabric;
//! use crosslane::memory::RemoteRegion;
//! use crosslane::peer::Peer;
//! # let remote: RemoteRegion = RemoteRegion { id: 1, key: 2, len: 4096 };
//! // `remote` is what the owner sent to this program: `Region::share`.
//! let mut peer = Peer::connect(Fabric::open()?, "10.86.0.1:7000".parse()?)?;
//! let put = peer.put(&remote, 64, b"hello")?;
//! peer.wait(put)?;
//! let before = peer.fetch_add(&remote, 0, 1)?;
//! # Ok(())
//! # }
//! ```

mod exchange;
mod ledger;

pub use crosslane_wire::access::Denial;
pub use ledger::Op;

use crate::fabric::Fabric;
use crate::memory::{BadPlace, RemoteRegion, SharedBytes};
use crate::stream::{self, Stream};
use crate::wait::Patience;
use crosslane_wire::access::{Command, HANDSHAKE, PIECE, Place, SHORT};
use exchange::Exchange;
use ledger::Target;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Why an operation failed. After [`Error::Denied`], [`Error::Place`], [`Error::TooMany`] and [`Error::TimedOut`] the
/// connection can still be used.
#[derive(Debug, Error)]
pub enum Error {
    /// There is no connection, or it has ended.
    #[error(transparent)]
    Stream(#[from] stream::Error),
    /// The owner refused the operation.
    #[error("the owner refused: {0}")]
    Denied(#[from] Denial),
    /// The place lies outside this program's own bytes.
    #[error(transparent)]
    Place(#[from] BadPlace),
    /// Too many operations are pending or have results that were not read: wait for them, or flush.
    #[error("too many operations whose results nobody waited for")]
    TooMany,
    /// The owner made no progress for as long as the call may wait. Nothing is lost, and the call may be repeated.
    #[error(
        "the owner at {owner} did nothing for {after:?}: its program, or a host or a daemon on the way, is frozen or busy, \
         or it takes no notifications; wait or flush again, or drop this Peer and connect anew (Peer::set_timeout)"
    )]
    TimedOut {
        /// The owner's address.
        owner: SocketAddr,
        /// The limit that the call had.
        after: Duration,
    },
    /// The program that listens there does not serve memory.
    #[error("what listens there does not serve memory")]
    NotMemory,
}

/// A connection to a program that serves memory. It belongs to one thread at a time; a program with several makes several
/// connections.
///
/// `put`, `start_*` and `fence` post: they return when the bytes are on their way and the caller's buffer is free again.
/// `get`, `fetch_add` and `compare_swap` wait for their result.
///
/// **Time-outs.** A call that waits longer than [`Self::set_timeout`] allows without progress fails with [`Error::TimedOut`].
/// The connection stays usable: posted operations are still executed when the owner goes on, and all calls may be repeated.
/// An operation that was not posted by then is not posted later; of a put, pieces of 64 KB may have been posted.
#[derive(Debug)]
pub struct Peer {
    exchange: Exchange,
    timeout: Option<Duration>,
}

impl Peer {
    /// Default limit of calls without progress: longer than a stream needs to move to another path.
    pub const TIMEOUT: Duration = Duration::from_secs(30);

    /// Connects to [`crate::memory::Memory::serve`] of another program, or of this one; waits for [`Self::TIMEOUT`] at most.
    ///
    /// # Errors
    /// [`Error::Stream`] if there is no such program or the connection would be plain TCP; [`Error::NotMemory`];
    /// [`Error::TimedOut`].
    pub fn connect(fabric: Fabric, address: SocketAddr) -> Result<Self, Error> {
        Self::connect_within(fabric, address, Self::TIMEOUT)
    }

    /// As [`Self::connect`], for `limit` at most.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn connect_within(fabric: Fabric, address: SocketAddr, limit: Duration) -> Result<Self, Error> {
        let stream = greeted(fabric, address, &mut Patience::within(limit)).map_err(|error| match error {
            Error::Stream(stream::Error::TimedOut { .. }) => Error::TimedOut { owner: address, after: limit },
            error => error,
        })?;
        Ok(Self { exchange: Exchange::new(stream), timeout: Some(Self::TIMEOUT) })
    }

    /// Sets how long a call waits without progress; `None`: for ever.
    pub fn set_timeout(&mut self, limit: Option<Duration>) {
        self.timeout = limit;
    }

    /// Puts `bytes` at `offset` of a region. 8 bytes at a multiple of 8 are stored as a whole.
    ///
    /// # Errors
    /// [`Error::Stream`], [`Error::TimedOut`], [`Error::TooMany`]; a refusal by the owner is reported by [`Self::wait`]
    /// or [`Self::flush`].
    pub fn put(&mut self, to: &RemoteRegion, offset: u64, bytes: &[u8]) -> Result<Op, Error> {
        self.make_room()?;
        let mut place = to.place(offset);
        if let Some(short) = short(bytes) {
            let len = u32::try_from(bytes.len()).unwrap_or(0);
            self.send(&Command::PutShort { place, len, bytes: short }, &[])?;
            return Ok(self.exchange.ledger.unsignaled());
        }
        let (first, rest) = bytes.split_at(bytes.len().min(PIECE));
        let mut op = self.put_piece(&mut place, first)?;
        for piece in rest.chunks(PIECE) {
            op = op.with(self.put_piece(&mut place, piece)?);
        }
        Ok(op)
    }

    fn put_piece(&mut self, place: &mut Place, piece: &[u8]) -> Result<Op, Error> {
        let len = u32::try_from(piece.len()).unwrap_or(0);
        self.send(&Command::Put { place: *place, len }, piece)?;
        place.offset = place.offset.saturating_add(len.into());
        Ok(self.exchange.ledger.unsignaled())
    }

    /// Gets `buffer.len()` bytes from `offset` of a region.
    ///
    /// # Errors
    /// [`Error::Denied`], [`Error::Stream`], [`Error::TimedOut`], [`Error::TooMany`].
    pub fn get(&mut self, from: &RemoteRegion, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        self.make_room()?;
        let len = buffer.len() as u64;
        self.send(&Command::Get { place: from.place(offset), len }, &[])?;
        let op = self.exchange.ledger.get(len, Target::Caller);
        self.wait_or_abandon(&op, buffer).map(drop)
    }

    /// Begins to get `len` bytes from `offset` of a region into place `at` of a buffer of this program; read them there
    /// only after [`Self::wait`].
    ///
    /// # Errors
    /// [`Error::Place`], [`Error::Stream`], [`Error::TimedOut`], [`Error::TooMany`].
    pub fn start_get(
        &mut self,
        from: &RemoteRegion,
        offset: u64,
        len: u64,
        to: &Arc<SharedBytes>,
        at: u64,
    ) -> Result<Op, Error> {
        to.check(at, len)?;
        self.make_room()?;
        self.send(&Command::Get { place: from.place(offset), len }, &[])?;
        Ok(self.exchange.ledger.get(len, Target::Buffer(Arc::clone(to), at)))
    }

    /// Adds `value` to the aligned word at `offset` of a region, wrapping; returns the word's value before.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn fetch_add(&mut self, at: &RemoteRegion, offset: u64, value: u64) -> Result<u64, Error> {
        let op = self.start_fetch_add(at, offset, value)?;
        self.wait(op)
    }

    /// As [`Self::fetch_add`]; [`Self::wait`] returns the result.
    ///
    /// # Errors
    /// [`Error::Stream`], [`Error::TooMany`].
    pub fn start_fetch_add(&mut self, at: &RemoteRegion, offset: u64, value: u64) -> Result<Op, Error> {
        self.make_room()?;
        self.send(&Command::FetchAdd { place: at.place(offset), value }, &[])?;
        Ok(self.exchange.ledger.value())
    }

    /// Stores `new` into the aligned word at `offset` of a region if it contains `expected`; returns the word's value before.
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

    /// As [`Self::compare_swap`]; [`Self::wait`] returns the result.
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
        self.send(&Command::CompareSwap { place: at.place(offset), expected, new }, &[])?;
        Ok(self.exchange.ledger.value())
    }

    /// Sends a number to the owner's program ([`crate::memory::Notices`]), after all earlier operations except gets are
    /// executed. Any key of the region is sufficient.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn notify(&mut self, region: &RemoteRegion, value: u64) -> Result<Op, Error> {
        self.make_room()?;
        self.send(&Command::Notify { place: region.place(0), value }, &[])?;
        Ok(self.exchange.ledger.unsignaled())
    }

    /// Puts, and notifies when the put is executed. If the put is refused, the notification is sent nevertheless.
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

    /// Operations posted after this are executed after all earlier ones, including gets.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn fence(&mut self) -> Result<(), Error> {
        self.send(&Command::Fence, &[])?;
        let _ = self.exchange.ledger.unsignaled();
        Ok(())
    }

    /// Waits until an operation is executed; returns the word's value before for an atomic operation, else 0.
    ///
    /// # Errors
    /// [`Error::Denied`] if the owner refused; [`Error::Stream`]; [`Error::TimedOut`]: the result is then discarded. To
    /// wait for it again use [`Self::wait_within`].
    pub fn wait(&mut self, op: Op) -> Result<u64, Error> {
        self.wait_or_abandon(&op, &mut [])
    }

    /// As [`Self::wait`], but for `limit` at most, with or without progress. `Ok(None)`: not executed yet; wait again. A
    /// result is returned once.
    ///
    /// # Errors
    /// [`Error::Denied`] if the owner refused; [`Error::Stream`].
    pub fn wait_within(&mut self, op: &Op, limit: Duration) -> Result<Option<u64>, Error> {
        self.wait_by(op, &mut [], &mut Patience::within(limit))
    }

    /// Whether an operation is executed, so that [`Self::wait`] would return at once.
    ///
    /// # Errors
    /// [`Error::Stream`].
    pub fn is_done(&mut self, op: &Op) -> Result<bool, Error> {
        if !self.exchange.ledger.is_done(op) {
            self.exchange.move_on(&mut [])?;
        }
        Ok(self.exchange.ledger.is_done(op))
    }

    /// Waits until all posted operations are executed.
    ///
    /// # Errors
    /// [`Error::Denied`] with the first refusal of a put, a get or a notification whose result was not waited for;
    /// [`Error::Stream`]; [`Error::TimedOut`]: flush again.
    pub fn flush(&mut self) -> Result<(), Error> {
        let mut patience = Patience::still(self.timeout);
        if self.flush_by(&mut patience)? { Ok(()) } else { Err(self.timed_out()) }
    }

    /// As [`Self::flush`], but for `limit` at most, with or without progress. `Ok(false)`: not all operations are executed yet.
    ///
    /// # Errors
    /// As [`Self::flush`].
    pub fn flush_within(&mut self, limit: Duration) -> Result<bool, Error> {
        self.flush_by(&mut Patience::within(limit))
    }

    fn flush_by(&mut self, patience: &mut Patience) -> Result<bool, Error> {
        while !self.exchange.ledger.is_idle() {
            if !self.exchange.advance(&mut [], patience)? {
                return Ok(false);
            }
        }
        self.exchange.ledger.finish()?;
        Ok(true)
    }

    /// The owner's address.
    pub fn address(&self) -> SocketAddr {
        self.exchange.owner()
    }

    fn wait_or_abandon(&mut self, op: &Op, buffer: &mut [u8]) -> Result<u64, Error> {
        let mut patience = Patience::still(self.timeout);
        if let Some(value) = self.wait_by(op, buffer, &mut patience)? {
            return Ok(value);
        }
        self.exchange.abandon(op);
        Err(self.timed_out())
    }

    fn wait_by(&mut self, op: &Op, buffer: &mut [u8], patience: &mut Patience) -> Result<Option<u64>, Error> {
        while !self.exchange.ledger.is_done(op) {
            if !self.exchange.advance(buffer, patience)? {
                return Ok(None);
            }
        }
        Ok(Some(self.exchange.ledger.take(op)?))
    }

    fn make_room(&mut self) -> Result<(), Error> {
        if !self.exchange.ledger.has_room() {
            self.exchange.move_on(&mut [])?;
        }
        if self.exchange.ledger.has_room() { Ok(()) } else { Err(Error::TooMany) }
    }

    /// Posts a command and enters it in the ledger.
    fn send(&mut self, command: &Command, data: &[u8]) -> Result<(), Error> {
        let mut patience = Patience::still(self.timeout);
        if self.exchange.send(command, data, &mut patience)? { Ok(()) } else { Err(self.timed_out()) }
    }

    fn timed_out(&self) -> Error {
        Error::TimedOut { owner: self.address(), after: self.timeout.unwrap_or_default() }
    }
}

/// Connects a stream to a far end and checks its handshake, by which it says that it serves memory.
fn greeted(fabric: Fabric, address: SocketAddr, patience: &mut Patience) -> Result<Stream, Error> {
    let stream = fabric.connect_by(address, patience)?;
    stream.send_by(&HANDSHAKE, patience)?;
    let mut handshake = [0; HANDSHAKE.len()];
    match stream.receive_all_by(&mut handshake, patience) {
        Ok(()) if handshake == HANDSHAKE => Ok(stream),
        Ok(()) | Err(stream::Error::Closed) => Err(Error::NotMemory),
        Err(error) => Err(error.into()),
    }
}

/// The bytes, if they fit into the command itself.
fn short(bytes: &[u8]) -> Option<[u8; SHORT]> {
    let mut short = [0; SHORT];
    short.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(short)
}

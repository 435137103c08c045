//! The state of one end (endpoint) of a stream: a sealed memfd that all processes share that hold the end. The program
//! creates it; its daemon keeps the descriptor and gives it to processes that adopt the end.
//!
//! ```text
//!   program   State      mapped, survives fork; all processes that hold the end write it
//!   program   State        mapped, survives fork; all processes that hold the end write it
//!   daemon    StateView    a descriptor: read for display, mapped for a moment where the order of loads counts
//!   engine    EngineState  mapped while the engine works on the end's rings
//! ```
//! Every process that holds the end may write anything there at any time: a reader checks each value before it uses it as an
//! index, a length or an address.

mod modes;

pub use modes::{Chooser, Chosen, Modes, ModesSnapshot};

use crate::MapError;
use crate::mem::{Mapping, check_memory, new_segment};
use crate::ring::{Consumer, Cursor, Producer};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crosslane_wire::record::Kind;
use rustix::mm::ProtFlags;
use std::os::fd::{AsFd, OwnedFd};

/// Bytes of the state of one end: one page.
pub const LEN: u64 = 4096;

/// Counters of an end, at the start of its state. The program writes them; its daemon displays them and uses them for nothing
/// else.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Counters {
    /// Payload sent by the stream, bytes.
    pub tx_bytes: AtomicU64,
    /// Payload received by the stream, bytes.
    pub rx_bytes: AtomicU64,
    /// Wakes of far waiters that this end sent.
    pub wakes: AtomicU64,
    /// Times that a thread slept for this end.
    pub sleeps: AtomicU64,
    /// Descriptors of all processes that refer to the end; 0: the last one is closed.
    pub refs: AtomicU32,
}

/// Stream offsets of the bytes that the far end may still lack. The sender writes them.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Kept {
    /// Stream offset up to which the sender had sent in earlier rings: it sends no new bytes before it has sent all bytes
    /// up to this offset again in the present ring.
    pub owed: AtomicU64,
    /// The retention ring holds the payload from this stream offset on,
    pub from: AtomicU64,
    /// up to this one.
    pub to: AtomicU64,
    /// Present length of the retention ring, bytes, a power of two: stream offset `u` lies at byte `u % cap`.
    pub cap: AtomicU64,
    /// Not 0: the retention ring was full and the far end acknowledged nothing for a while; the next sender may double it.
    pub grow_requested: AtomicU32,
    /// Kind of the record that ended the direction, if it was sent; else 0.
    pub turn: AtomicU32,
}

/// How far a program had sent when it gave up its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Number of the ring that it used last.
    pub generation: u32,
    /// Stream offset behind the last byte that it sent.
    pub units: u64,
    /// Whether a part of these bytes must be sent again in the present ring.
    pub owes: bool,
    /// Stream offsets from and up to which the retention ring holds the payload.
    pub kept: (u64, u64),
    /// Length of the retention ring, bytes.
    pub cap: u64,
    /// The kind of the record that ended the direction, if it was sent.
    pub turn: Option<Kind>,
}

/// The start of the state page: the part that the daemon may read.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Front {
    /// Counters, for display.
    pub counters: Counters,
    /// The state of sending.
    pub producer: Producer,
    /// The state of receiving.
    pub consumer: Consumer,
    /// Stream offsets of the bytes that the far end may still lack.
    pub kept: Kept,
    /// How the sent bytes were moved.
    pub sent: Modes,
    /// How the received bytes were moved.
    pub received: Modes,
    /// How bytes are to be sent from now on, a `crosslane_stream::Transfer`.
    pub transfer: AtomicU32,
    /// Who chose `transfer`, a [`Chooser`].
    pub transfer_by: AtomicU32,
    /// Not 0: the daemon's engine is to copy.
    pub offload: AtomicU32,
    /// Who chose `offload`, a [`Chooser`].
    pub offload_by: AtomicU32,
}

/// The counters of an end at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Payload sent by the stream, bytes.
    pub tx_bytes: u64,
    /// Payload received by the stream, bytes.
    pub rx_bytes: u64,
    /// Wakes of waiters.
    pub wakes: u64,
    /// Times that a thread slept for this end.
    pub sleeps: u64,
}

impl Counters {
    /// Drops one reference; returns whether it was the last one.
    pub fn release(&self) -> bool {
        let less = |refs| u32::checked_sub(refs, 1);
        self.refs.fetch_update(Ordering::AcqRel, Ordering::Acquire, less) == Ok(1)
    }
}

/// The state of an end that this process holds; unmapped when dropped.
#[derive(Debug)]
pub struct State(Mapping);

impl State {
    /// Makes the state of a new end, with one reference; only the daemon may get the descriptor.
    pub fn create() -> Result<(Self, OwnedFd), MapError> {
        let fd = new_segment("crosslane-state", LEN)?;
        let state = Self(Mapping::new(&fd, LEN)?);
        state.front().counters.refs.store(1, Ordering::Relaxed);
        Ok((state, fd))
    }

    /// Maps the state of an end that another process created, after checking its length and seals.
    pub fn open(fd: impl AsFd) -> Result<Self, MapError> {
        check_memory(&fd, LEN)?;
        Ok(Self(Mapping::new(fd, LEN)?))
    }

    /// Start of the state: [`LEN`] bytes, aligned to a page, mapped as long as `self`.
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.0.base()
    }

    fn front(&self) -> &Front {
        front(&self.0)
    }
}

/// The state of an end, mapped by its daemon to work on the rings. The program may write anything there at any time.
#[derive(Debug)]
pub struct EngineState(Mapping);

impl EngineState {
    /// The state of the end's rings. Use it only through [`Producer::checked`] and [`Consumer::checked`].
    pub fn rings(&self) -> (&Producer, &Consumer) {
        let front = front(&self.0);
        (&front.producer, &front.consumer)
    }
}

/// A daemon's descriptor, of type `F`, of the state of an end. The daemon maps it only for moments, since it has thousands of ends
/// and a process may have few mappings.
#[derive(Debug)]
pub struct StateView<F = OwnedFd>(F);

impl<F: AsFd> StateView<F> {
    /// Takes the descriptor that a program handed over, after checking its length and seals.
    pub fn new(fd: F) -> Result<Self, MapError> {
        check_memory(&fd, LEN)?;
        Ok(Self(fd))
    }

    /// The descriptor, for a process that adopts the end.
    pub fn memory(&self) -> &F {
        &self.0
    }

    /// Another view of a descriptor that was checked before.
    pub fn checked(fd: F) -> Self {
        Self(fd)
    }

    /// The descriptor, for the caller to keep.
    pub fn into_memory(self) -> F {
        self.0
    }

    /// Maps the state for the engine.
    pub fn engine_state(&self) -> Result<EngineState, MapError> {
        Mapping::new(&self.0, LEN).map(EngineState)
    }

    /// The counters; zeros if they cannot be read. The program may have written any value there.
    pub fn counters(&self) -> Snapshot {
        let Some(Front { counters, .. }) = self.copied() else { return Snapshot::default() };
        Snapshot {
            tx_bytes: counters.tx_bytes.into_inner(),
            rx_bytes: counters.rx_bytes.into_inner(),
            wakes: counters.wakes.into_inner(),
            sleeps: counters.sleeps.into_inner(),
        }
    }

    /// How the stream moved its bytes: sent, received; zeros if that cannot be read. The program may have written any value there.
    pub fn modes(&self) -> (ModesSnapshot, ModesSnapshot) {
        self.copied().map(|front| (front.sent.snapshot(), front.received.snapshot())).unwrap_or_default()
    }

    /// How the stream is to move its data, and who chose that.
    pub fn chosen(&self) -> Chosen {
        let Some(front) = self.copied() else { return Chosen::default() };
        Chosen {
            transfer: front.transfer.into_inner(),
            transfer_by: Chooser::from_number(front.transfer_by.into_inner()),
            offload: front.offload.into_inner() != 0,
            offload_by: Chooser::from_number(front.offload_by.into_inner()),
        }
    }

    /// The place at which the program reads next, and the number of that ring. A record that the program has taken in part counts
    /// as unread. Check the place by [`Cursor::checked`], since the program may have written anything there. `None` if no ring was
    /// begun, if the place changed during each attempt, or if the program ended in the middle of a change.
    ///
    /// The program may consume another record meanwhile and give credit for it, and the far side may overwrite it. So after the
    /// caller has counted what lies in the ring, it calls this again, and counts again if the place has changed.
    pub fn receiver(&self) -> Option<(u32, Cursor)> {
        let mapping = self.mapped()?;
        front(&mapping).consumer.glance().map(|cursor| (cursor.generation(), cursor))
    }

    /// How far the program has sent, unchecked: the program may have written any value there. `None` if the memory cannot be read.
    pub fn sent(&self) -> Option<Sent> {
        let mapping = self.mapped()?;
        let front = front(&mapping);
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let turn = u8::try_from(front.kept.turn.load(Ordering::Relaxed)).ok();
        let (pushed, owed) = (front.producer.units(), word(&front.kept.owed));
        Some(Sent {
            generation: front.producer.generation(),
            units: pushed.max(owed),
            owes: pushed < owed,
            kept: (word(&front.kept.from), word(&front.kept.to)),
            cap: word(&front.kept.cap),
            turn: turn.and_then(|kind| Kind::from_u8(kind).ok()),
        })
    }

    /// Maps the state for loads. `read` would not do: one word says whether another is valid, so the order of loads matters.
    fn mapped(&self) -> Option<Mapping> {
        Mapping::with(&self.0, LEN, ProtFlags::READ).ok()
    }

    /// A copy of the state, for display: its words may be from different moments.
    fn copied(&self) -> Option<Front> {
        let mut bytes = [0; size_of::<Front>()];
        let read = rustix::io::pread(&self.0, &mut bytes, 0);
        // SAFETY: all bit patterns are valid words, and a `Front` consists of words only.
        (read == Ok(bytes.len())).then(|| unsafe { bytes.as_ptr().cast::<Front>().read_unaligned() })
    }
}

fn front(mapping: &Mapping) -> &Front {
    let at = mapping.at(0, size_of::<Front>());
    // SAFETY: in range of the mapping and aligned to a page; all bit patterns are valid; all fields are atomics.
    unsafe { &*at.cast::<Front>() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Outbound, Store};
    use rustix::fs::SealFlags;

    #[test]
    fn state_shows_the_daemon_counters_and_choices() {
        let (state, fd) = State::create().unwrap();
        let view = StateView::new(fd).unwrap();
        let front = state.front();
        front.counters.tx_bytes.store(42, Ordering::Relaxed);
        front.sent.records.store(5, Ordering::Relaxed);
        front.transfer.store(2, Ordering::Relaxed);
        front.transfer_by.store(Chooser::Rule as u32, Ordering::Relaxed);
        assert_eq!(view.counters().tx_bytes, 42);
        assert_eq!(view.modes().0.records, 5);
        assert_eq!((view.chosen().transfer, view.chosen().transfer_by), (2, Chooser::Rule));
    }

    #[test]
    fn state_shows_the_daemon_how_far_was_read_and_sent() {
        let (state, fd) = State::create().unwrap();
        let view = StateView::new(fd).unwrap();
        let (consumer, producer) = (&state.front().consumer, &state.front().producer);
        assert!(view.receiver().is_none(), "no ring was ever begun");
        let nothing = Sent { generation: 0, units: 0, owes: false, kept: (0, 0), cap: 0, turn: None };
        assert_eq!(view.sent(), Some(nothing));
        consumer.resume(7, 1 << 16, 1 << 20, 99, 1234);
        let (generation, cursor) = view.receiver().unwrap();
        assert_eq!((generation, cursor.units(), cursor.position()), (7, 1234, 0));
        assert!(cursor.checked(1 << 20, 99).is_some());
        consumer.resume(8, 3, 1 << 20, 99, 0);
        assert!(view.receiver().unwrap().1.checked(1 << 20, 99).is_none());
        producer.resume(3, 4096, 4096, 7, 99);
        assert_eq!(view.sent().map(|sent| (sent.generation, sent.units)), Some((3, 99)));
    }

    #[test]
    fn state_reports_its_last_reference_once() {
        let (state, _fd) = State::create().unwrap();
        let counters = &state.front().counters;
        counters.refs.fetch_add(1, Ordering::Relaxed);
        assert!(!counters.release() && counters.release());
        assert!(!counters.release(), "another process took a reference too many");
    }

    #[test]
    fn state_is_the_same_for_whoever_adopts_the_end() {
        let ((one, fd), (other, _)) = (State::create().unwrap(), State::create().unwrap());
        let adopted = State::open(StateView::new(fd).unwrap().into_memory()).unwrap();
        adopted.front().counters.rx_bytes.store(7, Ordering::Relaxed);
        let read = |state: &State| state.front().counters.rx_bytes.load(Ordering::Relaxed);
        assert_eq!((read(&one), read(&other)), (7, 0));
    }

    #[test]
    fn state_must_be_one_sealed_page() {
        use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};
        let memory = |len, seals| {
            let fd = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            ftruncate(&fd, len).unwrap();
            fcntl_add_seals(&fd, seals).unwrap();
            fd
        };
        let sealed = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        assert!(matches!(StateView::new(memory(LEN, SealFlags::GROW)), Err(MapError::NotSealed)));
        assert!(matches!(StateView::new(memory(2 * LEN, sealed)), Err(MapError::Length { .. })));
        assert!(StateView::new(std::fs::File::open("/dev/zero").unwrap()).is_err());
        let view = StateView::new(memory(LEN, sealed)).unwrap();
        let program = Outbound::sealed(&view.0, LEN).unwrap();
        program.write(0, &[0xff; 4096]);
        assert_eq!(view.counters().tx_bytes, u64::MAX);
        assert!(view.receiver().is_none_or(|(_, cursor)| cursor.checked(1 << 20, 1).is_none()));
        assert!(view.sent().is_some() && view.engine_state().is_ok());
    }
}

//! Memory that the processes of one program share among themselves (it survives `fork`), and of which the daemon
//! reads the counters. It is a sealed memfd of equal slots, one for each end of a stream.

mod modes;

pub use modes::{Chooser, Chosen, Modes, ModesSnapshot};

use crate::MapError;
use crate::ring::{Consumer, Cursor, Producer};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crosslane_wire::record::Kind;
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

/// Slots of an arena; slot 0 is never given out.
pub const SLOTS: u32 = 32768;
/// References of a slot that nobody refers to and that is not free yet.
pub const ENDING: u32 = 1 << 31;
/// Bytes of one slot.
pub const SLOT: usize = 1280;
/// Bytes of an arena. Sparse: only slots that were used take memory.
pub const LEN: u64 = SLOTS as u64 * SLOT as u64;

/// What an end of a stream has moved, at the start of its slot. Written by the program, read by its daemon, which
/// believes it for display only.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Counters {
    /// Payload sent by the stream, bytes.
    pub tx_bytes: AtomicU64,
    /// Payload received by the stream, bytes.
    pub rx_bytes: AtomicU64,
    /// Bells rung.
    pub bells: AtomicU64,
    /// Times that a thread slept for this end.
    pub sleeps: AtomicU64,
    /// References by descriptors of all processes; 0 = the slot is free, [`ENDING`] = the last one is gone, but threads
    /// may still be at work on it.
    pub refs: AtomicU32,
}

/// What the far end may still lack, units of the stream. Written by the sender.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Kept {
    /// Units that were sent by earlier rings, or wait to be sent: nothing new is sent before all of them were sent in the
    /// present one.
    pub owed: AtomicU64,
    /// Units of which the retention ring holds the payload: from here,
    pub from: AtomicU64,
    /// up to here.
    pub to: AtomicU64,
    /// Bytes of the retention ring in use, a power of two: unit `u` lies at `u % cap`.
    pub cap: AtomicU64,
    /// Not 0: the retention ring is full, nobody took anything for a while, and it may become longer.
    pub pressed: AtomicU32,
    /// The kind of the last record of the direction, if it was sent; else 0.
    pub turn: AtomicU32,
}

/// What a program had sent when it left its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Which of the stream's rings it sent by last.
    pub generation: u32,
    /// Units of the stream.
    pub units: u64,
    /// Whether some of them wait to be sent again.
    pub owes: bool,
    /// The units of which the retention ring holds the payload.
    pub kept: (u64, u64),
    /// Bytes of the retention ring in use.
    pub cap: u64,
    /// The kind of the last record of the direction, if it was sent.
    pub turn: Option<Kind>,
}

/// The start of each slot: what the daemon may read.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Front {
    /// What was moved.
    pub counters: Counters,
    /// The state of sending.
    pub producer: Producer,
    /// The state of receiving.
    pub consumer: Consumer,
    /// What was sent and may be lacking.
    pub kept: Kept,
    /// How it was sent.
    pub sent: Modes,
    /// How it was received.
    pub received: Modes,
    /// How it is to be sent from now on, a `crosslane_stream::Transfer`.
    pub transfer: AtomicU32,
    /// Who chose that, a [`Chooser`].
    pub transfer_by: AtomicU32,
    /// Not 0: the daemon's engine is to copy.
    pub offload: AtomicU32,
    /// Who chose that, a [`Chooser`].
    pub offload_by: AtomicU32,
}

/// The counters of one slot at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Payload sent by the stream, bytes.
    pub tx_bytes: u64,
    /// Payload received by the stream, bytes.
    pub rx_bytes: u64,
    /// Bells rung.
    pub bells: u64,
    /// Times that a thread slept for this end.
    pub sleeps: u64,
}

/// An arena that this process uses, mapped for as long as the process lives (a stream may be in use by any thread
/// until the end).
#[derive(Debug)]
pub struct Arena {
    base: NonNull<u8>,
    next: AtomicU32,
}

// SAFETY: the mapping is never removed and only reached through atomics.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Front {
    fn blank(&self) {
        let counters = &self.counters;
        let kept = &self.kept;
        let words = [&counters.tx_bytes, &counters.rx_bytes, &kept.owed, &kept.from, &kept.to, &kept.cap];
        words.into_iter().for_each(|word| word.store(0, Ordering::Relaxed));
        kept.turn.store(0, Ordering::Relaxed);
        kept.pressed.store(0, Ordering::Relaxed);
        self.sent.reset();
        self.received.reset();
        for word in [&self.transfer, &self.transfer_by, &self.offload, &self.offload_by] {
            word.store(0, Ordering::Relaxed);
        }
        self.producer.reset(0, 0, 0);
        self.consumer.blank();
    }
}

impl Counters {
    /// One reference less; whether it was the last one: then the slot is [`ENDING`] until it is freed.
    pub fn release(&self) -> bool {
        let less = |refs| if refs == 1 { ENDING } else { u32::saturating_sub(refs, 1) };
        self.refs.fetch_update(Ordering::AcqRel, Ordering::Acquire, |refs| Some(less(refs))) == Ok(1)
    }

    /// Nobody is at work on the slot any more: if nobody refers to it either, it may be given out again.
    pub fn free_if_ending(&self) {
        let _ = self.refs.compare_exchange(ENDING, 0, Ordering::Release, Ordering::Relaxed);
    }
}

impl Arena {
    /// Makes an arena; the descriptor is for the daemon, and for nobody else.
    pub fn create() -> Result<(Self, OwnedFd), MapError> {
        let fd = crate::mem::new_slice("crosslane-arena", LEN)?;
        let base = map(&fd, ProtFlags::READ | ProtFlags::WRITE)?;
        Ok((Self { base, next: AtomicU32::new(1) }, fd))
    }

    /// Maps an arena that another process of this program made, after checking its length and seals.
    pub fn open(fd: impl AsFd) -> Result<Self, MapError> {
        check(&fd)?;
        let base = map(&fd, ProtFlags::READ | ProtFlags::WRITE)?;
        Ok(Self { base, next: AtomicU32::new(1) })
    }

    /// Takes a free slot and gives it one reference; `None` if all are in use. Nothing in it tells of an earlier stream to
    /// the daemon, which may look before the new one has begun.
    pub fn allot(&self) -> Option<u32> {
        for _ in 0..SLOTS {
            let slot = self.next.fetch_add(1, Ordering::Relaxed) % SLOTS;
            let refs = &self.counters(slot).refs;
            if slot != 0 && refs.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                self.front(slot).blank();
                return Some(slot);
            }
        }
        None
    }

    fn front(&self, slot: u32) -> &Front {
        // SAFETY: `at` is in range and aligned to 64; all-zero bytes are a valid front; all fields are atomics.
        unsafe { &*self.at(slot).cast::<Front>() }
    }

    /// The counters of a slot.
    #[inline]
    pub fn counters(&self, slot: u32) -> &Counters {
        // SAFETY: `at` is in range and aligned to 64; all-zero bytes are valid counters; all fields are atomics.
        unsafe { &*self.at(slot).cast::<Counters>() }
    }

    /// Start of a slot. Panics if there is no such slot.
    pub fn at(&self, slot: u32) -> *mut u8 {
        assert!(slot < SLOTS, "no such slot");
        // SAFETY: in range of the mapping, as just checked.
        unsafe { self.base.as_ptr().add(slot as usize * SLOT) }
    }
}

/// A program's arena where its daemon works on rings for it. The program may write anything there at any time.
#[derive(Debug)]
pub struct ArenaDesk {
    base: NonNull<u8>,
}

// SAFETY: memory reached through atomics only; unmapped only by drop.
unsafe impl Send for ArenaDesk {}
// SAFETY: as above.
unsafe impl Sync for ArenaDesk {}

impl ArenaDesk {
    /// Maps an arena that a program handed over, after checking its length and seals.
    pub fn map(fd: impl AsFd) -> Result<Self, MapError> {
        check(&fd)?;
        Ok(Self { base: map(&fd, ProtFlags::READ | ProtFlags::WRITE)? })
    }

    /// The state of an end's rings: to be taken by [`Producer::checked`] and [`Consumer::checked`] only. `None` if there is
    /// no such slot.
    pub fn rings(&self, slot: u32) -> Option<(&Producer, &Consumer)> {
        if slot == 0 || slot >= SLOTS {
            return None;
        }
        // SAFETY: in range of the mapping, aligned; all fields are atomics.
        let front = unsafe { &*self.base.as_ptr().add(slot as usize * SLOT).cast::<Front>() };
        Some((&front.producer, &front.consumer))
    }
}

impl Drop for ArenaDesk {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nobody refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), len()) };
    }
}

/// A daemon's read-only view of a program's arena.
#[derive(Debug)]
pub struct ArenaView {
    base: NonNull<u8>,
}

// SAFETY: read-only memory reached through atomics; unmapped only by drop.
unsafe impl Send for ArenaView {}

impl ArenaView {
    /// Maps an arena that a program handed over, after checking its length and seals.
    pub fn map(fd: impl AsFd) -> Result<Self, MapError> {
        check(&fd)?;
        Ok(Self { base: map(&fd, ProtFlags::READ)? })
    }

    /// Reads the counters of a slot; zeros if there is no such slot. The program may have written anything there.
    pub fn counters(&self, slot: u32) -> Snapshot {
        let Some(Front { counters, .. }) = self.front(slot) else { return Snapshot::default() };
        Snapshot {
            tx_bytes: counters.tx_bytes.load(Ordering::Relaxed),
            rx_bytes: counters.rx_bytes.load(Ordering::Relaxed),
            bells: counters.bells.load(Ordering::Relaxed),
            sleeps: counters.sleeps.load(Ordering::Relaxed),
        }
    }

    /// How the stream of a slot moved its bytes: sent, received; zeros if there is no such slot. The program may have
    /// written anything there.
    pub fn modes(&self, slot: u32) -> (ModesSnapshot, ModesSnapshot) {
        self.front(slot).map(|front| (front.sent.snapshot(), front.received.snapshot())).unwrap_or_default()
    }

    /// What was chosen for the stream of a slot.
    pub fn chosen(&self, slot: u32) -> Chosen {
        let Some(front) = self.front(slot) else { return Chosen::default() };
        let word = |word: &AtomicU32| word.load(Ordering::Relaxed);
        let by = |by: &AtomicU32| Chooser::from_number(word(by));
        Chosen {
            transfer: word(&front.transfer),
            transfer_by: by(&front.transfer_by),
            offload: word(&front.offload) != 0,
            offload_by: by(&front.offload_by),
        }
    }

    /// Where the program reads next, at one moment: the number of the ring and the place in it.
    /// Of a record that was taken in part, nothing counts as read. The program may have written anything there: see
    /// [`Cursor::checked`]. `None` if there is no such slot, or the place changes all the time, or the program ended in
    /// the middle of a change.
    ///
    /// A program that is about to consume one more record may give its room back meanwhile. So whoever counts what lies in
    /// the ring looks here again afterwards, and counts again if the place has changed.
    pub fn receiver(&self, slot: u32) -> Option<(u32, Cursor)> {
        self.front(slot)?.consumer.glance().map(|cursor| (cursor.generation(), cursor))
    }

    /// What the program has sent. It may have written anything there.
    pub fn sent(&self, slot: u32) -> Option<Sent> {
        let front = self.front(slot)?;
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

    fn front(&self, slot: u32) -> Option<&Front> {
        // SAFETY: in range of the mapping, aligned; all fields are atomics, which are only loaded.
        (slot < SLOTS).then(|| unsafe { &*self.base.as_ptr().add(slot as usize * SLOT).cast::<Front>() })
    }
}

impl Drop for ArenaView {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nobody refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), len()) };
    }
}

fn len() -> usize {
    SLOTS as usize * SLOT
}

fn check(fd: impl AsFd) -> Result<(), MapError> {
    crate::mem::check_memory(fd, LEN).map(drop)
}

fn map(fd: impl AsFd, prot: ProtFlags) -> Result<NonNull<u8>, MapError> {
    // SAFETY: a fresh shared mapping at an address of the kernel's choice aliases nothing of ours.
    let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len(), prot, MapFlags::SHARED, fd, 0)? };
    NonNull::new(base.cast()).ok_or(MapError::System(rustix::io::Errno::NOMEM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemon_sees_what_the_program_counts() {
        let (arena, fd) = Arena::create().unwrap();
        let view = ArenaView::map(&fd).unwrap();
        let slot = arena.allot().unwrap();
        arena.counters(slot).tx_bytes.store(42, Ordering::Relaxed);
        assert_eq!(view.counters(slot).tx_bytes, 42);
        assert_eq!(view.counters(u32::MAX), Snapshot::default());
    }

    #[test]
    fn the_daemon_sees_where_the_program_reads() {
        let (arena, fd) = Arena::create().unwrap();
        let view = ArenaView::map(&fd).unwrap();
        let slot = arena.allot().unwrap();
        // SAFETY: the slot's start, in range and aligned.
        let front = unsafe { &*arena.at(slot).cast::<Front>() };
        assert!(view.receiver(slot).is_none(), "no ring was ever begun");
        front.consumer.resume(7, 1 << 16, 1 << 20, 99, 1234);
        let (generation, cursor) = view.receiver(slot).unwrap();
        assert_eq!((generation, cursor.units(), cursor.position()), (7, 1234, 0));
        assert!(cursor.checked(1 << 20, 99).is_some());
        front.consumer.resume(8, 3, 1 << 20, 99, 0);
        assert!(view.receiver(slot).unwrap().1.checked(1 << 20, 99).is_none());
        assert!(view.receiver(SLOTS).is_none());
    }

    #[test]
    fn a_slot_that_is_given_out_again_tells_nothing_of_before() {
        let (arena, fd) = Arena::create().unwrap();
        let view = ArenaView::map(&fd).unwrap();
        let slot = arena.allot().unwrap();
        assert_eq!(view.receiver(slot).map(|(generation, _)| generation), None);
        arena.front(slot).consumer.resume(3, 4096, 4096, 7, 99);
        arena.front(slot).producer.resume(3, 4096, 4096, 7, 99);
        arena.front(slot).sent.records.store(5, Ordering::Relaxed);
        arena.front(slot).transfer.store(2, Ordering::Relaxed);
        arena.front(slot).transfer_by.store(Chooser::Rule as u32, Ordering::Relaxed);
        assert_eq!(view.modes(slot).0.records, 5);
        assert_eq!((view.chosen(slot).transfer, view.chosen(slot).transfer_by), (2, Chooser::Rule));
        assert_eq!(
            view.receiver(slot).map(|(generation, cursor)| (generation, cursor.units())),
            Some((3, 99))
        );
        arena.counters(slot).refs.store(0, Ordering::Relaxed);
        while arena.allot().unwrap() != slot {}
        assert!(view.receiver(slot).is_none());
        let nothing = Sent { generation: 0, units: 0, owes: false, kept: (0, 0), cap: 0, turn: None };
        assert_eq!(view.sent(slot), Some(nothing));
        assert_eq!((view.modes(slot), view.chosen(slot)), Default::default());
    }

    #[test]
    fn a_slot_is_not_given_out_while_threads_are_at_work_on_it() {
        let (arena, _fd) = Arena::create().unwrap();
        let slot = arena.allot().unwrap();
        let counters = arena.counters(slot);
        counters.refs.fetch_add(1, Ordering::Relaxed);
        assert!(!counters.release());
        counters.free_if_ending();
        assert!(counters.release());
        assert!((1..SLOTS).all(|_| arena.allot() != Some(slot)));
        assert_eq!(arena.allot(), None);
        counters.free_if_ending();
        assert_eq!(arena.allot(), Some(slot));
    }

    #[test]
    fn a_slot_is_given_out_once() {
        let (arena, _fd) = Arena::create().unwrap();
        let (a, b) = (arena.allot().unwrap(), arena.allot().unwrap());
        assert_ne!(a, b);
        assert_ne!(a, 0);
    }
}

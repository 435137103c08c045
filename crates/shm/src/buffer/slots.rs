//! The table of buffers, and their addresses.

use super::landing::{Landing, Lines};
use super::{Kind, Located, SLOTS, keeper};
use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize};
use crosslane_wire::buffer::memory_len;
use crosslane_wire::{BufferId, Reach};
use rustix::fd::{BorrowedFd, OwnedFd, RawFd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

/// Address space of one slot, bytes.
pub(super) const SPAN: usize = 1 << 30;
/// How often [`Slot::seize`] looks at a slot that another thread has seized before it gives up.
const LOOKS_MAX: u32 = 100_000;

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum State {
    /// Nothing.
    Free,
    /// Nothing yet: a thread is making a buffer here.
    Claimed,
    /// A buffer in use.
    Live,
    /// A buffer that a thread is about to free or to freeze.
    Busy,
    /// A freed buffer that was never exported.
    Cached,
    /// A buffer that became private memory at a `fork`.
    Frozen,
    /// Unusable: its addresses may be mapped by others.
    Lost,
}

const STATES: [State; 7] =
    [State::Free, State::Claimed, State::Live, State::Busy, State::Cached, State::Frozen, State::Lost];

/// Place of one buffer.
#[derive(Debug)]
pub(super) struct Slot {
    state: AtomicU32,
    kind: AtomicU32,
    shared: AtomicBool,
    uses: AtomicU32,
    fd: AtomicI32,
    len: AtomicUsize,
    id: AtomicU64,
    pub(super) lines: Lines,
}

pub(super) static ALL: [Slot; SLOTS] = [const { Slot::new() }; SLOTS];
/// First address of slot 0; 0 before the addresses are reserved.
static BASE: AtomicUsize = AtomicUsize::new(0);
/// Index of the slot at which the search for a free one begins.
static NEXT: AtomicUsize = AtomicUsize::new(0);
static FIRST_ID: AtomicU64 = AtomicU64::new(0);
static LAST_ID: AtomicU64 = AtomicU64::new(0);

/// The slot to whose addresses `at` belongs.
#[inline]
pub(super) fn of(at: *const u8) -> Option<&'static Slot> {
    let base = BASE.load(Acquire);
    let distance = at.addr().wrapping_sub(base);
    if base == 0 { None } else { ALL.get(distance / SPAN) }
}

/// Seizes a slot that is in this state and for which the predicate holds.
pub(super) fn claim(from: State, pleases: impl Fn(&Slot) -> bool) -> Option<&'static Slot> {
    let start = NEXT.load(Relaxed) % SLOTS;
    let (behind, before) = (&ALL[start..], &ALL[..start]);
    let (at, slot) = behind
        .iter()
        .chain(before)
        .enumerate()
        .find(|(_, slot)| slot.state() == from && pleases(slot) && slot.change(from, State::Claimed))?;
    if from == State::Free {
        NEXT.store(start + at + 1, Relaxed);
    }
    Some(slot)
}

impl Slot {
    const fn new() -> Self {
        Self {
            state: AtomicU32::new(State::Free as u32),
            kind: AtomicU32::new(0),
            shared: AtomicBool::new(false),
            uses: AtomicU32::new(0),
            fd: AtomicI32::new(-1),
            len: AtomicUsize::new(0),
            id: AtomicU64::new(0),
            lines: Lines::new(),
        }
    }

    #[inline]
    pub(super) fn state(&self) -> State {
        STATES.get(self.state.load(Acquire) as usize).copied().unwrap_or(State::Lost)
    }

    pub(super) fn set(&self, state: State) {
        self.state.store(state as u32, Release);
    }

    pub(super) fn change(&self, from: State, to: State) -> bool {
        self.state.compare_exchange(from as u32, to as u32, AcqRel, Relaxed).is_ok()
    }

    /// Seizes a live buffer in order to free it; returns the state that it had, `None` if the slot has no live buffer.
    pub(super) fn seize(&self) -> Option<State> {
        for _ in 0..LOOKS_MAX {
            for from in [State::Live, State::Frozen] {
                if self.change(from, State::Busy) {
                    return Some(from);
                }
            }
            if self.state() != State::Busy {
                return None;
            }
            std::thread::yield_now();
        }
        None
    }

    #[inline]
    fn index(&self) -> usize {
        (core::ptr::from_ref(self).addr() - ALL.as_ptr().addr()) / size_of::<Self>()
    }

    fn address(&self) -> usize {
        BASE.load(Acquire) + self.index() * SPAN
    }

    fn place(&self) -> *mut c_void {
        core::ptr::with_exposed_provenance_mut(self.address())
    }

    pub(super) fn at(&self) -> Option<NonNull<u8>> {
        NonNull::new(self.place().cast())
    }

    #[inline]
    pub(super) fn begins_at(&self, at: *const u8) -> bool {
        at.addr() == self.address()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    pub(super) fn id(&self) -> BufferId {
        BufferId(self.id.load(Relaxed))
    }

    pub(super) fn kind(&self) -> Kind {
        match self.kind.load(Relaxed) {
            0 => Kind::Malloc,
            1 => Kind::Own,
            _ => Kind::Open,
        }
    }

    pub(super) fn is_shared(&self) -> bool {
        self.shared.load(Relaxed)
    }

    pub(super) fn mark_shared(&self) {
        self.shared.store(true, Relaxed);
    }

    /// Whether the slot's live buffer has this id.
    pub(super) fn is(&self, id: BufferId) -> bool {
        self.state() == State::Live && self.id() == id
    }

    pub(super) fn descriptor(&self) -> Option<RawFd> {
        Some(self.fd.load(Relaxed)).filter(|fd| *fd >= 0)
    }

    pub(super) fn take_descriptor(&self) -> Option<RawFd> {
        Some(self.fd.swap(-1, Relaxed)).filter(|fd| *fd >= 0)
    }

    #[inline]
    pub(super) fn locate(&'static self, at: *const u8, len: usize) -> Option<Located> {
        if self.state() != State::Live {
            return None;
        }
        let (offset, whole) = (at.addr() % SPAN, self.len());
        if offset > whole || len > whole - offset {
            return None;
        }
        // Two threads that do this at once may count as one.
        let uses = self.uses.load(Relaxed);
        self.uses.store(uses.wrapping_add(1), Relaxed);
        let reach = self.kind().reach();
        Some(Located { id: self.id(), offset: offset as u64, len: whole as u64, reach, uses, slot: self })
    }

    /// Makes a buffer in a claimed slot.
    pub(super) fn fill(&self, len: u64, kind: Kind) -> Result<NonNull<u8>, Errno> {
        reserve()?;
        let fd = memfd_create("crosslane-buffer", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&fd, memory_len(len))?;
        let len = usize::try_from(len).map_err(|_| Errno::INVAL)?;
        self.len.store(len, Relaxed);
        self.map(MapFlags::SHARED, &fd)?;
        if let Err(errno) = fcntl_add_seals(&fd, seals(kind.reach())) {
            self.vacate();
            return Err(errno);
        }
        self.kind.store(kind as u32, Relaxed);
        self.fd.store((keeper().hide)(fd), Relaxed);
        self.id.store(new_id(), Relaxed);
        self.shared.store(false, Relaxed);
        self.lines.clear();
        self.renew();
        self.at().ok_or(Errno::NOMEM)
    }

    /// Marks the buffer as not used yet. It keeps its id, which was never exported.
    pub(super) fn renew(&self) {
        self.uses.store(0, Relaxed);
    }

    fn mapped_len(&self) -> usize {
        usize::try_from(memory_len(self.len() as u64)).unwrap_or(SPAN)
    }

    fn map(&self, flags: MapFlags, fd: &OwnedFd) -> Result<(), Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let (at, len) = (self.place(), self.mapped_len());
        // SAFETY: these addresses are reserved for this slot, and hold nothing.
        unsafe { rustix::mm::mmap(at, len, protection, flags | MapFlags::FIXED, fd, 0) }?;
        Ok(())
    }

    /// Replaces the shared mapping by a private one in one system call; no process writes to the memfd from then on.
    pub(super) fn make_private(&self) -> Result<(), Errno> {
        let fd = self.descriptor().ok_or(Errno::BADF)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let (at, len) = (self.place(), self.mapped_len());
        // SAFETY: the descriptor is open as long as this thread has the buffer seized; the new mapping shows the same
        // bytes as the old one, including all earlier stores.
        unsafe {
            let fd = BorrowedFd::borrow_raw(fd);
            rustix::mm::mmap(at, len, protection, MapFlags::PRIVATE | MapFlags::FIXED, fd, 0)?;
        }
        Ok(())
    }

    /// Replaces the shared mapping by private memory with a copy of its bytes.
    pub(super) fn copy_out(&self) -> Result<(), Errno> {
        let (at, len) = (self.place(), self.mapped_len());
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: fresh memory of the same length is filled and then moved over the old mapping in one system call.
        unsafe {
            let copy = rustix::mm::mmap_anonymous(core::ptr::null_mut(), len, protection, MapFlags::PRIVATE)?;
            core::ptr::copy_nonoverlapping(at.cast::<u8>().cast_const(), copy.cast(), len);
            rustix::mm::mremap_fixed(copy, len, len, rustix::mm::MremapFlags::empty(), at)?;
        }
        Ok(())
    }

    /// Takes a completion line behind this slot's buffer.
    ///
    /// # Safety
    /// The buffer is not freed while the line is held.
    pub(super) unsafe fn landing(&'static self) -> Option<Landing<'static>> {
        // SAFETY: the page behind the buffer's bytes belongs to its memory.
        unsafe { Landing::take(&self.lines, self.address() + self.len()) }
    }

    /// Stores the owner's word behind the buffer.
    pub(super) fn mark(&self, word: u32) {
        let at = core::ptr::with_exposed_provenance_mut::<u32>(self.address() + self.len());
        // SAFETY: mapped and aligned: the page behind the buffer's bytes belongs to its memory.
        unsafe { AtomicU32::from_ptr(at) }.store(word, Release);
    }

    /// Unmaps what lies at the slot's addresses, and keeps them reserved.
    pub(super) fn vacate(&self) {
        let at = self.place();
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the slot's own addresses, which no thread uses any more.
        let outcome = unsafe { rustix::mm::mmap_anonymous(at, self.mapped_len(), ProtFlags::empty(), flags) };
        debug_assert!(outcome.is_ok(), "addresses were reserved before");
    }

    /// Unmaps the slot's addresses.
    pub(super) fn unmap(&self) {
        let at = self.place();
        // SAFETY: the slot's own addresses, which no thread uses any more.
        let _ = unsafe { rustix::mm::munmap(at, self.mapped_len()) };
    }
}

fn seals(reach: Reach) -> SealFlags {
    let resizing = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    if reach == Reach::Load { resizing | SealFlags::FUTURE_WRITE } else { resizing }
}

/// Whether the addresses are reserved.
pub(super) fn in_use() -> bool {
    BASE.load(Acquire) != 0
}

/// Reserves the addresses of all slots, once.
fn reserve() -> Result<(), Errno> {
    if in_use() {
        return Ok(());
    }
    let len = (SLOTS + 1) * SPAN;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: fresh addresses that the kernel chose, without access.
    let at = unsafe { rustix::mm::mmap_anonymous(core::ptr::null_mut(), len, ProtFlags::empty(), flags) }?;
    let base = at.expose_provenance().next_multiple_of(SPAN);
    FIRST_ID.store(random(), Relaxed);
    if BASE.compare_exchange(0, base, AcqRel, Acquire).is_err() {
        // SAFETY: another thread was first; no thread has seen these addresses.
        let _ = unsafe { rustix::mm::munmap(at, len) };
    }
    Ok(())
}

/// An id that no other buffer of this host has: forked processes count on from one random start, each with its pid in it.
fn new_id() -> u64 {
    let pid = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
    let count = LAST_ID.fetch_add(1, Relaxed) + 1;
    let id = FIRST_ID.load(Relaxed).wrapping_add(u64::from(pid) << 32).wrapping_add(count);
    if id == 0 { new_id() } else { id }
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    let filled = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::NONBLOCK);
    if filled == Ok(8) { u64::from_ne_bytes(bytes) } else { 0 }
}

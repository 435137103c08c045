//! Memory of this program that programs at the far ends of its streams may map. Each *buffer* is a sealed memfd of its
//! own, so a program that maps one buffer maps no other memory.
//!
//! ```text
//!   addresses reserved once:  | slot 0, 1 GB | slot 1 | ... | slot 255 |
//!                             ^ a buffer begins where its slot does: a shift finds the slot of a pointer
//!
//!   FREE --alloc--> CLAIMED --> LIVE --free--> BUSY --> FREE         if it was exported: its memory is never used again
//!                                |  ^            +----> CACHED       if it was never exported: it may be used again
//!                                |  +---alloc-------------+
//!                                +--fork--> FROZEN: private to parent and child, not exported any more
//! ```
//! All state is in a static table of atomics: this module takes no lock and allocates nothing, so `malloc` may be built
//! on it, and signal handlers may read the state. A program that frees a buffer in use harms only itself.
//!
//! **Loads only** ([`Reach::Load`]): this program sets the seal `F_SEAL_FUTURE_WRITE` once it has mapped its buffer. From
//! then on the kernel allows no other mapping for stores, to any user and by any call (reopened descriptors, `mprotect`,
//! `write`, holes). So only the owner's process writes to the buffer.

mod fork;
mod landing;
mod owned;
mod slots;

pub use fork::{after_fork_in_child, after_fork_in_parent, before_fork, make_private};
pub use landing::Landing;
pub use owned::{Buffer, OpenBuffer};

use core::ptr::NonNull;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};
use crosslane_wire::buffer::{GONE, LEN_MAX, len_ok};
use crosslane_wire::segment::PAGE;
use crosslane_wire::{BufferId, Reach};
use rustix::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use slots::{Slot, State};

/// Most buffers of one process at a time.
pub const SLOTS: usize = 256;
/// Most bytes of freed, never exported buffers that are kept for reuse, all together.
const CACHE: u64 = 32 << 20;
/// Each of these counts as at least this many bytes: so there are never more than sixteen.
const CACHE_LEAST: u64 = CACHE / 16;
/// Most freed buffers of which the daemon has not been notified yet; beyond that far ends unmap a buffer when its circuit ends.
const NEWS: usize = 64;

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Memory from the program's `malloc`; far programs may load. A forked child gets a copy, as of all private memory.
    Malloc,
    /// The program asked for the buffer by name; far programs may load. A forked child shares the memory.
    Own,
    /// As [`Self::Own`], but far programs may store at any time: bytes that this program reads there may change meanwhile.
    Open,
}

impl Kind {
    fn reach(self) -> Reach {
        if self == Self::Open { Reach::Store } else { Reach::Load }
    }
}

/// A new allocation.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// Start of the memory, aligned to 1 GB.
    pub at: NonNull<u8>,
    /// Length, bytes, whole pages.
    pub len: usize,
    /// Whether all bytes are zero.
    pub zeroed: bool,
}

/// A place in a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Located {
    /// The buffer.
    pub id: BufferId,
    /// Offset in the buffer, bytes.
    pub offset: u64,
    /// Length of the buffer, bytes.
    pub len: u64,
    /// What far programs may do there.
    pub reach: Reach,
    /// How often this buffer was looked up before: a buffer that is used repeatedly is worth exporting.
    pub uses: u32,
    slot: &'static Slot,
}

/// How the library keeps its descriptors separate from the program's.
#[derive(Debug)]
pub struct Keeper {
    /// Takes over a descriptor and returns the number that it has from then on.
    pub hide: fn(OwnedFd) -> RawFd,
    /// Closes a descriptor that `hide` took over.
    pub close: fn(RawFd),
    /// Whether this thread may make system calls and close descriptors now: not in a sandbox, nor in a child of `vfork`.
    pub may_call: fn() -> bool,
}

static PLAIN: Keeper = Keeper {
    hide: OwnedFd::into_raw_fd,
    // SAFETY: the descriptor that `hide` returned; called once for each.
    close: |fd| drop(unsafe { OwnedFd::from_raw_fd(fd) }),
    may_call: || true,
};
static KEEPER: AtomicPtr<Keeper> = AtomicPtr::new(core::ptr::null_mut());
static CACHED: AtomicU64 = AtomicU64::new(0);
/// Open descriptors of buffers of [`Kind::Malloc`].
static HELD: AtomicU32 = AtomicU32::new(0);
static GIVEN_BACK: [AtomicU64; NEWS] = [const { AtomicU64::new(0) }; NEWS];

/// Sets how descriptors are kept; to be called before the first buffer is made.
pub fn keep_by(keeper: &'static Keeper) {
    KEEPER.store(core::ptr::from_ref(keeper).cast_mut(), Release);
}

fn keeper() -> &'static Keeper {
    // SAFETY: null, or set from a `&'static` reference, through which no thread writes.
    unsafe { KEEPER.load(Acquire).as_ref() }.unwrap_or(&PLAIN)
}

/// Memory of at least `len` bytes for a buffer.
///
/// # Errors
/// `INVAL` for a length of 0 or more than [`LEN_MAX`]; `MFILE` if there are too many buffers; `AGAIN` during a `fork`;
/// the kernel's errno if it is older than 5.1, or has no memory or no addresses left.
pub fn alloc(len: u64, kind: Kind) -> Result<Block, Errno> {
    let len = len.checked_next_multiple_of(PAGE).filter(|len| len_ok(*len)).ok_or(Errno::INVAL)?;
    if !(keeper().may_call)() {
        return Err(Errno::PERM);
    }
    let _gate = fork::Gate::enter()?;
    if kind == Kind::Malloc {
        if let Some(block) = again(len) {
            return Ok(block);
        }
        if HELD.load(Relaxed) >= most_held() {
            return Err(Errno::MFILE);
        }
    }
    let slot = slots::claim(State::Free, |_| true).ok_or(Errno::MFILE)?;
    match slot.fill(len, kind) {
        Ok(at) => {
            HELD.fetch_add(u32::from(kind == Kind::Malloc), Relaxed);
            slot.set(State::Live);
            Ok(Block { at, len: slot.len(), zeroed: true })
        }
        Err(errno) => {
            slot.set(State::Free);
            Err(errno)
        }
    }
}

/// Frees a buffer; `false` if no buffer begins at `at`. Programs that have it mapped keep the old memory, which is not used again.
pub fn free(at: *const u8) -> bool {
    let Some(slot) = slots::of(at).filter(|slot| slot.begins_at(at)) else { return false };
    let was = match slot.seize() {
        Some(was) => was,
        // The slot stays busy: this is a signal handler that interrupted the thread which had seized the slot.
        None => return slot.state() == State::Busy,
    };
    if !(keeper().may_call)() {
        slot.unmap();
        slot.set(State::Lost);
        return true;
    }
    let ours_alone = was == State::Live && slot.kind() == Kind::Malloc && !slot.is_shared();
    if ours_alone && make_room(weight_of(slot)) {
        slot.set(State::Cached);
    } else {
        give_back(slot, was);
    }
    true
}

/// Makes room for `weight` bytes in the cache, by dropping other buffers if necessary; `false` if there is none.
fn make_room(weight: u64) -> bool {
    while CACHED.fetch_add(weight, SeqCst) + weight > CACHE {
        CACHED.fetch_sub(weight, SeqCst);
        match slots::claim(State::Cached, |_| weight <= CACHE) {
            Some(other) => drop_cached(other),
            None => return false,
        }
    }
    true
}

/// Frees the memory of a buffer that was taken out of the cache.
fn drop_cached(slot: &'static Slot) {
    CACHED.fetch_sub(weight_of(slot), SeqCst);
    give_back(slot, State::Cached);
}

/// Bytes that a freed buffer counts for in the cache.
fn weight_of(slot: &Slot) -> u64 {
    (slot.len() as u64).max(CACHE_LEAST)
}

/// Length, bytes, of the buffer that begins at `at`, if one does.
#[inline]
pub fn len_at(at: *const u8) -> Option<usize> {
    let slot = slots::of(at).filter(|slot| slot.begins_at(at))?;
    matches!(slot.state(), State::Live | State::Frozen | State::Busy).then(|| slot.len())
}

/// The buffer that holds `len` bytes at `at`, if it may be exported.
#[inline]
pub fn locate(at: *const u8, len: usize) -> Option<Located> {
    slots::of(at)?.locate(at, len)
}

/// The buffer that holds these bytes, if it may be exported.
#[inline]
pub fn locate_bytes(bytes: &[u8]) -> Option<Located> {
    locate(bytes.as_ptr(), bytes.len())
}

/// Takes the next freed buffer of which the daemon has to be notified.
pub fn next_given_back() -> Option<BufferId> {
    let words = GIVEN_BACK.iter().filter(|word| word.load(Relaxed) != 0);
    words.map(|word| word.swap(0, Relaxed)).find(|id| *id != 0).map(BufferId)
}

/// Whether there is a freed buffer of which the daemon has to be notified; the answer may be out of date at once.
pub fn is_any_given_back() -> bool {
    GIVEN_BACK.iter().any(|word| word.load(Relaxed) != 0)
}

/// Queues a freed buffer again, since the daemon could not be notified of it.
pub fn tell_later(buffer: BufferId) {
    let _ = GIVEN_BACK.iter().any(|word| word.compare_exchange(0, buffer.0, Relaxed, Relaxed).is_ok());
}

impl Located {
    /// A completion line behind the buffer, for an offer (SinkAvail) of this place; `None` if all lines are in use, or if
    /// far programs may not store into the buffer.
    ///
    /// # Safety
    /// The buffer is not freed while the line is held.
    pub unsafe fn landing<'a>(&self) -> Option<Landing<'a>> {
        // SAFETY: the caller's promise.
        if self.reach == Reach::Store { unsafe { self.slot.landing() } } else { None }
    }

    /// Calls `work` with the buffer's descriptor, which counts as exported from now on; `None` if the buffer is freed.
    pub fn share<T>(&self, work: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
        self.slot.mark_shared();
        let fd = self.slot.descriptor().filter(|_| self.slot.is(self.id))?;
        // SAFETY: the descriptor is open while the buffer lives, and the program uses the buffer now. Should it free the
        // buffer all the same, the receiver of the descriptor checks what it got.
        Some(work(unsafe { BorrowedFd::borrow_raw(fd) }))
    }
}

/// Takes a freed buffer out of the cache that is large enough, but not much larger.
fn again(len: u64) -> Option<Block> {
    let fits = |slot: &Slot| (len..=len + len / 4).contains(&(slot.len() as u64));
    let slot = slots::claim(State::Cached, fits)?;
    CACHED.fetch_sub(weight_of(slot), SeqCst);
    slot.renew();
    let block = Block { at: slot.at()?, len: slot.len(), zeroed: false };
    slot.set(State::Live);
    Some(block)
}

/// Unmaps the memory of a seized slot.
fn give_back(slot: &'static Slot, was: State) {
    announce_end(slot, was);
    slot.vacate();
    if was != State::Frozen {
        close(slot);
    }
    slot.set(State::Free);
}

/// Queues a freed buffer, so that the daemon and the far programs that have it mapped drop it.
fn announce_end(slot: &Slot, was: State) {
    if was == State::Live && slot.is_shared() {
        slot.mark(GONE);
        tell_later(slot.id());
    }
}

fn close(slot: &Slot) {
    if let Some(fd) = slot.take_descriptor() {
        (keeper().close)(fd);
        HELD.fetch_sub(u32::from(slot.kind() == Kind::Malloc), Relaxed);
    }
}

/// Most buffers of [`Kind::Malloc`]: an eighth of this process's descriptor limit.
fn most_held() -> u32 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(u32::MAX, |limit| u32::try_from(limit / 8).unwrap_or(u32::MAX))
}

const _: () = assert!(crosslane_wire::buffer::memory_len(LEN_MAX) <= slots::SPAN as u64);

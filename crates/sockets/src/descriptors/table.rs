//! What we know of each descriptor of this process, and safe access to the ends of streams behind them.
//!
//! ```text
//!   descriptor --FDS--> entry (kind, index, generation) --ENDS--> place (users, fds, End)
//! ```
//! A thread that works on an end counts itself as a user of its place; the end is dropped, and its memory unmapped,
//! by the last user after the last descriptor of this process was closed.

mod array;

use array::Table;
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use crosslane_client::End;
use std::sync::OnceLock;

/// Descriptors beyond this number are the kernel's alone.
pub const MAX_FDS: usize = 1 << 20;
/// Ends that one process may hold.
const MAX_ENDS: usize = 1 << 16;

/// What a descriptor is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A stream; the index is a place in the table of ends.
    Stream = 1,
    /// A listening socket that the daemon knows of.
    Listener = 2,
    /// An epoll set that holds, or held, streams; the index is the set's.
    Epoll = 3,
    /// One of our own descriptors: the program must not see it.
    Own = 4,
    /// A socket that came by exec or was passed to us, and may be a stream: asked at its first use.
    Unknown = 5,
    /// A TCP socket that the program asked for as `AF_INET_SDP`; the index is the family it named.
    Sdp = 6,
    /// A TCP socket of which the program has said something by `SOL_CROSSLANE`, and that is nothing else to us.
    Chosen = 7,
    /// A listening socket of a program that may have it in a ring, or makes calls of its own: see [`crate::socket::own_calls`].
    Shy = 8,
}

/// A descriptor's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
    /// Where more is known.
    pub index: u32,
}

/// A place for an end, in use while this process has a descriptor of it.
struct Place {
    /// Threads at work on the end, plus one while it has descriptors.
    users: AtomicU32,
    /// Descriptors of this process; 0 = free or about to be.
    fds: AtomicU32,
    next: AtomicU32,
    /// One more than the descriptor of ours that stands in for the program's last one, which was closed during calls; 0
    /// if there is none.
    stand_in: AtomicI32,
    /// Users that were threads of the parent before `fork`, or interests of its epoll sets.
    foreign: AtomicU32,
    end: UnsafeCell<Option<End>>,
}

static FDS: Table<AtomicU64> = Table::new();
static ENDS: Table<Place> = Table::new();
/// What the program has said of its sockets by `SOL_CROSSLANE`, for those that have an entry; 0 is nothing.
static CHOICES: Table<AtomicU32> = Table::new();
static FREE: AtomicU64 = AtomicU64::new(0);
static FRESH: AtomicU32 = AtomicU32::new(1);
static GENERATION: AtomicU32 = AtomicU32::new(1);
/// One past the highest descriptor of the program's that was ever entered.
static HIGHEST: AtomicU32 = AtomicU32::new(0);
/// Whether a descriptor was ever entered that is, or may be, a stream.
static MET: AtomicBool = AtomicBool::new(false);

/// What the layers above do for the table.
pub struct Above {
    /// Finds out whether a descriptor that is [`Kind::Unknown`] is a stream, and enters it if so.
    pub adopt: fn(c_int),
    /// Called when the last call has ended on a stream that the program has no descriptor of; the argument is our
    /// stand-in, which is to be closed.
    pub left: fn(&Held, c_int),
}

static ABOVE: OnceLock<Above> = OnceLock::new();

/// Prepares the tables; before, every look-up finds nothing.
pub fn prepare(above: Above) {
    let _ = ABOVE.set(above);
    FDS.make(MAX_FDS);
    ENDS.make(MAX_ENDS);
    CHOICES.make(MAX_FDS);
}

/// What `fd` is, if it is anything to us.
#[inline]
pub fn look(fd: c_int) -> Option<Entry> {
    unpack(word(fd)?.load(Ordering::Acquire))
}

/// Enters `fd`; what it was before is returned and forgotten.
pub fn enter(fd: c_int, kind: Kind, index: u32) -> Option<Entry> {
    let generation = GENERATION.fetch_add(1, Ordering::Relaxed) & 0x00ff_ffff;
    let packed = u64::from(index) | u64::from(generation) << 32 | (kind as u64) << 56;
    if kind != Kind::Own {
        HIGHEST.fetch_max(u32::try_from(fd).unwrap_or(0) + 1, Ordering::Relaxed);
    }
    if matches!(kind, Kind::Stream | Kind::Unknown | Kind::Shy) {
        if kind == Kind::Stream {
            crate::kernel::fault::catch();
        }
        MET.store(true, Ordering::Relaxed);
    }
    unpack(word(fd)?.swap(packed, Ordering::AcqRel))
}

/// Whether there is, or was, a descriptor that is or may be a stream, or a listener that becomes ours when it is waited
/// for. Until then only the kernel looks at what programs wait for.
#[inline]
pub fn met_any() -> bool {
    MET.load(Ordering::Relaxed)
}

/// Forgets `fd`, and returns what it was. Only one of several threads gets it.
pub fn leave(fd: c_int) -> Option<Entry> {
    let left = unpack(word(fd)?.swap(0, Ordering::AcqRel));
    if left.is_some() && choice(fd) != 0 {
        set_choice(fd, 0);
    }
    left
}

/// What the program has said of `fd` by `SOL_CROSSLANE`; 0 is nothing.
pub fn choice(fd: c_int) -> u32 {
    let index = usize::try_from(fd).ok();
    index.and_then(|index| CHOICES.get(index, MAX_FDS)).map_or(0, |word| word.load(Ordering::Relaxed))
}

/// Keeps what the program has said of `fd`, until it is closed.
pub fn choose(fd: c_int, choice: u32) {
    if look(fd).is_none() {
        enter(fd, Kind::Chosen, 0);
    }
    set_choice(fd, choice);
}

fn set_choice(fd: c_int, choice: u32) {
    if let Some(word) = usize::try_from(fd).ok().and_then(|index| CHOICES.get(index, MAX_FDS)) {
        word.store(choice, Ordering::Relaxed);
    }
}

/// All descriptors of the program that are something to us.
pub fn entries() -> impl Iterator<Item = (c_int, Entry)> {
    let highest = c_int::try_from(HIGHEST.load(Ordering::Relaxed)).unwrap_or(0);
    (0..highest).filter_map(|fd| Some((fd, look(fd)?)))
}

/// One [`Held`] for each descriptor of a stream.
pub fn streams() -> Vec<Held> {
    entries()
        .filter(|(_, entry)| entry.kind == Kind::Stream)
        .filter_map(|(_, entry)| at(entry.index))
        .collect()
}

/// Gives a new end a place with one descriptor; `None` if this process holds too many.
pub fn place(end: End) -> Option<u32> {
    let index = take_free()?;
    let place = ENDS.get(index as usize, MAX_ENDS)?;
    // SAFETY: the place is free: nobody else reads or writes it until `users` is raised below.
    unsafe { *place.end.get() = Some(end) };
    place.fds.store(1, Ordering::Relaxed);
    place.foreign.store(0, Ordering::Relaxed);
    place.users.store(1, Ordering::Release);
    Some(index)
}

/// One more descriptor of this process refers to the end.
pub fn hold(held: &Held) {
    if held.place.fds.fetch_add(1, Ordering::AcqRel) == 0 {
        held.place.users.fetch_add(1, Ordering::Relaxed);
    }
}

/// Descriptors of this process that refer to the end.
pub fn descriptors(held: &Held) -> u32 {
    held.place.fds.load(Ordering::Relaxed)
}

/// One descriptor less; returns whether it was the last one of this process.
pub fn release(held: &Held) -> bool {
    if held.place.fds.fetch_sub(1, Ordering::AcqRel) != 1 {
        return false;
    }
    held.place.users.fetch_sub(1, Ordering::AcqRel);
    true
}

/// Whether a call of another thread uses `held`, whose last descriptor the calling thread closes.
pub fn is_in_call(held: &Held) -> bool {
    let foreign = held.place.foreign.load(Ordering::Relaxed);
    descriptors(held) == 1 && held.place.users.load(Ordering::Relaxed) > 2_u32.saturating_add(foreign)
}

/// Makes `fd`, a descriptor of ours, the stand-in for the program's last one, which was closed during calls. When the
/// last of these calls ends, [`Above::left`] closes it.
pub fn stand_in(held: &Held, fd: c_int) {
    held.place.stand_in.store(fd + 1, Ordering::Release);
    release(held);
}

/// In the child of `fork`: the parent's threads are in no call here, and their stand-ins go to `close`.
pub fn forked(close: impl Fn(c_int)) {
    let fresh = FRESH.load(Ordering::Relaxed);
    for place in (1..fresh).filter_map(|index| ENDS.get(index as usize, MAX_ENDS)) {
        let descriptor = u32::from(place.fds.load(Ordering::Relaxed) > 0);
        let others = place.users.load(Ordering::Relaxed).saturating_sub(descriptor);
        place.foreign.store(others, Ordering::Relaxed);
        let stand_in = place.stand_in.swap(0, Ordering::Relaxed);
        if stand_in > 0 {
            close(stand_in - 1);
        }
    }
}

/// The end at a place, kept while the returned value lives. `None` if there is none (any more).
#[inline]
pub fn at(index: u32) -> Option<Held> {
    let place = ENDS.get(index as usize, MAX_ENDS)?;
    let mut users = place.users.load(Ordering::Relaxed);
    loop {
        if users == 0 {
            return None;
        }
        match place.users.compare_exchange_weak(users, users + 1, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return Some(Held { place, index }),
            Err(seen) => users = seen,
        }
    }
}

/// The stream behind `fd`, kept while the returned value lives; `None` if it is no stream.
#[inline]
pub fn stream(fd: c_int) -> Option<Held> {
    let word = word(fd)?;
    let packed = word.load(Ordering::Acquire);
    if packed == 0 {
        return None;
    }
    stream_slowly(fd, word, packed)
}

#[inline]
fn stream_slowly(fd: c_int, word: &AtomicU64, packed: u64) -> Option<Held> {
    let entry = unpack(packed)?;
    match entry.kind {
        Kind::Stream => {}
        Kind::Unknown => {
            (ABOVE.get()?.adopt)(fd);
            return stream(fd).filter(|_| look(fd).is_some_and(|entry| entry.kind == Kind::Stream));
        }
        _ => return None,
    }
    let held = at(entry.index)?;
    (word.load(Ordering::Acquire) == packed).then_some(held)
}

/// An end in use by this thread.
pub struct Held {
    place: &'static Place,
    /// Its place.
    pub index: u32,
}

impl Held {
    /// The descriptor by which a call that began with `fd` asks the kernel: `fd`, or another one of the stream if that
    /// was closed meanwhile; `None` if there is none.
    pub fn fd(&self, fd: c_int) -> Option<c_int> {
        let is_its = |entry: Entry| {
            entry.kind == Kind::Own || entry == Entry { kind: Kind::Stream, index: self.index }
        };
        if look(fd).is_some_and(is_its) {
            return Some(fd);
        }
        match self.place.stand_in.load(Ordering::Acquire) {
            0 => entries()
                .find(|&(_, entry)| entry.kind == Kind::Stream && entry.index == self.index)
                .map(|(fd, _)| fd),
            stand_in => Some(stand_in - 1),
        }
    }

    /// The last user goes.
    #[cold]
    fn last(&self) {
        let stand_in = self.place.stand_in.swap(0, Ordering::AcqRel);
        if stand_in > 0 {
            self.place.users.store(1, Ordering::Release);
            let held = Self { place: self.place, index: self.index };
            if let Some(above) = ABOVE.get() {
                (above.left)(&held, stand_in - 1);
            }
            return;
        }
        // SAFETY: there is no other user, and `at` gives out no more once `users` is 0.
        drop(unsafe { (*self.place.end.get()).take() });
        give_free(self.index);
    }
}

impl core::ops::Deref for Held {
    type Target = End;

    #[inline]
    fn deref(&self) -> &End {
        // SAFETY: `users` counts us, so the end is there and nobody changes the cell.
        let end = unsafe { &*self.place.end.get() };
        match end {
            Some(end) => end,
            None => unreachable!("a place in use has an end"),
        }
    }
}

impl Clone for Held {
    fn clone(&self) -> Self {
        self.place.users.fetch_add(1, Ordering::Relaxed);
        Self { place: self.place, index: self.index }
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        if self.place.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.last();
        }
    }
}

// SAFETY: `end` is only changed when nobody uses the place (see `place` and `Held::drop`); `End` is Sync.
unsafe impl Sync for Place {}

fn word(fd: c_int) -> Option<&'static AtomicU64> {
    FDS.get(usize::try_from(fd).ok()?, MAX_FDS)
}

fn unpack(packed: u64) -> Option<Entry> {
    let [i0, i1, i2, i3, .., kind] = packed.to_le_bytes();
    let kind = match kind {
        1 => Kind::Stream,
        2 => Kind::Listener,
        3 => Kind::Epoll,
        4 => Kind::Own,
        5 => Kind::Unknown,
        6 => Kind::Sdp,
        7 => Kind::Chosen,
        8 => Kind::Shy,
        _ => return None,
    };
    Some(Entry { kind, index: u32::from_le_bytes([i0, i1, i2, i3]) })
}

/// The head of the free list is an index and a counter that keeps two threads from taking one place.
fn take_free() -> Option<u32> {
    loop {
        let head = FREE.load(Ordering::Acquire);
        let index = u32::try_from(head & 0xffff_ffff).ok()?;
        if index == 0 {
            let fresh = FRESH.fetch_add(1, Ordering::Relaxed);
            return if (fresh as usize) < MAX_ENDS {
                Some(fresh)
            } else {
                FRESH.store(u32::try_from(MAX_ENDS).ok()?, Ordering::Relaxed);
                None
            };
        }
        let next = ENDS.get(index as usize, MAX_ENDS)?.next.load(Ordering::Relaxed);
        if FREE.compare_exchange(head, bump(head, next), Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return Some(index);
        }
    }
}

fn give_free(index: u32) {
    let Some(place) = ENDS.get(index as usize, MAX_ENDS) else { return };
    loop {
        let head = FREE.load(Ordering::Acquire);
        place.next.store(u32::try_from(head & 0xffff_ffff).unwrap_or(0), Ordering::Relaxed);
        if FREE.compare_exchange(head, bump(head, index), Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}

fn bump(head: u64, index: u32) -> u64 {
    ((head >> 32).wrapping_add(1) << 32) | u64::from(index)
}

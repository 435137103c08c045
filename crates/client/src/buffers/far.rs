//! Buffers of far programs that this process has mapped, shared by all its ends.

use crate::BufferError;
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crosslane_shm::FarBuffer;
use crosslane_shm::lock::{Guard, Locked, Reentered};
use crosslane_wire::BufferId;
use std::sync::Arc;

/// Most buffers that are kept mapped.
const KEPT_MAX: usize = 64;
/// Most address space that they take, bytes.
const MOST_BYTES: u64 = 1 << 30;

static LAST_USER: AtomicU64 = AtomicU64::new(0);
static KEPT: Locked<Vec<Kept>> = Locked::new(Vec::new());

thread_local! {
    /// The buffer that this thread used last, while the thread does not use it: found again without a lookup. It stays
    /// mapped until the thread uses another one, drops the end, or ends.
    static LAST: Cell<Option<Kept>> = const { Cell::new(None) };
}

/// Identifies an end, for as long as this process holds it. When dropped, the end's buffers are unmapped.
#[derive(Debug)]
pub struct User(u64);

#[derive(Debug)]
struct Kept {
    user: u64,
    id: BufferId,
    buffer: Arc<FarBuffer>,
}

impl From<Reentered> for BufferError {
    fn from(_: Reentered) -> Self {
        Self::Later
    }
}

impl User {
    /// A new identity for an end.
    #[expect(clippy::new_without_default, reason = "no two are alike")]
    pub fn new() -> Self {
        Self(LAST_USER.fetch_add(1, Relaxed) + 1)
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = LAST.try_with(|last| last.set(last.take().filter(|kept| kept.user != self.0)));
        // Buffers that cannot be dropped now, since a signal handler interrupted the lock's holder, are dropped when
        // others need the room.
        let tid = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let gone = KEPT.with(tid, |kept| kept.extract_if(.., |kept| kept.user == self.0).collect::<Vec<_>>());
        drop(gone);
    }
}

/// The buffer that this thread used last, if it has this id and its owner has not freed it; [`leave`] puts it back.
pub fn last(user: &User, id: BufferId) -> Option<Arc<FarBuffer>> {
    let kept = LAST.try_with(Cell::take).ok().flatten()?;
    (kept.user == user.0 && kept.id == id && !kept.buffer.is_gone()).then_some(kept.buffer)
}

/// The thread does not use the buffer any more, but may use it again soon.
pub fn leave(user: &User, id: BufferId, buffer: Arc<FarBuffer>) {
    let _ = LAST.try_with(|last| last.set(Some(Kept { user: user.0, id, buffer })));
}

/// A buffer that this end has mapped before; drops buffers that their owners have freed.
///
/// # Errors
/// The caller is a signal handler that interrupted the holder of the lock.
pub fn known(tid: u32, user: &User, id: BufferId) -> Result<Option<Arc<FarBuffer>>, BufferError> {
    let (found, gone) = KEPT.with(tid, |kept| {
        let gone: Vec<Kept> = kept.extract_if(.., |kept| kept.buffer.is_gone()).collect();
        let place = kept.iter().position(|kept| kept.user == user.0 && kept.id == id);
        let found = place.map(|place| {
            // The buffers used last are at the end, and are kept longest.
            let used = kept.remove(place);
            let buffer = used.buffer.clone();
            kept.push(used);
            buffer
        });
        (found, gone)
    })?;
    drop(gone);
    Ok(found)
}

/// Keeps a buffer, if necessary in place of those that were not used for longest.
///
/// # Errors
/// The caller is a signal handler that interrupted the holder of the lock.
pub fn keep(tid: u32, user: &User, id: BufferId, buffer: FarBuffer) -> Result<Arc<FarBuffer>, BufferError> {
    let buffer = Arc::new(buffer);
    let gone = KEPT.with(tid, |kept| {
        kept.push(Kept { user: user.0, id, buffer: buffer.clone() });
        let mut gone = Vec::new();
        while kept.len() > KEPT_MAX || (kept.len() > 1 && bytes(kept) > MOST_BYTES) {
            gone.push(kept.remove(0));
        }
        gone
    })?;
    drop(gone);
    Ok(buffer)
}

/// How many buffers are kept, and their address space, bytes.
pub fn usage(tid: u32) -> Option<(usize, u64)> {
    KEPT.with(tid, |kept| (kept.len(), bytes(kept))).ok()
}

fn bytes(kept: &[Kept]) -> u64 {
    kept.iter().map(|kept| kept.buffer.len()).sum()
}

/// Before `fork`: takes the lock, so that no thread is in the middle of a change. In the child [`after_fork`] follows.
pub fn before_fork(tid: u32) -> Option<Guard<'static>> {
    KEPT.hold(tid).ok()
}

/// In the child of `fork`, which has the same mappings.
pub fn after_fork() {
    KEPT.reset();
}

//! Buffers for `libcrosslane_malloc.so`, and how this process keeps their descriptors.

use crate::daemon::process;
use crate::descriptors::internal_fds;
use crate::kernel::program;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use crosslane_shm::buffer::{self, Keeper, Kind};

static KEEPER: Keeper = Keeper {
    hide: internal_fds::hide,
    close: internal_fds::close,
    may_call: || !CONFINED.load(Relaxed) && program::is_owner(),
};

static STARTED: AtomicBool = AtomicBool::new(false);
/// A system call filter is on: no buffer is made any more, and of one that is freed only the mapping goes.
static CONFINED: AtomicBool = AtomicBool::new(false);

/// At load: from now on there may be buffers.
pub fn start() {
    buffer::keep_by(&KEEPER);
    STARTED.store(true, Relaxed);
}

/// A system call filter comes on, which may forbid what only we do: what a later `fork` would need is done now.
pub fn confine() {
    CONFINED.store(true, Relaxed);
    buffer::make_private();
}

/// Memory for a large `malloc`: its start, and whether it holds zeros.
pub fn alloc(size: usize) -> Option<(*mut u8, bool)> {
    if !STARTED.load(Relaxed) {
        return None;
    }
    let block = buffer::alloc(size as u64, Kind::Malloc).ok()?;
    Some((block.at.as_ptr(), block.zeroed))
}

/// Frees it; `false` if it is none.
pub fn free(at: *mut u8) -> bool {
    let freed = buffer::free(at);
    if freed && buffer::is_any_given_back() {
        process::tell_given_back();
    }
    freed
}

//! Buffers for `libcrosslane_malloc.so`, and how this process keeps their descriptors.

use crate::{own, process};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use crosslane_shm::buffer::{self, Keeper, Kind};

static KEEPER: Keeper =
    Keeper { hide: own::hide, close: own::close, may_call: || !process::sandboxed() && process::is_owner() };

static STARTED: AtomicBool = AtomicBool::new(false);

/// At load: from now on there may be buffers.
pub fn start() {
    buffer::keep_by(&KEEPER);
    STARTED.store(true, Relaxed);
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

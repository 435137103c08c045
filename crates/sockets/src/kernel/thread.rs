//! This thread's number, without a system call.

use core::cell::Cell;

thread_local! {
    static TID: Cell<u32> = const { Cell::new(0) };
}

/// The kernel's number of this thread.
#[inline]
pub fn tid() -> u32 {
    match TID.try_with(Cell::get) {
        Ok(0) | Err(_) => look_up(),
        Ok(tid) => tid,
    }
}

/// After `fork` the one thread left has another number.
pub fn after_fork() {
    let _ = TID.try_with(|cell| cell.set(0));
}

#[cold]
fn look_up() -> u32 {
    let tid = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    let _ = TID.try_with(|cell| cell.set(tid));
    tid
}

//! The guard page, by which a process consents to the daemon's access to its memory, see [`crate::remote`].

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::sync::Mutex;

/// Bytes of the page.
const LEN: usize = 4096;

/// A guard page. While it is mapped the process consents.
#[derive(Debug)]
pub struct Guard(Mutex<Option<u64>>);

impl Guard {
    /// Maps it at `address`, with `nonce` at its start. A child of `fork` does not have it: it is another process.
    pub fn put(address: u64, nonce: u64) -> Result<Self, Errno> {
        let place = core::ptr::without_provenance_mut(usize::try_from(address).map_err(|_| Errno::INVAL)?);
        let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: a fresh mapping, which replaces nothing.
        let page =
            unsafe { rustix::mm::mmap_anonymous(place, LEN, ProtFlags::READ | ProtFlags::WRITE, flags)? };
        // Kernels before 4.17 take the address only as a hint.
        if page.addr() != place.addr() {
            // SAFETY: just mapped, and used by no other code.
            let _ = unsafe { rustix::mm::munmap(page, LEN) };
            return Err(Errno::EXIST);
        }
        let guard = Self(Mutex::new(Some(address)));
        // SAFETY: this guard's own page.
        if let Err(errno) = unsafe { rustix::mm::madvise(page, LEN, Advice::LinuxDontFork) } {
            guard.revoke();
            return Err(errno);
        }
        // SAFETY: this guard's own page, aligned; besides this only the kernel accesses it.
        unsafe { page.cast::<u64>().write_volatile(nonce) };
        Ok(guard)
    }

    /// Withdraws the consent: no copy begins after this has returned.
    pub fn revoke(&self) {
        let mut page = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(address) = page.take() {
            let place = core::ptr::without_provenance_mut(usize::try_from(address).unwrap_or(0));
            // SAFETY: this guard's own page, to which no reference exists.
            let _ = unsafe { rustix::mm::munmap(place, LEN) };
        }
    }
}

//! The daemon's status words, as a program reads them.

use crate::mem::inspect_memory;
use core::sync::atomic::AtomicU32;
use crosslane_wire::local::STATUS_WORDS;
use rustix::fd::OwnedFd;
use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags};

/// A status page, mapped for the life of the process.
#[derive(Clone, Copy, Debug)]
pub struct StatusPage(&'static [AtomicU32]);

impl StatusPage {
    /// Maps the page; `None` if it does not have the form of a daemon's page.
    pub fn map(fd: &OwnedFd) -> Option<Self> {
        let (_, len) = inspect_memory(fd, SealFlags::SHRINK).ok()?;
        let size = usize::try_from(len).ok()?;
        let words = (size / 4).min(STATUS_WORDS as usize);
        if words == 0 {
            return None;
        }
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe {
            rustix::mm::mmap(core::ptr::null_mut(), size, ProtFlags::READ, MapFlags::SHARED, fd, 0).ok()?
        };
        // SAFETY: mapped for the life of the process, aligned to a page; atomics may be shared.
        Some(Self(unsafe { core::slice::from_raw_parts(base.cast::<AtomicU32>(), words) }))
    }

    /// The word with this index.
    pub fn word(self, index: u32) -> Option<&'static AtomicU32> {
        self.0.get(index as usize)
    }
}

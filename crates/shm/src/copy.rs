//! Ways to move bytes between private and shared memory.

/// Copies private bytes into shared memory.
///
/// # Safety
/// `target` must be valid for stores of `source.len()` bytes and must not overlap `source`.
#[inline]
pub unsafe fn into_shared(target: *mut u8, source: &[u8]) {
    // SAFETY: the caller's promise. A racing reader sees a mixture, which the protocol never lets it believe.
    unsafe { core::ptr::copy_nonoverlapping(source.as_ptr(), target, source.len()) }
}

/// Copies shared bytes into private memory.
///
/// # Safety
/// `source` must be valid for loads of `target.len()` bytes and must not overlap `target`.
#[inline]
pub unsafe fn from_shared(target: &mut [u8], source: *const u8) {
    // SAFETY: the caller's promise. Bytes that a lying peer changes meanwhile are just other bytes.
    unsafe { core::ptr::copy_nonoverlapping(source, target.as_mut_ptr(), target.len()) }
}

/// Orders all earlier stores, write-combined and non-temporal ones too, before all later ones.
#[inline]
pub fn store_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
    core::sync::atomic::fence(core::sync::atomic::Ordering::Release);
}

//! Ways to move bytes between private and shared memory.

/// How a processor moves bytes into a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Strategy {
    /// `memcpy`: through the caches.
    #[default]
    Cached,
    /// Stores that bypass the caches and are combined into whole lines (SSE2 or AVX).
    NonTemporal,
    /// One `rep movsb`: the processor's microcode chooses.
    RepMovs,
}

impl Strategy {
    /// All strategies. A strategy that the processor lacks acts as `memcpy`.
    pub const ALL: [Self; 3] = [Self::Cached, Self::NonTemporal, Self::RepMovs];

    /// The strategy's name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cached => "cached",
            Self::NonTemporal => "non-temporal",
            Self::RepMovs => "rep movs",
        }
    }

    /// Whether this processor has the strategy; else it acts as `memcpy`.
    pub fn is_native(self) -> bool {
        self == Self::Cached || cfg!(all(target_arch = "x86_64", not(miri)))
    }
}

/// Copies `len` bytes from private into shared memory, in no particular order.
///
/// After [`Strategy::NonTemporal`] the bytes are ordered before a later index only by [`store_fence`], whatever
/// memory they went to: a release store is not enough.
///
/// # Safety
/// `source` must be valid for loads and `target` for stores of `len` bytes, and the two must not overlap.
#[inline]
pub unsafe fn copy(strategy: Strategy, target: *mut u8, source: *const u8, len: usize) {
    match strategy {
        // SAFETY: the caller's promise.
        Strategy::Cached => unsafe { core::ptr::copy_nonoverlapping(source, target, len) },
        // SAFETY: the caller's promise.
        Strategy::NonTemporal => unsafe { native::non_temporal(target, source, len) },
        // SAFETY: the caller's promise.
        Strategy::RepMovs => unsafe { native::rep_movs(target, source, len) },
    }
}

/// Copies private bytes into shared memory.
///
/// # Safety
/// `target` must be valid for stores of `source.len()` bytes and must not overlap `source`.
#[inline]
pub unsafe fn into_shared(target: *mut u8, source: &[u8]) {
    // SAFETY: the caller's promise. A reader that races sees a mixture of bytes, which the protocol never lets it use.
    unsafe { core::ptr::copy_nonoverlapping(source.as_ptr(), target, source.len()) }
}

/// Copies shared bytes into private memory.
///
/// # Safety
/// `source` must be valid for loads of `target.len()` bytes and must not overlap `target`.
#[inline]
pub unsafe fn from_shared(target: &mut [u8], source: *const u8) {
    // SAFETY: the caller's promise. If a lying peer changes bytes meanwhile, that is the same as sending other bytes.
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

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod native {
    use core::arch::x86_64::{
        __m128i, __m256i, _mm_loadu_si128, _mm_stream_si128, _mm256_loadu_si256, _mm256_stream_si256,
    };

    /// Streams whole 32-byte pieces; unaligned bytes at the ends go through the caches.
    ///
    /// # Safety
    /// As [`super::copy`].
    pub(super) unsafe fn non_temporal(target: *mut u8, source: *const u8, len: usize) {
        let head = target.align_offset(32).min(len);
        let body = (len - head) & !31;
        // SAFETY: head + body <= len, so that all three parts lie in the caller's ranges; the body's target is
        // aligned to 32 (or empty); AVX is used only where the processor has it.
        unsafe {
            core::ptr::copy_nonoverlapping(source, target, head);
            if std::arch::is_x86_feature_detected!("avx") {
                stream_avx(target.add(head), source.add(head), body);
            } else {
                stream_sse2(target.add(head), source.add(head), body);
            }
            let done = head + body;
            core::ptr::copy_nonoverlapping(source.add(done), target.add(done), len - done);
        }
    }

    /// # Safety
    /// The processor has AVX; `target` is aligned to 32 or `len` is 0; `len` is a multiple of 32; else as
    /// [`super::copy`].
    #[target_feature(enable = "avx")]
    unsafe fn stream_avx(target: *mut u8, source: *const u8, len: usize) {
        let mut done = 0;
        while done + 128 <= len {
            // SAFETY: 128 bytes are left in both ranges; the target is aligned.
            unsafe {
                let (from, to) = (source.add(done).cast::<__m256i>(), target.add(done).cast::<__m256i>());
                let pieces = [
                    _mm256_loadu_si256(from),
                    _mm256_loadu_si256(from.add(1)),
                    _mm256_loadu_si256(from.add(2)),
                    _mm256_loadu_si256(from.add(3)),
                ];
                for (index, piece) in pieces.into_iter().enumerate() {
                    _mm256_stream_si256(to.add(index), piece);
                }
            }
            done += 128;
        }
        while done < len {
            // SAFETY: 32 bytes are left in both ranges; the target is aligned.
            unsafe {
                let piece = _mm256_loadu_si256(source.add(done).cast());
                _mm256_stream_si256(target.add(done).cast(), piece);
            }
            done += 32;
        }
    }

    /// # Safety
    /// As [`stream_avx`], for a processor with SSE2, as every x86-64 is.
    pub(super) unsafe fn stream_sse2(target: *mut u8, source: *const u8, len: usize) {
        let mut done = 0;
        while done < len {
            // SAFETY: 16 bytes are left in both ranges; the target is aligned.
            unsafe {
                let piece: __m128i = _mm_loadu_si128(source.add(done).cast());
                _mm_stream_si128(target.add(done).cast(), piece);
            }
            done += 16;
        }
    }

    /// # Safety
    /// As [`super::copy`].
    pub(super) unsafe fn rep_movs(target: *mut u8, source: *const u8, len: usize) {
        // SAFETY: the caller's ranges; the direction flag is clear by the calling convention.
        unsafe {
            core::arch::asm!(
                "rep movsb",
                inout("rcx") len => _,
                inout("rdi") target => _,
                inout("rsi") source => _,
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod native {
    /// # Safety
    /// As [`super::copy`].
    pub(super) unsafe fn non_temporal(target: *mut u8, source: *const u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { core::ptr::copy_nonoverlapping(source, target, len) }
    }

    /// # Safety
    /// As [`super::copy`].
    pub(super) unsafe fn rep_movs(target: *mut u8, source: *const u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { core::ptr::copy_nonoverlapping(source, target, len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AREA: usize = 64;

    /// Copies `len` bytes between the given alignments and checks them and the bytes around them.
    fn check(by: impl Fn(*mut u8, *const u8, usize), to: usize, from: usize, len: usize) {
        let source: Vec<u8> = (0..from + len).map(|i| u8::try_from(i % 251).unwrap()).collect();
        let mut target = vec![0xee; AREA + to + len + AREA];
        by(target[AREA + to..][..len].as_mut_ptr(), source[from..].as_ptr(), len);
        store_fence();
        assert_eq!(&target[AREA + to..][..len], &source[from..], "to {to}, from {from}, {len} bytes");
        assert!(target[..AREA + to].iter().all(|&b| b == 0xee), "wrote before the target");
        assert!(target[AREA + to + len..].iter().all(|&b| b == 0xee), "wrote behind the target");
    }

    #[test]
    fn copy_strategies_equal_memcpy() {
        let (step, longest) = if cfg!(miri) { (7, 70) } else { (1, 300) };
        for strategy in Strategy::ALL {
            for to in (0..33).step_by(step) {
                for from in [0, 1, 7, 16, 31] {
                    for len in (0..longest).step_by(step).chain([4096, 4097]) {
                        // SAFETY: `check` gives ranges of its own vectors.
                        check(|t, s, n| unsafe { copy(strategy, t, s, n) }, to, from, len);
                    }
                }
            }
        }
    }

    #[test]
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn copy_works_without_avx() {
        for len in (0..512).step_by(32) {
            let by = |target: *mut u8, source, len| {
                if target.align_offset(16) == 0 {
                    // SAFETY: `check` gives ranges of its own vectors; the target is aligned to 16.
                    unsafe { native::stream_sse2(target, source, len) }
                } else {
                    // SAFETY: `check` gives ranges of its own vectors.
                    unsafe { core::ptr::copy_nonoverlapping(source, target, len) }
                }
            };
            (0..16).for_each(|to| check(by, to, 3, len));
        }
    }
}

//! Copies from and to a program's memory that may be unmapped.
//!
//! The instructions of [`copy`] lie at known addresses. If one of them faults, a handler of `SIGSEGV` and `SIGBUS` that calls
//! [`landing`] continues where the copy returns an error: as the kernel does with its own copies. A copy without a fault costs
//! nothing extra. Without such a handler, and on other processors than x86-64, a fault has the same effect as in `memcpy`.

use core::mem::MaybeUninit;
use thiserror::Error;

/// A page of the program's memory is not mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the buffer is not mapped")]
pub struct Fault;

/// Smallest page size, bytes.
const PAGE: usize = 4096;

/// Fails for an address at which nothing is ever mapped: a null pointer, or one slightly above it. This needs no signal,
/// which a thread may block.
///
/// # Errors
/// [`Fault`] for such an address.
#[inline(always)]
pub fn check(begin: *const u8) -> Result<(), Fault> {
    if begin.addr() < PAGE { Err(Fault) } else { Ok(()) }
}

/// Copies `len` bytes, in no particular order.
///
/// # Errors
/// [`Fault`] if a page was not mapped; some of the bytes may have been copied.
///
/// # Safety
/// One of `target` and `source` is valid for `len` bytes; the other is the program's memory, which may be unmapped, and
/// to which no Rust reference exists. The two do not overlap.
#[inline(always)]
pub unsafe fn copy(target: *mut u8, source: *const u8, len: usize) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    if unsafe { native::copy(target, source, len) } == 0 { Ok(()) } else { Err(Fault) }
}

/// Copies `source` to the start of `target`, the program's memory, which is at least as long.
///
/// # Errors
/// [`Fault`] if a page was not mapped; some of the bytes may have been copied.
pub fn fill(target: &mut [u8], source: &[u8]) -> Result<(), Fault> {
    check(target.as_ptr())?;
    let len = source.len().min(target.len());
    // SAFETY: `source` is valid for as many bytes, and does not overlap what is borrowed mutably.
    unsafe { copy(target.as_mut_ptr(), source.as_ptr(), len) }
}

/// Loads a `T` at `source` in the program's memory, aligned or not.
///
/// # Errors
/// [`Fault`] if it is not mapped.
///
/// # Safety
/// Any bytes must be a valid `T`.
#[inline]
pub unsafe fn load<T: Copy>(source: *const T) -> Result<T, Fault> {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: this function's own memory; it is filled if this returns, and any bytes are valid.
    unsafe {
        copy_one(value.as_mut_ptr(), source)?;
        Ok(value.assume_init())
    }
}

/// Stores `value` at `target` in the program's memory, aligned or not.
///
/// # Errors
/// [`Fault`] if it is not mapped, or may not be written.
///
/// # Safety
/// If it is mapped, the caller may write to it.
#[inline]
pub unsafe fn store<T: Copy>(target: *mut T, value: &T) -> Result<(), Fault> {
    // SAFETY: this function's own memory, and the caller's promise.
    unsafe { copy_one(target, core::ptr::from_ref(value)) }
}

/// Copies one `T`, a word or an event of epoll (a word and two), in the units that programs store and load.
///
/// # Safety
/// As [`copy`].
#[inline(always)]
unsafe fn copy_one<T>(target: *mut T, source: *const T) -> Result<(), Fault> {
    let (target, source) = (target.cast(), source.cast());
    // SAFETY: the caller's promise.
    let failed = unsafe {
        match size_of::<T>() {
            4 => native::copy_4(target, source),
            12 => native::copy_4_and_8(target, source),
            len => native::copy(target, source, len),
        }
    };
    if failed == 0 { Ok(()) } else { Err(Fault) }
}

/// Whether all `len` bytes at `source` can be loaded now.
pub fn is_there(source: *const u8, len: usize) -> bool {
    let Some(end) = source.addr().checked_add(len) else { return false };
    if len > 0 && check(source).is_err() {
        return false;
    }
    let mut at = source.addr();
    while at < end {
        // SAFETY: a byte is valid, whatever it is.
        if unsafe { load(source.with_addr(at)) }.is_err() {
            return false;
        }
        at = (at / PAGE + 1) * PAGE;
    }
    true
}

/// Where a thread continues that faulted at the instruction at `address`, if that is an instruction of a copy.
#[inline]
pub fn landing(address: usize) -> Option<usize> {
    native::range().contains(&address).then(native::landing)
}

/// Finds out how this processor copies best. Until then copies are slower.
pub fn prepare() {
    native::prepare();
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod native {
    use core::ops::Range;
    use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

    /// Bit of [`WAYS`]: the processor has AVX.
    const AVX: u8 = 1;
    /// Bit of [`WAYS`]: `rep movsb` is fast.
    const REP: u8 = 2;
    /// Number of bytes from which on `rep movsb` is used where it is fast.
    const REP_FROM: usize = 4096;

    /// How this processor copies: [`AVX`], [`REP`].
    static WAYS: AtomicU8 = AtomicU8::new(0);

    unsafe extern "C" {
        /// Copies; 0, or 1 after a fault.
        #[link_name = "crosslane_guarded_copy"]
        pub(super) fn copy(target: *mut u8, source: *const u8, len: usize) -> u32;
        /// Copies 4 bytes.
        #[link_name = "crosslane_guarded_copy_4"]
        pub(super) fn copy_4(target: *mut u8, source: *const u8) -> u32;
        /// Copies 12 bytes.
        #[link_name = "crosslane_guarded_copy_4_and_8"]
        pub(super) fn copy_4_and_8(target: *mut u8, source: *const u8) -> u32;
        #[link_name = "crosslane_guarded_end"]
        static END: u8;
        #[link_name = "crosslane_guarded_landing"]
        static LANDING: u8;
    }

    // No instruction here changes the stack, or a register that belongs to the caller: whichever faults, the landing is a
    // return from the call.
    core::arch::global_asm!(
        ".pushsection .text.crosslane_guarded_copy,\"ax\",@progbits",
        ".globl crosslane_guarded_copy, crosslane_guarded_end, crosslane_guarded_landing",
        ".globl crosslane_guarded_copy_4, crosslane_guarded_copy_4_and_8",
        ".hidden crosslane_guarded_copy, crosslane_guarded_end, crosslane_guarded_landing",
        ".hidden crosslane_guarded_copy_4, crosslane_guarded_copy_4_and_8",
        ".type crosslane_guarded_copy, @function",
        ".p2align 6",
        "crosslane_guarded_copy:",
        ".cfi_startproc",
        "cmp rdx, 16",
        "jb 20f",
        "cmp rdx, 32",
        "ja 2f",
        "movups xmm0, [rsi]",
        "movups xmm1, [rsi + rdx - 16]",
        "movups [rdi], xmm0",
        "movups [rdi + rdx - 16], xmm1",
        "xor eax, eax",
        "ret",
        // 33 to 64 bytes.
        "2:",
        "movups xmm0, [rsi]",
        "movups xmm1, [rsi + 16]",
        "movups xmm2, [rsi + rdx - 32]",
        "movups xmm3, [rsi + rdx - 16]",
        "cmp rdx, 64",
        "ja 3f",
        "movups [rdi], xmm0",
        "movups [rdi + 16], xmm1",
        "movups [rdi + rdx - 32], xmm2",
        "movups [rdi + rdx - 16], xmm3",
        "xor eax, eax",
        "ret",
        // 65 to 128 bytes.
        "3:",
        "movups xmm4, [rsi + 32]",
        "movups xmm5, [rsi + 48]",
        "movups xmm6, [rsi + rdx - 64]",
        "movups xmm7, [rsi + rdx - 48]",
        "cmp rdx, 128",
        "ja 4f",
        "movups [rdi], xmm0",
        "movups [rdi + 16], xmm1",
        "movups [rdi + 32], xmm4",
        "movups [rdi + 48], xmm5",
        "movups [rdi + rdx - 64], xmm6",
        "movups [rdi + rdx - 48], xmm7",
        "movups [rdi + rdx - 32], xmm2",
        "movups [rdi + rdx - 16], xmm3",
        "xor eax, eax",
        "ret",
        // More: the first and the last 64 bytes, and lines of the target in between.
        "4:",
        "movups [rdi], xmm0",
        "movups [rdi + 16], xmm1",
        "movups [rdi + 32], xmm4",
        "movups [rdi + 48], xmm5",
        "movups [rdi + rdx - 64], xmm6",
        "movups [rdi + rdx - 48], xmm7",
        "movups [rdi + rdx - 32], xmm2",
        "movups [rdi + rdx - 16], xmm3",
        // r8: end of the lines; rdi, rsi: the first line, 1 to 64 bytes from the start; rcx: bytes in between.
        "lea r8, [rdi + rdx - 64]",
        "mov rcx, rdi",
        "and rdi, -64",
        "add rdi, 64",
        "sub rcx, rdi",
        "sub rsi, rcx",
        "mov rcx, r8",
        "sub rcx, rdi",
        "jbe 9f",
        "movzx eax, byte ptr [rip + {ways}]",
        "test al, {rep}",
        "jz 5f",
        "cmp rdx, {rep_from}",
        "jb 5f",
        "rep movsb",
        "9:",
        "xor eax, eax",
        "ret",
        "5:",
        "test al, {avx}",
        "jz 7f",
        // One line if their number is odd, then two at a time.
        "add ecx, 63",
        "test cl, 64",
        "jz 6f",
        "vmovdqu ymm0, [rsi]",
        "vmovdqu ymm1, [rsi + 32]",
        "add rsi, 64",
        "vmovdqa [rdi], ymm0",
        "vmovdqa [rdi + 32], ymm1",
        "add rdi, 64",
        "cmp rdi, r8",
        "jae 8f",
        ".p2align 4",
        "6:",
        "vmovdqu ymm0, [rsi]",
        "vmovdqu ymm1, [rsi + 32]",
        "vmovdqu ymm2, [rsi + 64]",
        "vmovdqu ymm3, [rsi + 96]",
        "sub rsi, -128",
        "vmovdqa [rdi], ymm0",
        "vmovdqa [rdi + 32], ymm1",
        "vmovdqa [rdi + 64], ymm2",
        "vmovdqa [rdi + 96], ymm3",
        "sub rdi, -128",
        "cmp rdi, r8",
        "jb 6b",
        "8:",
        "vzeroupper",
        "xor eax, eax",
        "ret",
        ".p2align 4",
        "7:",
        "movups xmm0, [rsi]",
        "movups xmm1, [rsi + 16]",
        "movups xmm2, [rsi + 32]",
        "movups xmm3, [rsi + 48]",
        "add rsi, 64",
        "movaps [rdi], xmm0",
        "movaps [rdi + 16], xmm1",
        "movaps [rdi + 32], xmm2",
        "movaps [rdi + 48], xmm3",
        "add rdi, 64",
        "cmp rdi, r8",
        "jb 7b",
        "xor eax, eax",
        "ret",
        // Less than 16 bytes.
        "20:",
        "cmp edx, 8",
        "jb 21f",
        "mov rax, [rsi]",
        "mov rcx, [rsi + rdx - 8]",
        "mov [rdi], rax",
        "mov [rdi + rdx - 8], rcx",
        "xor eax, eax",
        "ret",
        "21:",
        "cmp edx, 4",
        "jb 22f",
        "mov eax, [rsi]",
        "mov ecx, [rsi + rdx - 4]",
        "mov [rdi], eax",
        "mov [rdi + rdx - 4], ecx",
        "xor eax, eax",
        "ret",
        "22:",
        "cmp edx, 1",
        "jb 23f",
        "movzx eax, byte ptr [rsi]",
        "je 24f",
        "movzx ecx, word ptr [rsi + rdx - 2]",
        "mov [rdi + rdx - 2], cx",
        "24:",
        "mov [rdi], al",
        "23:",
        "xor eax, eax",
        "ret",
        "crosslane_guarded_copy_4:",
        "mov eax, [rsi]",
        "mov [rdi], eax",
        "xor eax, eax",
        "ret",
        "crosslane_guarded_copy_4_and_8:",
        "mov eax, [rsi]",
        "mov rcx, [rsi + 4]",
        "mov [rdi], eax",
        "mov [rdi + 4], rcx",
        "xor eax, eax",
        "ret",
        "crosslane_guarded_end:",
        // The handler goes on here.
        "crosslane_guarded_landing:",
        "test byte ptr [rip + {ways}], {avx}",
        "jz 25f",
        "vzeroupper",
        "25:",
        "mov eax, 1",
        "ret",
        ".cfi_endproc",
        ".size crosslane_guarded_copy, . - crosslane_guarded_copy",
        ".popsection",
        ways = sym WAYS,
        avx = const AVX,
        rep = const REP,
        rep_from = const REP_FROM,
    );

    pub(super) fn range() -> Range<usize> {
        (copy as *const ()).addr()..(&raw const END).addr()
    }

    pub(super) fn landing() -> usize {
        (&raw const LANDING).addr()
    }

    pub(super) fn prepare() {
        let avx = if std::arch::is_x86_feature_detected!("avx") { AVX } else { 0 };
        let rep = if std::arch::is_x86_feature_detected!("ermsb") { REP } else { 0 };
        WAYS.store(avx | rep, Relaxed);
    }

    /// Allows only these ways of copying, for tests.
    #[cfg(test)]
    pub(super) fn limit(avx: bool, rep: bool) {
        prepare();
        let kept = WAYS.load(Relaxed) & (if avx { AVX } else { 0 } | if rep { REP } else { 0 });
        WAYS.store(kept, Relaxed);
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod native {
    use core::ops::Range;

    /// # Safety
    /// As [`super::copy`], and both are valid.
    #[inline(always)]
    pub(super) unsafe fn copy(target: *mut u8, source: *const u8, len: usize) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { core::ptr::copy_nonoverlapping(source, target, len) }
        0
    }

    /// # Safety
    /// As [`copy`].
    #[inline(always)]
    pub(super) unsafe fn copy_4(target: *mut u8, source: *const u8) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { copy(target, source, 4) }
    }

    /// # Safety
    /// As [`copy`].
    #[inline(always)]
    pub(super) unsafe fn copy_4_and_8(target: *mut u8, source: *const u8) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { copy(target, source, 12) }
    }

    pub(super) fn range() -> Range<usize> {
        0..0
    }

    pub(super) fn landing() -> usize {
        0
    }

    pub(super) fn prepare() {}
}

#[cfg(test)]
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod tests;

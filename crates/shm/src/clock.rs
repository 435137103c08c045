//! The time that records are stamped with.

/// Cycles of the processor's clock to one unit of time: a unit is some 20 ns, so two sends of one thread differ.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const CYCLES: u32 = 6;

/// The time now, in units of about 20 ns from some beginning; the same for all processors of one host, as near as the
/// hardware has it. 0 where there is no clock that costs next to nothing.
#[inline]
pub fn now() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 processor has this instruction, and Linux lets programs use it.
    return unsafe { core::arch::x86_64::_rdtsc() } >> CYCLES;
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    0
}

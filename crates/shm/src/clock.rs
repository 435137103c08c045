//! The clock of record stamps.

/// Cycles of the processor's clock per unit of time: a unit is about 20 ns, so two sends of one thread get different stamps.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const CYCLES: u32 = 6;

/// The present time, in units of about 20 ns from an arbitrary start; the same for all processors of one host, as closely
/// as the hardware keeps it. 0 where there is no clock that is almost free to read.
#[inline]
pub fn now() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 processor has this instruction, and Linux lets programs use it.
    return unsafe { core::arch::x86_64::_rdtsc() } >> CYCLES;
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    0
}

/// Time of the kernel's monotonic clock, ns: the same for all processes of this machine.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // Neither is negative.
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// A time of which only a rough age is needed: reading it costs a fifth of reading the kernel's clock, where the
/// processor has a clock of its own.
#[derive(Clone, Copy, Debug)]
pub struct Moment(u64);

impl Moment {
    /// The present time.
    #[inline]
    pub fn now() -> Self {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        return Self(now());
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
            Self((now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()) / 20)
        }
    }

    /// Whether it is at least `units` of about 20 ns (13 to 32, by the processor) before `now`, or the clock was set back.
    #[inline]
    pub fn is_past(self, now: Self, units: u64) -> bool {
        now.0.wrapping_sub(self.0) >= units
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn clock_moment_ages() {
        let (begin, moment) = (Instant::now(), Moment::now());
        assert!(!moment.is_past(moment, 1));
        while !moment.is_past(Moment::now(), 500) {}
        let took = begin.elapsed();
        assert!(took >= Duration::from_micros(5), "{took:?}");
        // The clock was set back.
        assert!(Moment::now().is_past(moment, 1 << 60));
    }
}

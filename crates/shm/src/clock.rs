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

/// Time of the kernel's monotonic clock, ns: that of all processes of this machine.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // Neither is negative.
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// A moment of which only its rough age counts: reading it costs a fifth of what the kernel's clock does, where the processor has
/// a clock of its own.
#[derive(Clone, Copy, Debug)]
pub struct Moment(u64);

impl Moment {
    /// Now.
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

    /// Whether at `now` it is at least `units` of about 20 ns (13 to 32, by the processor) ago, or the clock was set back.
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
        // Set back.
        assert!(Moment::now().is_past(moment, 1 << 60));
    }
}

//! Time that the hypervisor gave to others while we had work for a processor (`steal` in `/proc/stat`): a figure
//! measured meanwhile says little.

use std::fs;

/// Percent of the processors' time above which a run is called disturbed.
pub const MOST: f64 = 5.0;
/// Ticks (10 ms of one processor) of which a single one is no more than [`MOST`].
const TELLING: u64 = 20;

/// The kernel's counts at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steal {
    stolen: u64,
    all: u64,
}

impl Steal {
    /// The counts now. Steal is 0 where the kernel does not report it.
    pub fn now() -> Self {
        Self::read(&fs::read_to_string("/proc/stat").unwrap_or_default()).unwrap_or_default()
    }

    /// The first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal; guests are in user already.
    fn read(text: &str) -> Option<Self> {
        let times = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(8);
        let times: Vec<u64> = times.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        Some(Self { stolen: *times.get(7)?, all: times.iter().sum() })
    }

    /// Steal since then, percent of all processors' time; 0 if the time was too short to tell.
    #[expect(clippy::cast_precision_loss, reason = "a figure")]
    pub fn until(self, later: Self) -> f64 {
        let (stolen, all) = (later.stolen.saturating_sub(self.stolen), later.all.saturating_sub(self.all));
        if all < TELLING { 0.0 } else { 100.0 * stolen as f64 / all as f64 }
    }

    /// Steal since then until now, percent.
    pub fn since(self) -> f64 {
        self.until(Self::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_a_part_of_all_time() {
        let one = Steal::read("cpu  100 0 100 700 0 0 50 50 0 0\ncpu0 1").unwrap();
        let two = Steal::read("cpu  200 0 200 1300 0 0 100 200 7 0\n").unwrap();
        assert_eq!(one.until(two), 15.0);
        assert_eq!(one.until(one), 0.0);
        assert!(Steal::read("intr 5").is_none());
        assert!(Steal::now().all > 0);
    }
}

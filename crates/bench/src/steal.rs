//! Time that the hypervisor gave to others while we had work for a processor (`steal` in `/proc/stat`): a figure
//! measured meanwhile says little.

use anyhow::Result;
pub use crosslane_results::steal::{MOST, Steal};

/// How often such a run is repeated.
const AGAIN: u32 = 2;

/// Runs `run`, again if more than [`MOST`] was stolen meanwhile. Returns the result with the least steal, and that
/// steal, percent.
///
/// # Errors
/// A run fails.
pub fn steady<T>(mut run: impl FnMut() -> Result<T>) -> Result<(T, f64)> {
    least(|| {
        let begin = Steal::now();
        let outcome = run()?;
        Ok((outcome, begin.since()))
    })
}

fn least<T>(mut run: impl FnMut() -> Result<(T, f64)>) -> Result<(T, f64)> {
    let mut best = run()?;
    for _ in 0..AGAIN {
        if best.1 <= MOST {
            break;
        }
        let next = run()?;
        if next.1 < best.1 {
            best = next;
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_repeats_a_disturbed_run_and_the_best_counts() {
        let mut steals = [9.0, 6.0, 8.0].into_iter().enumerate();
        assert_eq!(least(|| Ok(steals.next().unwrap())).unwrap(), (1, 6.0));
        let mut steals = [9.0, 2.0].into_iter().enumerate();
        assert_eq!(least(|| Ok(steals.next().unwrap())).unwrap(), (1, 2.0));
        assert_eq!(least(|| Ok(((), 1.0))).unwrap().1, 1.0);
    }
}

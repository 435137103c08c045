//! What counting costs, and how fast its clock runs.

use super::{Function, Span, TABLE, Table, Way, span, ticks};
use core::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Empty spans of one batch, and batches, of which the median counts.
const SPANS: u64 = 1000;
const BATCHES: usize = 31;

/// Where they are counted.
static SCRATCH: Table = Table::new();

/// What a span that is counted costs, in [`ticks`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overhead {
    /// The part that is counted for the span itself.
    pub inside: f64,
    /// All of it; what is not inside is counted for the span around it.
    pub whole: f64,
}

/// [`ticks`] in a second, measured for 20 ms.
#[expect(clippy::cast_precision_loss, reason = "a rate")]
pub fn ticks_per_second() -> f64 {
    let (start, from) = (Instant::now(), ticks());
    std::thread::sleep(Duration::from_millis(20));
    let (elapsed, to) = (start.elapsed(), ticks());
    to.saturating_sub(from) as f64 / elapsed.as_secs_f64()
}

/// What a span costs here while it is counted.
pub fn overhead() -> Overhead {
    let line = &SCRATCH.ways[Way::Send as usize].0[Function::Rest as usize];
    let counted = line.ticks.load(Relaxed);
    let whole = each(|| drop(Span::on(&SCRATCH, Way::Send, Function::Rest)));
    #[expect(clippy::cast_precision_loss, reason = "a figure")]
    let inside = (line.ticks.load(Relaxed) - counted) as f64 / (SPANS as f64 * BATCHES as f64);
    Overhead { inside, whole }
}

/// What a span costs here while nothing is counted, in [`ticks`]; `None` if this process counts.
pub fn idle() -> Option<f64> {
    TABLE
        .load(Relaxed)
        .is_null()
        .then(|| each(|| drop(core::hint::black_box(span(Way::Send, Function::Rest)))))
}

/// Time that one call of `work` takes, in [`ticks`]: the median of some batches.
fn each(work: impl Fn()) -> f64 {
    let mut batches = [0; BATCHES];
    for batch in &mut batches {
        let from = ticks();
        (0..SPANS).for_each(|_| work());
        *batch = ticks().saturating_sub(from);
    }
    batches.sort_unstable();
    #[expect(clippy::cast_precision_loss, reason = "a figure")]
    return batches[BATCHES / 2] as f64 / SPANS as f64;
}

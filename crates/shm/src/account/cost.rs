//! The cost of counting, and the rate of its clock.

use super::{Function, Span, TABLE, Table, Way, span, ticks};
use core::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Empty spans of one batch, and number of batches; the median batch counts.
const SPANS: u64 = 1000;
const BATCHES: usize = 31;

/// The table in which these spans are counted.
static SCRATCH: Table = Table::new();

/// Cost of a counted span, in [`ticks`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overhead {
    /// The part that is counted for the span itself.
    pub inside: f64,
    /// The whole cost; the part that is not inside counts for the outer span.
    pub whole: f64,
}

/// [`ticks`] per second, measured for 20 ms.
#[expect(clippy::cast_precision_loss, reason = "a rate")]
pub fn ticks_per_second() -> f64 {
    let (start, from) = (Instant::now(), ticks());
    std::thread::sleep(Duration::from_millis(20));
    let (elapsed, to) = (start.elapsed(), ticks());
    to.saturating_sub(from) as f64 / elapsed.as_secs_f64()
}

/// Cost of a span here while spans are counted.
pub fn overhead() -> Overhead {
    let line = &SCRATCH.ways[Way::Send as usize].0[Function::Rest as usize];
    let counted = line.ticks.load(Relaxed);
    let whole = each(|| drop(Span::on(&SCRATCH, Way::Send, Function::Rest)));
    #[expect(clippy::cast_precision_loss, reason = "a figure")]
    let inside = (line.ticks.load(Relaxed) - counted) as f64 / (SPANS as f64 * BATCHES as f64);
    Overhead { inside, whole }
}

/// Cost of a span here while spans are not counted, in [`ticks`]; `None` if this process counts.
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

//! The cost of retaining sent bytes that may be lost with a cable: streams of a lab that retains them, beside those of
//! one that does not.

use super::{Judged, runs};
use crate::compare::Setting;
use crate::figure::{Figure, Sample, Unit};
use crate::perf::cables;
use crate::place::{self, InLab};
use crate::program::IPERF3;
use anyhow::Result;
use crosslane_lab::{Options, Resilience, Topology};
use indicatif::ProgressBar;

const NOTHING_KEPT: &str = "nothing kept";
/// Least part of the bandwidth without.
const PART: f64 = 0.85;

pub(super) fn measure(setting: &Setting, progress: &ProgressBar) -> Result<Vec<Judged>> {
    let lab = |resilience| {
        // Hosts between that hand memory on have nothing to lose.
        let chain = Options { hosts: 3, topology: Topology::Chain, pump: true, ..Options::scratch("safety") };
        place::up(&Options { resilience: Some(resilience), ..chain })
    };
    let (keep, reset) = (lab(Resilience::Keep)?, lab(Resilience::Reset)?);
    let over = |server, lab| InLab::between(lab, "h1", server).map(|[fabric, _]| fabric);
    let ends = ["h2", "h3"].into_iter().flat_map(|server| [over(server, &keep), over(server, &reset)]);
    let ends = ends.collect::<Result<Vec<_>>>()?;
    let rates = runs(&IPERF3, 0, &ends, (setting, progress))?;
    [keep, reset].into_iter().try_for_each(place::down)?;
    Ok(rates.chunks(2).zip(1..).map(|(pair, count)| judged(pair, count)).collect())
}

/// `pair`: the rates with everything retained, and with nothing.
fn judged(pair: &[Vec<f64>], count: usize) -> Judged {
    let [keep, reset] = [0, 1].map(|at: usize| pair.get(at).cloned().and_then(Sample::new));
    let figure = Figure::new("cost of safety: iperf3", cables(count), Unit::GigabitsPerSecond, keep);
    Judged {
        figure: figure.against(NOTHING_KEPT, reset).bar(NOTHING_KEPT, PART, None).by_turns(),
        cables: count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn safety_may_cost_a_seventh_and_no_more() {
        let met = |keep: f64| judged(&[vec![keep], vec![100.0]], 1).figure.meets_bar();
        assert_eq!((met(86.0), met(84.0)), (Some(true), Some(false)));
    }
}

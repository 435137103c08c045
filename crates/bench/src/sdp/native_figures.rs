//! Bytes one way between programs that are written for streams: copied by both, from buffers that lie in segments already,
//! into memory that was offered.

use super::native::Manner;
use super::size::Length;
use super::way::{Rig, Way};
use super::{POUR, Plan, Runs, alone, beside, by_turns, per_processor, rate};
use crate::figure::{Figure, Unit};

/// A group of the report: bytes that arrive a second.
pub const NATIVE: &str = "posted buffers";
/// Bytes that arrive per second of processor time of all participants.
pub const NATIVE_PROCESSOR: &str = "posted buffers, per second of processor time";

/// Smallest size that is worth a posted buffer, bytes.
pub const LEAST: usize = 16 << 10;
/// How much more bytes a posted buffer of this size moves in a second of processor time than a copied one, at least.
const BAR: f64 = 1.5;
const BARRED: usize = 1 << 20;

/// All manners by turns. The figures are those of posted buffers, the others their references.
pub fn figures(rig: &Rig, plan: &Plan, size: Length) -> Vec<Figure> {
    let turns = if size.0 == BARRED { plan.turns() } else { plan.runs };
    let ways = Manner::POURING.map(Way::native).to_vec();
    let run = |way| rig.run(way, POUR, &[size.0], plan.time());
    let (runs, failed) = by_turns(ways, turns, &format!("messages of {size}"), run);
    of_runs(size, &runs).into_iter().chain(failed).collect()
}

fn of_runs(size: Length, runs: &[Runs]) -> Vec<Figure> {
    let names = [Manner::Posted, Manner::Stream, Manner::Offered].map(Manner::name);
    let figure = |group, unit, value| beside(runs, &names, size, (group, unit), value);
    let mut costs = figure(NATIVE_PROCESSOR, Unit::MegabytesPerProcessorSecond, per_processor);
    if size.0 == BARRED {
        costs = costs.bar(Manner::Stream.name(), BAR, None);
    }
    let alone = Manner::POURING.map(|manner| alone(runs, manner.name(), size));
    [figure(NATIVE, Unit::MegabytesPerSecond, rate), costs].into_iter().chain(alone).collect()
}

#[cfg(test)]
mod tests {
    use super::super::forced_group;
    use super::super::tests::done;
    use super::*;

    #[test]
    fn posted_buffers_have_a_bar_at_a_megabyte_and_say_what_carried_them() {
        let runs = |by_mode| {
            [
                (Way::native(Manner::Stream), vec![done(2000.0, Some([9, 0, 0, 0]))]),
                (Way::native(Manner::Posted), vec![done(3000.0, Some(by_mode))]),
            ]
        };
        let figures = |by_mode| of_runs(Length(BARRED), &runs(by_mode));
        let met = figures([0, 9, 0, 0]);
        assert_eq!(
            (met[1].bar_ratio(), met[1].meets_bar(), met[0].bar.is_none()),
            (Some(1.5), Some(true), true)
        );
        let copied = figures([9, 0, 0, 0]);
        let posted = copied.iter().find(|figure| figure.group == forced_group("posted buffers"));
        assert_eq!(posted.unwrap().missing.as_deref(), Some("carried by bcopy 100 %"));
        assert_eq!(copied[1].meets_bar(), None);
    }
}

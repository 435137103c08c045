//! Bytes one way between programs that are written for streams: copied by both, from buffers that lie in segments already,
//! into memory that was offered.

use super::native::Manner;
use super::pair::{Done, Pair};
use super::size::Length;
use super::way::Rig;
use super::{Plan, by_turns, carried_by_others, failure, forced_group};
use crate::figure::{Figure, Sample, Unit};
use anyhow::Result;

/// A group of the report: what arrives in a second.
pub const NATIVE: &str = "posted buffers";
/// What arrives in a second of processor time of all who take part.
pub const NATIVE_PROCESSOR: &str = "posted buffers, per second of processor time";

/// Smallest size that is worth a posted buffer, bytes.
pub const LEAST: usize = 16 << 10;
/// How much more bytes a posted buffer of this size moves in a second of processor time than a copied one, at least.
const BAR: f64 = 1.5;
const BARRED: usize = 1 << 20;

/// All manners by turns. The figures are those of posted buffers, the others their references.
pub fn figures(rig: &Rig, plan: &Plan, size: Length) -> Vec<Figure> {
    let all = Manner::POURING.to_vec();
    let turns = if size.0 == BARRED { plan.turns() } else { plan.runs };
    let (runs, failed) = by_turns(all, turns, |manner| run(rig, plan, manner, size));
    let name = |manner: Manner| format!("{}, messages of {size}", manner.name());
    let failed = failed.into_iter().map(|(manner, why)| failure(&name(manner), &why));
    of_runs(size, &runs).into_iter().chain(failed).collect()
}

fn run(rig: &Rig, plan: &Plan, manner: Manner, size: Length) -> Result<Done> {
    let (mut listener, at) = rig.native_listener(manner)?;
    listener.args(["--receive", &at.to_string(), &size.0.to_string()]);
    let pair = Pair::start(listener, |to| {
        let mut connector = rig.native_connector(manner)?;
        connector.args(["--send", &to.to_string(), &size.0.to_string()]);
        Ok(connector)
    })?;
    pair.measure(plan.time(), Some(&rig.lab))
}

fn of_runs(size: Length, runs: &[(Manner, Vec<Done>)]) -> Vec<Figure> {
    let of =
        |manner: Manner| runs.iter().find(|(other, _)| *other == manner).map_or(&[][..], |(_, runs)| runs);
    let sample = |manner: Manner, value: fn(&Done) -> f64| match carried_by_others(manner.mode(), of(manner))
    {
        None => Sample::new(of(manner).iter().map(value).collect()),
        Some(_) => None,
    };
    let figure = |group: &str, unit, value| {
        let figure = Figure::new(group, size.to_string(), unit, sample(Manner::Posted, value));
        let others = [Manner::Stream, Manner::Offered].into_iter();
        others.fold(figure, |figure, other| figure.against(other.name(), sample(other, value))).by_turns()
    };
    let rate: fn(&Done) -> f64 = |done| done.rate() / 1e6;
    let per_processor =
        figure(NATIVE_PROCESSOR, Unit::MegabytesPerProcessorSecond, |done| done.per_processor() / 1e6);
    let barred = size.0 == BARRED;
    let bar = |figure: Figure| if barred { figure.bar(Manner::Stream.name(), BAR, None) } else { figure };
    let mut figures = vec![figure(NATIVE, Unit::MegabytesPerSecond, rate), bar(per_processor)];
    figures.extend(Manner::POURING.map(|manner| {
        let figure = Figure::new(
            &forced_group(manner.name()),
            size.to_string(),
            Unit::MegabytesPerSecond,
            sample(manner, rate),
        );
        Figure { missing: carried_by_others(manner.mode(), of(manner)).or(figure.missing.clone()), ..figure }
    }));
    figures
}

#[cfg(test)]
mod tests {
    use super::super::tests::done;
    use super::*;

    #[test]
    fn posted_buffers_have_a_bar_at_a_megabyte_and_say_what_carried_them() {
        let runs = |by_mode| {
            [
                (Manner::Stream, vec![done(2000.0, Some([9, 0, 0, 0]))]),
                (Manner::Posted, vec![done(3000.0, Some(by_mode))]),
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

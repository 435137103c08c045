//! From the first host of a chain to each of the others, one cable to four: with hosts between that hand memory on, with hosts
//! that pump, and by the kernel's TCP through as many namespaces.

use super::{Judged, runs};
use crate::compare::Setting;
use crate::figure::{Figure, Sample, Unit};
use crate::perf::cables;
use crate::place::{self, InLab};
use crate::program::{IPERF3, SOCKPERF, VETH};
use anyhow::Result;
use crosslane_lab::{Options, Topology};
use indicatif::ProgressBar;

const FIRST: &str = "h1";
const OTHERS: [&str; 4] = ["h2", "h3", "h4", "h5"];
const ONE_CABLE: &str = "1 cable";
/// Less, us, is not told: what other machines leave of a processor makes a time one way 0.2 or 0.4 us, whatever the cables.
const LEAST_ADDED: f64 = 0.2;
/// Sockperf's metric: the median of the round trip.
const MEDIAN: usize = 1;

/// How hosts between carry the traffic, and their bars.
struct Kind {
    /// Appended to the names of the groups.
    name: &'static str,
    /// Of three places at each host (handed on, pumped, the kernel's), which.
    at: usize,
    /// Least part of the bandwidth over one cable.
    part: f64,
    /// The most that a further cable may add to the time one way, us; and its name.
    added: f64,
    limit: &'static str,
    /// Whether each cable needs a processor more.
    pumps: bool,
}

/// Places at each host.
const PLACES: usize = 3;
const KERNEL: usize = 2;
const SHARED: Kind = Kind { name: "", at: 0, part: 0.8, added: 0.5, limit: "limit of 0.5 us", pumps: false };
const PUMPED: Kind =
    Kind { name: ", pumped", at: 1, part: 0.6, added: 2.0, limit: "limit of 2 us", pumps: true };

pub(super) fn measure(setting: &Setting, progress: &ProgressBar) -> Result<Vec<Judged>> {
    let (hosts, others) = if setting.brief { (3, &OTHERS[..2]) } else { (5, &OTHERS[..]) };
    let chain =
        |pump| place::up(&Options { hosts, topology: Topology::Chain, pump, ..Options::scratch("transit") });
    let (shared, pumped) = (chain(false)?, chain(true)?);
    let mut ends = Vec::new();
    for &other in others {
        let [handed_on, kernel] = InLab::between(&shared, FIRST, other)?;
        let [copied, _] = InLab::between(&pumped, FIRST, other)?;
        ends.extend([handed_on, copied, kernel]);
    }
    let rates = runs(&IPERF3, 0, &ends, (setting, progress))?;
    let times = runs(&SOCKPERF, MEDIAN, &ends, (setting, progress))?;
    [shared, pumped].into_iter().try_for_each(place::down)?;
    let kinds = [SHARED, PUMPED];
    let rates = kinds.iter().flat_map(|kind| bandwidth(&rates, kind));
    Ok(rates.chain(kinds.iter().flat_map(|kind| latency(&times, kind))).collect())
}

/// Each way beside the kernel's over as many namespaces, and beside one cable. `rates`: of each place at each host.
fn bandwidth(rates: &[Vec<f64>], kind: &Kind) -> Vec<Judged> {
    let at = |count: usize, place: usize| Sample::new(rates[PLACES * (count - 1) + place].clone());
    let figure = |group: &str, count| {
        let group = format!("transit: iperf3{}{group}", kind.name);
        Figure::new(&group, cables(count), Unit::GigabitsPerSecond, at(count, kind.at))
    };
    let beside_kernel = |count: usize| {
        figure("", count).against(VETH, at(count, KERNEL)).bar(VETH, 1.0, None).by_turns().into()
    };
    let beside_one = |count: usize| {
        let figure = figure(", beside one cable", count).against(ONE_CABLE, at(1, kind.at));
        kind.judge(figure.bar(ONE_CABLE, kind.part, None).by_turns(), count)
    };
    let all = rates.len() / PLACES;
    (kind.first()..=all).map(beside_kernel).chain((2..=all).map(beside_one)).collect()
}

/// Half of each round trip, and what each further cable adds to it. `times`: as for [`bandwidth`], round trips in us.
fn latency(times: &[Vec<f64>], kind: &Kind) -> Vec<Judged> {
    let half = |count: usize, place: usize| -> Vec<f64> {
        times[PLACES * (count - 1) + place].iter().map(|rtt| rtt / 2.0).collect()
    };
    let one_way = |count: usize| {
        let group = format!("transit: sockperf, one way{}", kind.name);
        let ours = Sample::new(half(count, kind.at));
        let figure = Figure::new(&group, cables(count), Unit::Microseconds, ours);
        figure.against(VETH, Sample::new(half(count, KERNEL))).bar(VETH, 1.0, None).by_turns().into()
    };
    let added = |count: usize| {
        let (nearer, farther) = (half(count - 1, kind.at), half(count, kind.at));
        let added = nearer.iter().zip(farther).map(|(near, far)| (far - near).max(LEAST_ADDED)).collect();
        let (group, case) = (format!("transit: time added one way{}", kind.name), format!("cable {count}"));
        let figure = Figure::new(&group, case, Unit::Microseconds, Sample::new(added));
        let figure = figure.against(kind.limit, Sample::new(vec![kind.added])).bar(kind.limit, 1.0, None);
        kind.judge(figure, count)
    };
    let all = times.len() / PLACES;
    (kind.first()..=all).map(one_way).chain((2..=all).map(added)).collect()
}

impl Kind {
    /// Least number of cables at which it differs from the other kind.
    fn first(&self) -> usize {
        if self.pumps { 2 } else { 1 }
    }

    fn judge(&self, figure: Figure, cables: usize) -> Judged {
        Judged { figure, cables: if self.pumps { cables } else { 0 } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(judged: &[Judged]) -> Vec<(&str, usize, Option<bool>)> {
        judged.iter().map(|one| (&*one.figure.case, one.cables, one.figure.meets_bar())).collect()
    }

    /// One and two cables: handed on, pumped, the kernel's.
    fn of(values: [[f64; 3]; 2]) -> Vec<Vec<f64>> {
        values.into_iter().flatten().map(|value| vec![value]).collect()
    }

    #[test]
    fn transit_compares_each_way_with_the_kernel_and_with_one_cable() {
        let rates = of([[100.0, 100.0, 20.0], [79.0, 59.0, 80.0]]);
        let expected =
            [("1 cable", 0, Some(true)), ("2 cables", 0, Some(false)), ("2 cables", 0, Some(false))];
        assert_eq!(verdicts(&bandwidth(&rates, &SHARED)), expected);
        let expected = [("2 cables", 0, Some(false)), ("2 cables", 2, Some(false))];
        assert_eq!(verdicts(&bandwidth(&rates, &PUMPED)), expected);
        let good = of([[100.0, 100.0, 20.0], [80.0, 60.0, 15.0]]);
        for kind in [SHARED, PUMPED] {
            assert!(bandwidth(&good, &kind).iter().all(|one| one.figure.meets_bar() == Some(true)));
        }
    }

    #[test]
    fn transit_cable_adds_half_of_the_growth_of_the_round_trip() {
        let times = of([[1.0, 1.0, 50.0], [2.0, 5.0, 50.0]]);
        let judged = latency(&times, &SHARED);
        assert_eq!(verdicts(&judged)[2], ("cable 2", 0, Some(true)));
        assert_eq!(judged[2].figure.sample.as_ref().unwrap().runs, [0.5]);
        assert_eq!(verdicts(&latency(&times, &PUMPED))[1], ("cable 2", 2, Some(true)));
        let slow = of([[1.0, 1.0, 50.0], [2.1, 6.0, 50.0]]);
        assert_eq!(verdicts(&latency(&slow, &SHARED))[2].2, Some(false));
        assert_eq!(verdicts(&latency(&slow, &PUMPED))[1].2, Some(false));
    }
}

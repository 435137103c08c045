//! From the first host of a chain to each of the others: one cable to four.

use super::{Judged, runs};
use crate::figure::{Figure, Sample, Unit};
use crate::perf::cables;
use crate::place::{InLab, Place};
use crate::program::{Iperf3, Sockperf, VETH};
use crate::quick::Quick;
use anyhow::{Context, Result};
use crosslane_lab::{Lab, Options, Topology};

const FIRST: &str = "h1";
const OTHERS: [&str; 4] = ["h2", "h3", "h4", "h5"];
/// Least part of the bandwidth over one cable.
const PART: f64 = 0.6;
const ONE_CABLE: &str = "1 cable";
/// The most that a further cable may add to the time one way, us.
const ADDED: f64 = 2.0;
const LIMIT: &str = "limit of 2 us";
/// Nothing at all would have no ratio to the limit.
const LEAST_ADDED: f64 = 0.001;
/// Sockperf's metric: the median of the round trip.
const MEDIAN: usize = 1;

pub(super) fn measure(quick: &Quick) -> Result<Vec<Judged>> {
    let chain = Options { hosts: 5, topology: Topology::Chain, ..Options::scratch("transit") };
    let lab = Lab::up(&chain).context("the lab does not come up")?;
    let ends = OTHERS.map(|other| InLab::between(&lab, FIRST, other)).into_iter();
    let ends = ends.collect::<Result<Vec<_>>>()?;
    let places: Vec<&dyn Place> = ends.iter().flatten().map(|place| place as &dyn Place).collect();
    let rates = runs(&Iperf3, 0, &places, quick)?;
    let times = runs(&Sockperf, MEDIAN, &places, quick)?;
    lab.down().context("the lab does not go down")?;
    Ok(bandwidth(&rates).into_iter().chain(latency(&times)).collect())
}

/// Each way beside the kernel's over as many namespaces, and beside one cable. `rates`: ours and the kernel's by turns.
fn bandwidth(rates: &[Vec<f64>]) -> Vec<Judged> {
    let ours = |count: usize| Sample::new(rates[2 * count - 2].clone());
    let figure = |group, count| Figure::new(group, cables(count), Unit::GigabitsPerSecond, ours(count));
    let beside_kernel = |count: usize| {
        let kernel = Sample::new(rates[2 * count - 1].clone());
        figure("transit: iperf3", count).against(VETH, kernel).bar(VETH, 1.0, None).into()
    };
    let beside_one = |count: usize| {
        let figure = figure("transit: iperf3, beside one cable", count).against(ONE_CABLE, ours(1));
        Judged { figure: figure.bar(ONE_CABLE, PART, None), cables: count }
    };
    let all = rates.len() / 2;
    (1..=all).map(beside_kernel).chain((2..=all).map(beside_one)).collect()
}

/// Half of each round trip, and what each further cable adds to it. `times`: as for [`bandwidth`], round trips in us.
fn latency(times: &[Vec<f64>]) -> Vec<Judged> {
    let halves: Vec<Vec<f64>> = times.iter().map(|runs| runs.iter().map(|rtt| rtt / 2.0).collect()).collect();
    let one_way = |count: usize| {
        let [ours, kernel] = [2 * count - 2, 2 * count - 1].map(|at| Sample::new(halves[at].clone()));
        Figure::new("transit: sockperf, one way", cables(count), Unit::Microseconds, ours)
            .against(VETH, kernel)
            .into()
    };
    let added = |count: usize| {
        let (nearer, farther) = (&halves[2 * count - 4], &halves[2 * count - 2]);
        let added = nearer.iter().zip(farther).map(|(near, far)| (far - near).max(LEAST_ADDED)).collect();
        let case = format!("cable {count}");
        let figure = Figure::new("transit: time added one way", case, Unit::Microseconds, Sample::new(added));
        let figure = figure.against(LIMIT, Sample::new(vec![ADDED])).bar(LIMIT, 1.0, None);
        Judged { figure, cables: count }
    };
    let all = times.len() / 2;
    (1..=all).map(one_way).chain((2..=all).map(added)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(judged: &[Judged]) -> Vec<(&str, usize, Option<bool>)> {
        judged.iter().map(|one| (&*one.figure.case, one.cables, one.figure.meets_bar())).collect()
    }

    #[test]
    fn each_way_is_held_against_the_kernel_and_against_one_cable() {
        let rates = [vec![100.0], vec![20.0], vec![59.0], vec![60.0]];
        let expected =
            [("1 cable", 0, Some(true)), ("2 cables", 0, Some(false)), ("2 cables", 2, Some(false))];
        assert_eq!(verdicts(&bandwidth(&rates)), expected);
        let good = [vec![100.0], vec![20.0], vec![60.0], vec![15.0]];
        assert!(bandwidth(&good).iter().all(|one| one.figure.meets_bar() == Some(true)));
    }

    #[test]
    fn a_further_cable_adds_half_of_what_the_round_trip_grows_by() {
        let times = [vec![1.0, 9.0], vec![50.0; 2], vec![4.0, 8.0], vec![50.0; 2]];
        let judged = latency(&times);
        assert_eq!(verdicts(&judged)[2], ("cable 2", 2, Some(true)));
        assert_eq!(judged[2].figure.sample.as_ref().unwrap().runs, [1.5, LEAST_ADDED]);
        let slow = latency(&[vec![1.0], vec![50.0], vec![6.0], vec![50.0]]);
        assert_eq!(verdicts(&slow)[2].2, Some(false));
    }
}

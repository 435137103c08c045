//! Streams over several timed cables: one after the other, both ways round a ring at once, two side by side, and one stream over two.

use super::{LATE, LIMIT, Plan, held, limit, traffic};
use crate::compare::Outcome;
use crate::figure::{Figure, Sample, Unit};
use crate::place::{self, InLab};
use crate::program::{IPERF3, Program, iperf3};
use anyhow::Result;
use crosslane_lab::{Lab, Options, Topology};
use crosslane_pcie::Cable;
use indicatif::ProgressBar;

/// What is measured over one kind of cable, each a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Several {
    /// One stream through this many cables in a row.
    InARow(u8),
    /// Streams of two programs between neighbours in a ring of three, by both ways round, beside two by the shortest.
    BothWays,
    /// Streams of two programs over two cables between the same hosts, beside two over one cable.
    SideBySide,
    /// One stream that is striped over two cables between the same hosts, beside one over one cable.
    Striped,
}

/// All of them.
pub(super) const SEVERAL: [Several; 5] =
    [Several::InARow(2), Several::InARow(3), Several::BothWays, Several::SideBySide, Several::Striped];

/// Hosts of the longest row.
const HOSTS: [&str; 4] = ["h1", "h2", "h3", "h4"];
pub(super) const IN_A_ROW: &str = "sockets through cables in a row: iperf3, 128 KB";
pub(super) const BOTH_WAYS: &str = "sockets, both ways round a ring: iperf3, two programs";
pub(super) const SIDE_BY_SIDE: &str = "sockets, two cables side by side: iperf3, two programs";
pub(super) const STRIPED: &str = "sockets, one stream over two cables: iperf3, 128 KB";
const SHORTEST: &str = "two programs, shortest way";
const ONE_CABLE: &str = "two programs, one cable";
const NOT_STRIPED: &str = "one stream, one cable";
/// Least part of the limit through several cables.
const ROW_BAR: f64 = 0.85;
/// Least gain by a second way.
const WAYS_BAR: f64 = 1.8;

/// Two programs at once, each with a stream.
const IPERF3_TWO: Program = Program { measure: iperf3::measure_two, ..IPERF3 };

impl Several {
    /// The step's name.
    pub(super) fn step(self, cable: &Cable) -> String {
        match self {
            Self::InARow(count) => format!("programs through {count} cables {cable}"),
            Self::BothWays => format!("programs both ways round three cables {cable}"),
            Self::SideBySide => format!("programs over two cables {cable} side by side"),
            Self::Striped => format!("one stream over two cables {cable}"),
        }
    }

    /// Brings hosts up that such cables join, and runs the program by turns.
    ///
    /// # Errors
    /// A lab does not come up.
    pub(super) fn measure(self, cable: Cable, plan: &Plan, progress: &ProgressBar) -> Result<Vec<Figure>> {
        match self {
            Self::InARow(count) => in_a_row(usize::from(count), cable, plan, progress),
            Self::BothWays => both_ways(cable, plan, progress),
            Self::SideBySide => side_by_side(cable, plan, progress),
            Self::Striped => striped(cable, plan, progress),
        }
    }
}

fn in_a_row(count: usize, cable: Cable, plan: &Plan, progress: &ProgressBar) -> Result<Vec<Figure>> {
    let hosts = &HOSTS[..=count];
    let lab = up(cable, hosts, Options { topology: Topology::Chain, ..place::pair("row") })?;
    let [sockets, _] = InLab::between(&lab, hosts[0], hosts[count])?;
    let rates = traffic::runs(&IPERF3, &[sockets], (plan, progress));
    let late = traffic::late(&lab, hosts);
    place::down(lab)?;
    Ok(vec![row_figure(count, &cable, &rates, late)])
}

fn row_figure(count: usize, cable: &Cable, rates: &[Outcome], late: f64) -> Figure {
    let figure =
        Figure::new(IN_A_ROW, format!("{count} x {cable}"), Unit::MegabytesPerSecond, rate(rates, 0));
    let figure = figure.against(LIMIT, limit(cable)).without(traffic::why(rates, 0));
    held(figure, late, ROW_BAR)
}

fn both_ways(cable: Cable, plan: &Plan, progress: &ProgressBar) -> Result<Vec<Figure>> {
    let hosts = &HOSTS[..3];
    let ring = |name, all_ways| {
        up(cable, hosts, Options { topology: Topology::Ring, all_ways, ..place::pair(name) })
    };
    let labs = [ring("ways", true)?, ring("way", false)?];
    let rates = by_turns(&IPERF3_TWO, labs, hosts, (plan, progress))?;
    Ok(vec![ways_figure(BOTH_WAYS, SHORTEST, &cable, &rates)])
}

fn side_by_side(cable: Cable, plan: &Plan, progress: &ProgressBar) -> Result<Vec<Figure>> {
    let hosts = &HOSTS[..2];
    let pair = |name, beside| up(cable, hosts, Options { beside, ..place::pair(name) });
    let rates = by_turns(&IPERF3_TWO, [pair("two", 2)?, pair("one", 1)?], hosts, (plan, progress))?;
    Ok(vec![ways_figure(SIDE_BY_SIDE, ONE_CABLE, &cable, &rates)])
}

fn striped(cable: Cable, plan: &Plan, progress: &ProgressBar) -> Result<Vec<Figure>> {
    let hosts = &HOSTS[..2];
    let pair = |name, beside, stripe| up(cable, hosts, Options { beside, stripe, ..place::pair(name) });
    let labs = [pair("striped", 2, true)?, pair("plain", 1, false)?];
    let rates = by_turns(&IPERF3, labs, hosts, (plan, progress))?;
    Ok(vec![ways_figure(STRIPED, NOT_STRIPED, &cable, &rates)])
}

/// Rates of programs from h1 to h2 in two labs by turns, and which part of the bytes landed late where it was most.
fn by_turns(
    program: &Program,
    labs: [Lab; 2],
    hosts: &[&str],
    (plan, progress): (&Plan, &ProgressBar),
) -> Result<(Vec<Outcome>, f64)> {
    let [[first, _], [second, _]] =
        [InLab::between(&labs[0], "h1", "h2")?, InLab::between(&labs[1], "h1", "h2")?];
    let rates = traffic::runs(program, &[first, second], (plan, progress));
    let late = labs.iter().map(|lab| traffic::late(lab, hosts)).fold(0.0, f64::max);
    labs.into_iter().try_for_each(place::down)?;
    Ok((rates, late))
}

fn ways_figure(group: &str, against: &str, cable: &Cable, (rates, late): &(Vec<Outcome>, f64)) -> Figure {
    let figure = Figure::new(group, cable.to_string(), Unit::MegabytesPerSecond, rate(rates, 0));
    let figure = figure.against(against, rate(rates, 1)).against(LIMIT, limit(cable)).by_turns();
    let figure = figure.without(traffic::why(rates, 0));
    // One way has at most the limit, which holds also where its bytes were late.
    if *late > LATE { held(figure, *late, WAYS_BAR) } else { figure.bar(against, WAYS_BAR, None) }
}

/// A lab of these hosts, joined by such cables.
fn up(cable: Cable, hosts: &[&str], options: Options) -> Result<Lab> {
    let hosts = u8::try_from(hosts.len())?;
    place::up(&Options { hosts, cable_kind: traffic::timed(cable), ..options })
}

/// MB (10^6) a second.
fn rate(rates: &[Outcome], at: usize) -> Option<Sample> {
    Some(traffic::column(rates, at, 0)?.scaled(1000.0 / 8.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Runs;

    #[test]
    fn direct_several_cables_are_held_against_one() {
        let cable: Cable = "gen1 x1".parse().unwrap();
        let most = limit(&cable).unwrap().median;
        let part = |part: f64| Ok(Runs { columns: vec![vec![part * most * 8.0 / 1000.0]], steal: 0.0 });
        let row = |share, late| row_figure(2, &cable, &[part(share)], late).meets_bar();
        assert_eq!([row(0.86, 0.0), row(0.84, 0.0), row(0.84, 0.2)], [Some(true), Some(false), None]);
        assert_eq!(row(0.86, 0.2), Some(true), "no byte lands early");
        let ways = |share, late| {
            let rates = (vec![part(share), part(0.9)], late);
            ways_figure(BOTH_WAYS, SHORTEST, &cable, &rates).meets_bar()
        };
        assert_eq!([ways(1.7, 0.0), ways(1.5, 0.0), ways(1.5, 0.2)], [Some(true), Some(false), None]);
        assert_eq!([ways(1.7, 0.2), ways(1.85, 0.2)], [None, Some(true)], "against the limit of one cable");
        assert!(row_figure(3, &cable, &[Err("it ended".to_owned())], 0.0).median().is_none());
    }
}

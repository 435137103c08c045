//! `crosslane bench steady`: many short ping-pongs on streams and on the kernel's TCP by turns: how often one is much
//! slower than the others, and the hypervisor's steal meanwhile.

pub mod args;
mod tally;

use crate::affinity::{confined, on};
use crate::calm::settle;
use crate::figure::{Figure, Sample, Unit};
use crate::frame::shared::Shared;
use crate::frame::{Experiment, Taken};
use crate::place::{self, InLab, Place};
use crate::program::process::Server;
use crate::program::{Effort, SOCKPERF, VETH, redis};
use anyhow::{Context, Result, ensure};
use crosslane_lab::Lab;
use crosslane_results::steal::Steal;
use indicatif::ProgressBar;
use tally::{Run, Turn};

/// Requests of the first run of redis-benchmark, whose rate sets those of a second.
const REQUESTS: u32 = 10_000;

/// Most us per round trip, in the mean of a second, for all but one second in twenty.
const MOST: f64 = 5.0;

/// The options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How many runs of each program on streams, and as many on TCP.
    pub turns: usize,
    /// Only these programs (by name); all if empty.
    pub only: Vec<String>,
    /// Whether everything runs on two processors.
    pub two_processors: bool,
}

/// What runs, by its name.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    title: &'static str,
    serve: fn(&dyn Place, u16) -> Result<Server>,
    /// The mean of a round trip, us, of a run that lasts a second if it is as fast as the last one.
    mean: fn(&dyn Place, u16, Option<f64>) -> Result<f64>,
}

const CASES: [Case; 2] = [
    Case {
        name: "sockperf",
        title: "round trip of 14 bytes",
        serve: SOCKPERF.serve,
        mean: |place, port, _| {
            let measured = (SOCKPERF.measure)(place, port, Effort::Short)?;
            measured.first().copied().context("nothing was measured")
        },
    },
    Case {
        name: "redis",
        title: "GET by one client",
        serve: redis::serve,
        mean: |place, port, last| Ok(1e6 / redis::rate(place, port, 1, requests(last))?),
    },
];

impl Plan {
    fn cases(&self) -> impl Iterator<Item = &'static Case> {
        CASES.iter().filter(|case| self.only.is_empty() || self.only.iter().any(|name| name == case.name))
    }
}

/// The experiment: a step for each program.
#[derive(Debug)]
pub struct Steady {
    plan: Plan,
    lab: Shared<Lab>,
}

impl Steady {
    /// Of this plan.
    pub fn new(plan: Plan) -> Self {
        Self { plan, lab: Shared::default() }
    }
}

impl Experiment for Steady {
    fn title(&self) -> String {
        let Plan { turns, two_processors, .. } = self.plan;
        format!("crosslane bench steady, {turns} turns of 1 s{}", on(two_processors))
    }

    fn steps(&self) -> Vec<String> {
        self.plan.cases().map(|case| case.name.to_owned()).collect()
    }

    fn take(&mut self, step: usize, progress: &ProgressBar) -> Result<Taken> {
        let case = self.plan.cases().nth(step).context("there is no such step")?;
        let _confined = confined(self.plan.two_processors)?;
        let count = self.plan.turns;
        let up = || place::up(&place::pair("steady"));
        let turns =
            self.lab.with(up, |lab| turns(case, &InLab::between(lab, "h1", "h2")?, count, progress))?;
        Ok(figures(case, &turns).into())
    }
}

/// How many requests make a second.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a second's requests")]
fn requests(mean: Option<f64>) -> u32 {
    mean.map_or(REQUESTS, |mean| (1e6 / mean) as u32).max(1)
}

/// One program at one place.
struct Side<'a> {
    case: &'a Case,
    place: &'a InLab<'a>,
    port: u16,
    _server: Server,
    /// us; of the last run, which says how long the next one is.
    mean: Option<f64>,
}

impl<'a> Side<'a> {
    fn begin(case: &'a Case, place: &'a InLab<'a>) -> Result<Self> {
        let port = place.port()?;
        let mut side = Self { case, place, port, _server: (case.serve)(place, port)?, mean: None };
        side.run()?;
        Ok(side)
    }

    fn run(&mut self) -> Result<Run> {
        settle();
        let begin = Steal::now();
        let mean = (self.case.mean)(self.place, self.port, self.mean)?;
        let steal = begin.since();
        ensure!(mean.is_finite() && mean > 0.0, "the program ran, but nothing got through");
        self.mean = Some(mean);
        Ok(Run { mean, steal })
    }
}

fn turns(case: &Case, places: &[InLab<'_>; 2], turns: usize, progress: &ProgressBar) -> Result<Vec<Turn>> {
    let before = places[0].carried();
    let mut streams = Side::begin(case, &places[0])?;
    let mut tcp = Side::begin(case, &places[1])?;
    let mut done = Vec::new();
    for turn in 1..=turns {
        progress.set_message(format!("{}, turn {turn} of {turns}", case.name));
        done.push(Turn { streams: streams.run()?, tcp: tcp.run()? });
    }
    ensure!(places[0].carried() > before, "no stream carried it: it ran over the kernel's TCP");
    Ok(done)
}

/// Times, steal and the two bars of one program.
fn figures(case: &Case, turns: &[Turn]) -> Vec<Figure> {
    let column = |runs: &[&Run], of: fn(&Run) -> f64| Sample::new(runs.iter().map(|run| of(run)).collect());
    let (streams, tcp): (Vec<_>, Vec<_>) = turns.iter().map(|turn| (&turn.streams, &turn.tcp)).unzip();
    let mean = Figure::new(case.name, case.title, Unit::Microseconds, column(&streams, |run| run.mean));
    let steal = Figure::new(case.name, STEAL, Unit::Percent, column(&streams, |run| run.steal));
    let part = |what: String, part: Option<f64>, bar: f64| {
        let sample = |value| Sample::new(vec![value]);
        let missing = part.is_none().then(|| "too much was stolen in every turn".to_owned());
        let figure = Figure::new(case.name, what, Unit::Percent, part.and_then(sample)).without(missing);
        figure.against(ALL, sample(100.0)).bar(ALL, bar, None)
    };
    vec![
        mean.against(VETH, column(&tcp, |run| run.mean)).by_turns(),
        steal.beside(VETH, column(&tcp, |run| run.steal)),
        part("turns in which TCP was not faster".to_owned(), tally::not_slower(turns), 1.0),
        part(format!("quiet runs of at most {MOST} us"), tally::at_most(turns, MOST), 0.95),
    ]
}

/// What the bars are held against.
const ALL: &str = "all";
/// Name of the figure of steal.
const STEAL: &str = "steal";

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(streams: f64, tcp: f64) -> Turn {
        Turn { streams: Run { mean: streams, steal: 0.0 }, tcp: Run { mean: tcp, steal: 9.0 } }
    }

    #[test]
    fn bar_is_met_by_steady_runs_and_missed_by_one_slower_than_tcp() {
        let good = vec![turn(1.0, 50.0); 20];
        assert!(figures(&CASES[0], &good).iter().all(|figure| figure.meets_bar() != Some(false)));
        let mut bad = good;
        bad[3] = turn(160.0, 50.0);
        let met: Vec<_> = figures(&CASES[0], &bad).iter().map(Figure::meets_bar).collect();
        assert_eq!(met, [None, None, Some(false), Some(true)]);
        bad[4] = turn(6.0, 50.0);
        assert_eq!(figures(&CASES[0], &bad)[3].meets_bar(), Some(false));
    }

    #[test]
    fn redis_second_has_the_rate_of_the_last_one() {
        assert_eq!([requests(None), requests(Some(4.0)), requests(Some(2e6))], [REQUESTS, 250_000, 1]);
    }
}

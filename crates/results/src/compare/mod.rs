//! What two results differ by, metric by metric, and how sure that is: `crosslane compare`. Decision 49 has the reasons.
//!
//! Runs are compared by their logarithms, so that a difference is a ratio: by ranks where there are ten runs or more of both, else by
//! Welch's test. Where both results have the same foreign reference, the runs' ratios to it are compared. All metrics are judged
//! together (Holm).

mod contrast;
mod holm;
mod movement;
mod pair;
mod ranks;
mod surroundings;
pub mod table;

use crate::figure::Figure;
use crate::report::Report;
use crate::unit::Unit;
use contrast::Contrast;
pub use movement::{Moved, Movement};
use pair::{Paired, Unfit};
use ranks::Known;
use serde::Serialize;
use std::fmt;

/// Where a difference of this many percent could have been overlooked, nothing is said of there being none.
const ROUGH: f64 = 20.0;

/// How two results are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// How sure all differences together must be, percent: 95.
    pub confidence: f64,
    /// Smaller differences do not count, percent.
    pub least: f64,
    /// Compare values as they are, not their ratios to references.
    pub values: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { confidence: 95.0, least: 0.0, values: false }
    }
}

/// What is said of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// B is better.
    Better,
    /// B is worse.
    Worse,
    /// No difference, or a smaller one than counts.
    Same,
    /// Too few runs: a large difference could have been overlooked.
    TooFew,
    /// It was not measured in one of them, or a value is not above 0.
    Unfit,
}

/// A change from A to B, percent of A.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The best guess.
    pub percent: f64,
    /// The interval begins here; -100 where nothing is known of it.
    pub low: f64,
    /// It ends here; `None` (JSON: null) where nothing is known of it.
    pub high: Option<f64>,
    /// How sure the interval is, percent: higher where many metrics are judged together.
    pub confidence: f64,
    /// The least change that would have been found nine times of ten; `None` if no change can be found.
    pub visible: Option<f64>,
    /// Probability of so large a difference if there is none.
    pub chance: f64,
}

/// A metric of both results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metric {
    /// Group of the figure.
    pub group: String,
    /// Its case.
    pub case: String,
    /// Its unit.
    pub unit: Unit,
    /// Medians of A and B, where they were measured.
    pub medians: [Option<f64>; 2],
    /// Numbers of runs.
    pub runs: [usize; 2],
    /// The reference to which the ratios were compared; the values themselves if there is none.
    pub against: Option<String>,
    /// The change of the value, or of its ratio.
    pub change: Option<Change>,
    /// What is said of it.
    pub verdict: Verdict,
    /// The same in words.
    pub says: String,
}

/// Two results beside each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Titles of A and B.
    pub titles: [String; 2],
    /// How sure all differences together are, percent.
    pub confidence: f64,
    /// Smaller differences do not count, percent.
    pub least: f64,
    /// Metrics of both.
    pub metrics: Vec<Metric>,
    /// Metrics of one of them, as "group, case".
    pub only: [Vec<String>; 2],
    /// What else the two differ by, and what disturbed them.
    pub notes: Vec<String>,
}

impl Comparison {
    /// Compares `a` with `b`.
    pub fn new(a: &Report, b: &Report, settings: Settings) -> Self {
        let Paired { both, only } = pair::paired(a, b);
        let mut known = Known::default();
        let found: Vec<_> =
            both.iter().map(|pair| pair::contrast(*pair, settings.values, &mut known)).collect();
        let chances: Vec<f64> =
            found.iter().filter_map(|(_, found)| Some(found.as_ref().ok()?.chance())).collect();
        let mut judged = holm::judge(&chances, 1.0 - settings.confidence / 100.0).into_iter();
        let metric = |(pair, (against, found)): (_, (Option<String>, Result<Contrast, Unfit>))| {
            let found = found.map(|found| {
                let judged = judged.next().expect("one for each contrast");
                (judged.differs, change(&found, judged.alpha))
            });
            Metric::new(pair, against, found, settings.least)
        };
        let name = |figure: &&Figure| format!("{}, {}", figure.group, figure.case);
        Self {
            titles: [a, b].map(|report| report.title.clone()),
            confidence: settings.confidence,
            least: settings.least,
            metrics: both.into_iter().zip(found).map(metric).collect(),
            only: only.map(|only| only.iter().map(name).collect()),
            notes: surroundings::notes(&[("A", a), ("B", b)]),
        }
    }

    /// How many metrics have this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.metrics.iter().filter(|metric| metric.verdict == verdict).count()
    }

    /// Whether anything could be told of any metric.
    pub fn tells(&self) -> bool {
        [Verdict::Better, Verdict::Worse, Verdict::Same].into_iter().any(|verdict| self.count(verdict) > 0)
    }
}

/// The change in percent, judged at `alpha`.
fn change(contrast: &Contrast, alpha: f64) -> Change {
    let percent = |difference: f64| 100.0 * difference.exp_m1();
    let (low, high) = contrast.interval(alpha);
    Change {
        percent: percent(contrast.difference()),
        low: percent(low),
        high: Some(percent(high)).filter(|high| high.is_finite()),
        confidence: 100.0 * (1.0 - alpha),
        visible: Some(percent(contrast.visible(alpha))).filter(|visible| visible.is_finite()),
        chance: contrast.chance(),
    }
}

impl Metric {
    /// `found`: whether there is a difference, and which.
    fn new(
        pair: [&Figure; 2],
        against: Option<String>,
        found: Result<(bool, Change), Unfit>,
        least: f64,
    ) -> Self {
        let [Figure { group, case, unit, .. }, _] = pair;
        let runs = pair.map(|figure| figure.sample.as_ref().map_or(0, |sample| sample.runs.len()));
        let verdict = match &found {
            Err(Unfit::SingleRun) => Verdict::TooFew,
            Err(Unfit::Missing | Unfit::NotPositive) => Verdict::Unfit,
            Ok((true, change)) if change.percent.abs() < least => Verdict::Same,
            Ok((true, change)) if (change.percent > 0.0) == unit.more_is_better() => Verdict::Better,
            Ok((true, _)) => Verdict::Worse,
            Ok((false, change)) if change.visible.is_none_or(|visible| visible > ROUGH) => Verdict::TooFew,
            Ok((false, _)) => Verdict::Same,
        };
        let says = match found {
            Err(unfit) => unfit_says(unfit, pair, runs),
            Ok((differs, change)) => says(verdict, *unit, differs, &change, runs),
        };
        let change = found.ok().map(|(_, change)| change);
        let medians = pair.map(Figure::median);
        Self {
            group: group.clone(),
            case: case.clone(),
            unit: *unit,
            medians,
            runs,
            against,
            change,
            verdict,
            says,
        }
    }
}

fn unfit_says(unfit: Unfit, pair: [&Figure; 2], runs: [usize; 2]) -> String {
    match unfit {
        Unfit::SingleRun => format!("too few runs to tell ({} and {})", runs[0], runs[1]),
        Unfit::NotPositive => "not compared: a value is not above 0".to_owned(),
        Unfit::Missing => {
            let missing = ["A", "B"].into_iter().zip(pair).filter(|(_, figure)| figure.sample.is_none());
            let names: Vec<&str> = missing.map(|(name, _)| name).collect();
            format!("not compared: not measured in {}", names.join(" and "))
        }
    }
}

fn says(verdict: Verdict, unit: Unit, differs: bool, change: &Change, runs: [usize; 2]) -> String {
    let word = |better: bool| match (unit.is_of_speed(), better) {
        (true, true) => "faster",
        (true, false) => "slower",
        (false, true) => "better",
        (false, false) => "worse",
    };
    let by = |better| format!("{} by {}", word(better), Extent(change));
    match verdict {
        Verdict::Better => by(true),
        Verdict::Worse => by(false),
        Verdict::Same if differs => {
            format!("no difference that counts ({})", by((change.percent > 0.0) == unit.more_is_better()))
        }
        Verdict::Same => {
            format!("no difference ({} % would have been seen)", places(change.visible.unwrap_or(0.0)))
        }
        Verdict::TooFew | Verdict::Unfit => {
            let seen = change
                .visible
                .filter(|visible| *visible < 1000.0)
                .map(|visible| format!(": less than {visible:.0} % would not have been seen"));
            format!("too few runs to tell ({} and {}){}", runs[0], runs[1], seen.unwrap_or_default())
        }
    }
}

/// The size of a change that is there, as "3.1 % (2.0 to 4.2)".
struct Extent<'a>(&'a Change);

impl fmt::Display for Extent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { percent, low, high, .. } = self.0;
        let high = high.unwrap_or(f64::INFINITY);
        let (near, far) = if *percent < 0.0 { (-high, -low) } else { (*low, high) };
        write!(f, "{} % ({} to {})", places(percent.abs()), places(near), places(far))
    }
}

/// A number of percent with as many places as tell something.
fn places(percent: f64) -> String {
    match percent.abs() {
        size if size >= 100.0 => format!("{percent:.0}"),
        size if size >= 1.0 => format!("{percent:.1}"),
        _ => format!("{percent:.2}"),
    }
}

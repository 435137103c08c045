//! The result of a measurement: one struct for all, however it was measured and is shown.

use crate::steal::{self, Steal};
use serde::Serialize;

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "&'static str")]
pub enum Unit {
    /// Gigabits (10^9) in a second.
    GigabitsPerSecond,
    /// Megabytes (10^6) in a second.
    MegabytesPerSecond,
    /// Nanoseconds.
    Nanoseconds,
    /// Microseconds.
    Microseconds,
    /// Times in a second.
    PerSecond,
    /// Megabytes (10^6) in a second of processor time, of all who take part.
    MegabytesPerProcessorSecond,
    /// Copies that were made of each byte.
    Copies,
    /// Messages.
    Messages,
    /// Percent.
    Percent,
    /// Percent of one processor.
    PercentOfCore,
    /// Cycles of the processor's constant clock, for each message.
    Cycles,
    /// Thousands of clocks of the stack study's processors (1.8 GHz).
    ThousandClocks,
}

impl Unit {
    /// As it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::GigabitsPerSecond => "Gb/s",
            Self::MegabytesPerSecond => "MB/s",
            Self::Nanoseconds => "ns",
            Self::Microseconds => "us",
            Self::PerSecond => "1/s",
            Self::MegabytesPerProcessorSecond => "MB/CPU s",
            Self::Copies => "copies",
            Self::Messages => "messages",
            Self::Percent => "%",
            Self::PercentOfCore => "% core",
            Self::Cycles => "cycles",
            Self::ThousandClocks => "10^3 clocks",
        }
    }

    /// Whether more is better.
    pub fn more_is_better(self) -> bool {
        matches!(
            self,
            Self::GigabitsPerSecond
                | Self::MegabytesPerSecond
                | Self::MegabytesPerProcessorSecond
                | Self::PerSecond
                | Self::Percent
        )
    }

    /// How many times better our value is.
    fn ratio(self, ours: f64, theirs: f64) -> f64 {
        if self.more_is_better() { ours / theirs } else { theirs / ours }
    }
}

/// As JSON has it: the whole name.
impl From<Unit> for &'static str {
    fn from(unit: Unit) -> Self {
        match unit {
            Unit::PercentOfCore => "% of a core",
            Unit::ThousandClocks => "10^3 clocks at 1.8 GHz",
            unit => unit.name(),
        }
    }
}

/// Repeated measurements of one thing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// The median, which stands for all.
    pub median: f64,
    /// Distance between the quartiles, as a part of the median.
    pub spread: f64,
    /// All of them, in the order they were taken.
    pub runs: Vec<f64>,
}

impl Sample {
    /// Spread above which a figure is called noisy.
    pub const NOISY: f64 = 0.15;

    /// A sample of these runs; `None` if there is none, or one is no number.
    pub fn new(runs: Vec<f64>) -> Option<Self> {
        if runs.is_empty() || runs.iter().any(|run| !run.is_finite()) {
            return None;
        }
        let mut sorted = runs.clone();
        sorted.sort_by(f64::total_cmp);
        let median = quantile(&sorted, 1, 2);
        let distance = quantile(&sorted, 3, 4) - quantile(&sorted, 1, 4);
        let spread = if median == 0.0 { 0.0 } else { (distance / median).abs() };
        Some(Self { median, spread, runs })
    }

    /// Every run and the median multiplied by `factor`.
    pub fn scaled(&self, factor: f64) -> Self {
        let runs = self.runs.iter().map(|run| run * factor).collect();
        Self { median: self.median * factor, spread: self.spread, runs }
    }
}

/// The quantile `part / whole` of sorted values, between neighbours where it falls between them.
fn quantile(sorted: &[f64], part: usize, whole: usize) -> f64 {
    let (last, rest) = (sorted.len() - 1, ((sorted.len() - 1) * part) % whole);
    let low = last * part / whole;
    let high = (low + 1).min(last);
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let weight = rest as f64 / whole as f64;
    sorted[low] + (sorted[high] - sorted[low]) * weight
}

/// A reference value, from the same run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reference {
    /// Its name: "loopback TCP", "bare ring".
    pub name: String,
    /// Its value.
    pub sample: Sample,
}

/// How good a figure must be, as a ratio to one of its references. A ratio is above 1 where we are better.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bar {
    /// Name of the reference.
    pub against: String,
    /// Least ratio.
    pub bar: f64,
    /// The ratio that we want, if it is more.
    pub goal: Option<f64>,
}

/// One thing measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The program or the part of `perf`.
    pub group: String,
    /// The case within it.
    pub case: String,
    /// Unit of all numbers of this figure.
    pub unit: Unit,
    /// What Crosslane reached.
    pub sample: Option<Sample>,
    /// Why there is no sample, in one line.
    pub missing: Option<String>,
    /// The references.
    pub references: Vec<Reference>,
    /// The bar.
    pub bar: Option<Bar>,
    /// The highest steal in one of its runs, percent, where each run was looked at.
    pub steal: Option<f64>,
    /// Its runs and those of its references took turns: ratios are medians of the ratios of single turns.
    pub by_turns: bool,
}

impl Figure {
    /// A figure without references.
    pub fn new(group: &str, case: impl Into<String>, unit: Unit, sample: Option<Sample>) -> Self {
        let missing = sample.is_none().then(|| "nothing was measured".to_owned());
        let (group, case, references) = (group.to_owned(), case.into(), Vec::new());
        Self { group, case, unit, sample, missing, references, bar: None, steal: None, by_turns: false }
    }

    /// A figure in place of all those of a part that failed: it misses its bar.
    pub fn failed(group: &str, why: &anyhow::Error) -> Self {
        let figure = Self::new(group, "all", Unit::PerSecond, None).bar("any figure", 1.0, None);
        figure.without(Some(format!("{why:#}")))
    }

    /// The same figure with the reference `sample`, if there is one.
    pub fn against(mut self, name: &str, sample: Option<Sample>) -> Self {
        self.references.extend(sample.map(|sample| Reference { name: name.to_owned(), sample }));
        self
    }

    /// The same figure, which is missing for a reason if there is one.
    pub fn without(mut self, why: Option<String>) -> Self {
        self.missing = why.or(self.missing);
        self
    }

    /// The same figure with a bar.
    pub fn bar(mut self, against: &str, bar: f64, goal: Option<f64>) -> Self {
        self.bar = Some(Bar { against: against.to_owned(), bar, goal });
        self
    }

    /// The same figure, whose runs took turns with those of its references: what disturbs both at a time does not
    /// count.
    pub fn by_turns(self) -> Self {
        Self { by_turns: true, ..self }
    }

    /// The ratios of single turns, if this and `reference` took turns and no run failed.
    pub fn ratios(&self, reference: &Reference) -> Option<Sample> {
        let (ours, theirs) = (&self.sample.as_ref()?.runs, &reference.sample.runs);
        if !self.by_turns || ours.len() != theirs.len() {
            return None;
        }
        Sample::new(ours.iter().zip(theirs).map(|(ours, theirs)| self.unit.ratio(*ours, *theirs)).collect())
    }

    /// How many times better than `reference` this is; below 1 where it is worse.
    pub fn ratio(&self, reference: &Reference) -> Option<f64> {
        if let Some(ratios) = self.ratios(reference) {
            return Some(ratios.median);
        }
        let (ours, theirs) = (self.median()?, reference.sample.median);
        let ratio = self.unit.ratio(ours, theirs);
        if ours == theirs { Some(1.0) } else { ratio.is_finite().then_some(ratio) }
    }

    /// The median of its sample.
    pub fn median(&self) -> Option<f64> {
        Some(self.sample.as_ref()?.median)
    }

    /// The reference of this name.
    pub fn reference(&self, name: &str) -> Option<&Reference> {
        self.references.iter().find(|reference| reference.name == name)
    }

    /// The ratios of single turns for the bar.
    pub fn bar_ratios(&self) -> Option<Sample> {
        self.ratios(self.reference(&self.bar.as_ref()?.against)?)
    }

    /// The ratio for the bar.
    pub fn bar_ratio(&self) -> Option<f64> {
        self.ratio(self.reference(&self.bar.as_ref()?.against)?)
    }

    /// Whether the bar is met; `None` if there is none, or nothing to compare.
    pub fn meets_bar(&self) -> Option<bool> {
        Some(self.bar_ratio()? >= self.bar.as_ref()?.bar)
    }

    /// The outcome of the bar, as a message.
    pub fn verdict(&self) -> &'static str {
        match self.meets_bar() {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "not measured",
        }
    }
}

/// The machine, as far as it explains figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Machine {
    /// Model name of the first processor.
    pub processor: String,
    /// Processors of the machine.
    pub processors: usize,
    /// Kernel name and version.
    pub kernel: String,
    /// Load average of the last minute when the run began; other work makes figures noisy.
    pub load: f64,
}

impl Machine {
    /// Looks at this machine. What cannot be read is empty or zero.
    pub fn here() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let info = read("/proc/cpuinfo");
        let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let uname = rustix::system::uname();
        Self {
            processor: model.map(|(_, name)| name.trim().to_owned()).unwrap_or_default(),
            processors: info.lines().filter(|line| line.starts_with("processor\t")).count(),
            kernel: uname.release().to_string_lossy().into_owned(),
            load: read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0),
        }
    }
}

/// All figures of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// What was run.
    pub title: String,
    /// Where.
    pub machine: Machine,
    /// The figures.
    pub figures: Vec<Figure>,
    /// Notes for the reader: noise, missing programs.
    pub warnings: Vec<String>,
    /// What the hypervisor had stolen when the run began.
    #[serde(skip)]
    pub began: Steal,
}

impl Report {
    /// An empty report of this machine.
    pub fn new(title: impl Into<String>) -> Self {
        let (machine, figures) = (Machine::here(), Vec::new());
        let mut warnings = Vec::new();
        #[expect(clippy::cast_precision_loss, reason = "a number of processors")]
        if machine.load > machine.processors as f64 / 2.0 {
            warnings.push(format!("the machine was busy (load {:.1}) when the run began", machine.load));
        }
        Self { title: title.into(), machine, figures, warnings, began: Steal::now() }
    }

    /// Puts the figures of each group together, groups in the order in which they first appear.
    pub fn gather_groups(&mut self) {
        let mut names: Vec<String> = self.figures.iter().map(|figure| figure.group.clone()).collect();
        let mut seen = std::collections::HashSet::new();
        names.retain(|name| seen.insert(name.clone()));
        self.figures.sort_by_key(|figure| names.iter().position(|name| *name == figure.group));
    }

    /// Adds a warning for each figure whose runs lie far apart, or were disturbed.
    pub fn warn_of_noise(&mut self) {
        for figure in &self.figures {
            let Figure { group, case, steal, sample, .. } = figure;
            if let Some(percent) = steal.filter(|percent| *percent > steal::MOST) {
                self.warnings.push(format!("{group}, {case}: disturbed, {percent:.0} % stolen in a run"));
            }
            if let Some(spread) = sample.as_ref().map(|it| it.spread).filter(|it| *it > Sample::NOISY) {
                let percent = spread * 100.0;
                self.warnings.push(format!("{group}, {case}: noisy, quartiles {percent:.0} % apart"));
            }
        }
    }

    /// The figure of a group and a case.
    pub fn find(&self, group: &str, case: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.group == group && figure.case == case)
    }

    /// Figures whose bar is not met, or could not be judged though they have one.
    pub fn failed(&self) -> impl Iterator<Item = &Figure> {
        self.figures.iter().filter(|figure| figure.bar.is_some() && figure.meets_bar() != Some(true))
    }
}

/// A size as a short text.
pub fn bytes(size: usize) -> String {
    match size {
        _ if size >= 1 << 20 && size.is_multiple_of(1 << 20) => format!("{} MB", size >> 20),
        _ if size >= 1 << 10 && size.is_multiple_of(1 << 10) => format!("{} KB", size >> 10),
        _ => format!("{size} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(runs: &[f64]) -> Option<Sample> {
        Sample::new(runs.to_vec())
    }

    #[test]
    fn figure_medians_and_quartiles() {
        let odd = sample(&[5.0, 1.0, 3.0, 2.0, 4.0]).unwrap();
        assert_eq!((odd.median, odd.spread), (3.0, 2.0 / 3.0));
        assert_eq!(sample(&[1.0, 2.0]).unwrap().median, 1.5);
        assert_eq!(sample(&[7.0]).unwrap().spread, 0.0);
        assert_eq!(sample(&[]), None);
        assert_eq!(sample(&[f64::NAN]), None);
    }

    #[test]
    fn figure_ratio_above_one_is_better_in_any_unit() {
        let rate = Figure::new("a", "b", Unit::PerSecond, sample(&[30.0])).against("tcp", sample(&[10.0]));
        let time = Figure::new("a", "b", Unit::Microseconds, sample(&[2.0])).against("tcp", sample(&[50.0]));
        assert_eq!(rate.ratio(&rate.references[0]), Some(3.0));
        assert_eq!(time.ratio(&time.references[0]), Some(25.0));
        assert_eq!(time.clone().bar("tcp", 25.0, Some(50.0)).meets_bar(), Some(true));
        assert_eq!(time.bar("tcp", 26.0, None).meets_bar(), Some(false));
    }

    #[test]
    fn figure_turns_are_compared_one_by_one() {
        let sample = |runs: &[f64]| Sample::new(runs.to_vec());
        let figure = |runs: &[f64]| {
            let ours = Figure::new("a", "b", Unit::MegabytesPerSecond, sample(runs)).by_turns();
            ours.against("other", sample(&[10.0, 40.0, 40.0])).bar("other", 0.9, None)
        };
        // Twice in the machine's slow state, and the other one once.
        let ours = figure(&[10.0, 20.0, 40.0]);
        assert_eq!((ours.bar_ratio(), ours.bar_ratios().unwrap().runs), (Some(1.0), vec![1.0, 0.5, 1.0]));
        assert_eq!(figure(&[10.0, 20.0]).bar_ratio(), Some(15.0 / 40.0), "a run failed");
    }

    #[test]
    fn figure_missing_misses_its_bar() {
        let mut report = Report::new("test");
        report.figures.push(Figure::new("a", "b", Unit::PerSecond, None).bar("tcp", 1.0, None));
        report.figures.push(Figure::failed("transit", &anyhow::anyhow!("no lab")));
        assert_eq!(report.failed().count(), 2);
    }
}

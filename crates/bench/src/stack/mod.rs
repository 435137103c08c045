//! `crosslane bench stack`: where the time of a message goes, by the functions of the TCP/IP study, in our streams and in the
//! kernel's TCP.
//!
//! Our streams count themselves ([`crosslane_shm::account`]) in unmodified programs ([`flow`]) between two hosts of a lab. The kernel
//! is sampled ([`sampler`]) while it serves the same programs, and the samples are attributed to the functions ([`attribute`]). In a
//! virtual machine ([`machine`]) the kernel is traced ([`graph`]) instead.

pub mod attribute;
pub mod command;
pub mod flow;
pub mod graph;
pub mod here;
pub mod machine;
pub mod part;
mod ping_pong;
mod rig;
pub mod sampler;
mod table;

use crate::calm::turn;
use crate::figure::{Compared, Figure, Sample, Unit};
use crate::frame::shared::Shared;
use crate::frame::{Experiment, Taken};
use crate::program::LOOPBACK;
use anyhow::Result;
use attribute::Profile;
use crosslane_lab::Options;
use crosslane_shm::account;
use indicatif::ProgressBar;
use part::{Cycles, Part, ROWS, SIZES, size_name};
use rig::{Kernel, Ours};
use sampler::why_sampled;
use serde::{Deserialize, Serialize};
use std::time::Duration;
pub use table::table;

/// A variant of our streams.
pub struct Variant {
    /// Its name in tables.
    pub name: &'static str,
    /// Options of its lab that others do not have.
    pub prepare: fn(&mut Options),
    /// Figures of a size that must be so many times better than loopback TCP's.
    pub bars: fn(usize) -> Vec<(&'static str, f64)>,
}

/// Those that are measured.
pub const VARIANTS: &[Variant] = &[
    Variant { name: "direct", prepare: |_| {}, bars: direct_bars },
    Variant { name: "offload", prepare: offloaded, bars: offload_bars },
];

/// Both ends' copies are made by their hosts' engines.
fn offloaded(options: &mut Options) {
    options.rules.extend(["client", "server"].map(|role| format!("offload on {role} * *:*")));
}

/// From 140 KB on, a tenth of the processor time that the kernel's TCP takes from the programs, and no less bandwidth.
fn offload_bars(size: usize) -> Vec<(&'static str, f64)> {
    if size < 140_000 { Vec::new() } else { vec![(RATE, 1.0), (PROGRAMS, 10.0)] }
}

/// More messages than loopback TCP and less processor time for each, at every size; from 64 KB far less.
fn direct_bars(size: usize) -> Vec<(&'static str, f64)> {
    vec![(RATE, 1.0), (PROGRAMS, if size < 64 << 10 { 1.0 } else { 2.5 })]
}

/// The options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Sizes of messages, bytes.
    pub sizes: Vec<usize>,
    /// Runs of each case.
    pub runs: usize,
    /// How long each of ours sends; the kernel, which is sampled, sends longer.
    pub time: Duration,
    /// How long the kernel's TCP sends.
    pub sampled: Duration,
}

impl Plan {
    /// The study's sizes; 140 KB alone if `quick`, in shorter runs.
    pub fn new(runs: usize, quick: bool) -> Self {
        let [time, sampled] = if quick { [150, 400] } else { [300, 1000] }.map(Duration::from_millis);
        let sizes = if quick { vec![SIZES[2]] } else { SIZES.to_vec() };
        Self { sizes, runs, time, sampled }
    }
}

/// The result of one run of one case.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Cycles a message by part.
    cycles: Cycles,
    /// Messages in a second, with nothing counted or as it was sampled.
    rate: f64,
    /// Cycles a message that the programs' processors spent, at both ends.
    programs: f64,
    /// The same of daemons.
    daemons: Option<f64>,
    /// Cycles a message that counting itself took.
    counting: Option<f64>,
    /// Messages in a second while functions were counted or traced.
    counted_rate: Option<f64>,
}

/// Lines below those of the study's functions.
const RATE: &str = "messages in a second";
const PROGRAMS: &str = "processor time of both programs";
const DAEMONS: &str = "processor time of both daemons";
const COUNTING: &str = "counting itself, while counted (about)";
const COUNTED_RATE: &str = "messages in a second while counted, traced";
/// Groups of figures that have the study's own.
const STUDY: &str = "study";

/// What all sizes need: a pair of labs for each variant, and the kernel that is watched.
struct Rig {
    ours: Vec<Ours>,
    kernel: Kernel,
}

impl Rig {
    fn new() -> Result<Self> {
        let ours = VARIANTS.iter().map(Ours::new).collect::<Result<_>>()?;
        Ok(Self { ours, kernel: Kernel::new()? })
    }

    /// All figures of a size, and the study's.
    fn figures(&mut self, plan: &Plan, size: usize) -> Result<Vec<Figure>> {
        let Self { ours, kernel } = self;
        let mut outcomes: Vec<Vec<Outcome>> = vec![Vec::new(); ours.len() + Kernel::PLACES.len()];
        for _ in 0..plan.runs {
            for (variant, outcomes) in ours.iter().zip(&mut outcomes) {
                outcomes.push(turn(|| variant.run(size, plan.time))?);
            }
            for (place, outcomes) in outcomes[ours.len()..].iter_mut().enumerate() {
                outcomes.push(turn(|| kernel.run(place, size, plan))?);
            }
        }
        let (mine, theirs) = outcomes.split_at(ours.len());
        let references: Vec<_> = Kernel::PLACES.into_iter().zip(theirs).collect();
        let mut all = Vec::new();
        for (variant, outcomes) in VARIANTS.iter().zip(mine) {
            let group = format!("{}, {}", size_name(size), variant.name);
            let mut figures = figures(&group, outcomes, &references);
            hold(&mut figures, &(variant.bars)(size));
            all.extend(figures);
        }
        all.extend(ping_pong::figures(ours, &kernel.lab, size, plan)?);
        all.extend(study(size));
        Ok(all)
    }
}

/// The experiment: a step for each size.
pub struct Stack {
    plan: Plan,
    rig: Shared<Rig>,
}

impl Stack {
    /// Of this plan.
    pub fn new(plan: Plan) -> Self {
        Self { plan, rig: Shared::default() }
    }
}

impl Experiment for Stack {
    fn title(&self) -> String {
        format!("crosslane bench stack, cycles a message by function, medians of {} runs", self.plan.runs)
    }

    fn steps(&self) -> Vec<String> {
        self.plan.sizes.iter().map(|size| size_name(*size)).collect()
    }

    /// A kernel that shows nothing of itself is no error but a note.
    fn take(&mut self, step: usize, _: &ProgressBar) -> Result<Taken> {
        let (plan, size) = (&self.plan, self.plan.sizes[step]);
        // What was seen of the kernel so far is said once, with the last size.
        let is_last = step + 1 == plan.sizes.len();
        let measured = |rig: &mut Rig| {
            let figures = rig.figures(plan, size)?;
            Ok(Taken { figures, notes: if is_last { notes(&rig.kernel) } else { Vec::new() } })
        };
        self.rig.with(Rig::new, measured)
    }
}

/// The figures of one variant and size, beside the kernel's.
fn figures(group: &str, ours: &[Outcome], theirs: &[(&'static str, &Vec<Outcome>)]) -> Vec<Figure> {
    type Value<'a> = &'a dyn Fn(&Outcome) -> Option<f64>;
    let sample = |of: &[Outcome], value: Value<'_>| Sample::new(of.iter().filter_map(value).collect());
    let figure = |label: &str, unit: Unit, value: Value<'_>| {
        let figure = Figure::new(group, label, unit, sample(ours, value));
        let figure = theirs.iter().fold(figure, |figure, (name, of)| figure.against(name, sample(of, value)));
        Figure { missing: None, ..figure.by_turns() }
    };
    let rows = ROWS.iter().map(|row| {
        let mut figure = figure(row.label, Unit::Cycles, &|it| it.cycles.sum(row.parts));
        // A hundred samples of the kernel's are no measure of a single small part.
        if row.is_small() {
            figure.references.iter_mut().for_each(|reference| reference.compared = Compared::Not);
        }
        figure
    });
    let others = [
        figure(PROGRAMS, Unit::Cycles, &|it| Some(it.programs)),
        figure(DAEMONS, Unit::Cycles, &|it| it.daemons),
        figure(COUNTING, Unit::Cycles, &|it| it.counting),
        figure(RATE, Unit::PerSecond, &|it| Some(it.rate)),
        figure(COUNTED_RATE, Unit::PerSecond, &|it| it.counted_rate),
    ];
    rows.chain(others).collect()
}

/// Gives figures their bars.
fn hold(figures: &mut [Figure], bars: &[(&'static str, f64)]) {
    for (case, least) in bars {
        for figure in figures.iter_mut().filter(|figure| figure.case == *case) {
            *figure = figure.clone().bar(LOOPBACK, *least, None);
        }
    }
}

/// The study's figures of a size, if it has that, in its own unit.
fn study(size: usize) -> Vec<Figure> {
    let group = format!("{}, {STUDY}", size_name(size));
    let at = SIZES.iter().position(|known| *known == size);
    let figure = |(at, row): (usize, &part::Row)| {
        let sample = Sample::new(vec![f64::from(row.study?[at])]);
        Some(Figure::new(&group, row.label, Unit::ThousandClocks, sample))
    };
    at.into_iter().flat_map(|at| ROWS.iter().map(move |row| (at, row))).filter_map(figure).collect()
}

/// Notes for the reader: the cost of counting, how the kernel was observed, and where its parts were found.
fn notes(kernel: &Kernel) -> Vec<String> {
    let (on, off) = (account::overhead(), account::idle());
    let mut notes = vec![format!(
        "counting a span takes {:.0} cycles, {:.0} of which are in that function's own figure{}",
        on.whole,
        on.inside,
        off.map(|off| format!("; not counting it {off:.1}")).unwrap_or_default()
    )];
    if let Some(why) = &kernel.refused {
        notes.push(format!("the kernel's functions are missing: {why}"));
        return notes;
    }
    let Kernel { congestion, profile, .. } = kernel;
    notes.extend([
        format!("the kernel's figures are sampled, not counted: {}", why_sampled()),
        format!(
            "TCP's congestion control is {congestion}; the timers of one that paces (bbr) are in send: other"
        ),
        format!(
            "{} samples are of the two programs; {} more of TCP and IP are not in the figures: in soft interrupts of idle \
             processors, and of other connections",
            profile.total(),
            profile.elsewhere()
        ),
    ]);
    let single = ROWS.iter().filter(|row| row.parts.len() == 1);
    notes.extend(single.map(|row| found(profile, row.parts[0], row.label)));
    notes
}

/// The kernel's functions in which a part was seen.
fn found(profile: &Profile, part: Part, label: &str) -> String {
    let symbols = profile.symbols(part);
    match (symbols.is_empty(), part) {
        (true, Part::Program) => return format!("{label}: samples outside of the kernel"),
        (true, _) => return format!("{label}: none of its functions was seen"),
        (false, _) => {}
    }
    let names: Vec<String> = symbols.iter().map(|(name, count)| format!("{name} {count}")).collect();
    format!("{label}: {} (samples)", names.join(", "))
}

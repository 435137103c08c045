//! `crosslane bench kernel`: the kernel's own clients of an NTB bridge, and Crosslane on the same bridge, by turns; study 1's comparison
//! of TCP over NTB with direct access, on a Linux NTB between two virtual machines.
//!
//! `rig` has the machines and who has the bridge, which `client.sh` changes inside of them; `turns` what is run; `window` bare stores.

pub mod args;
mod read;
mod rig;
mod table;
mod turns;
mod window;

use crate::figure::{Figure, Sample, Unit};
use crate::frame::{Experiment, Taken};
use crate::progress::print;
use anyhow::{Result, ensure};
use crosslane_apps::need::{Need, missing};
use indicatif::ProgressBar;
use rig::Rig;
use std::path::PathBuf;
use turns::{By, Run, What};

/// How many times better than `ntb_netdev` sockets are to be: in rate at 128 KB, and in time one way.
const BAR: f64 = 3.0;
/// What must be installed: the machines run what is here.
const NEEDS: &[Need] = &[
    Need::new("qemu-system-x86_64", "qemu-system-x86"),
    Need::new("iperf3", "iperf3"),
    Need::new("sockperf", "sockperf"),
    Need::new("ping", "iputils-ping"),
    Need::new("ip", "iproute2"),
    Need::new("insmod", "kmod"),
];

/// The options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How often each has the bridge.
    pub turns: usize,
    /// How long each run of a program lasts, s.
    pub seconds: u32,
    /// Folder of the machines' image; where it usually is if `None`.
    pub image: Option<PathBuf>,
}

/// The experiment: one step, since each turn counts by those beside it.
#[derive(Debug)]
pub struct KernelClients {
    plan: Plan,
}

impl KernelClients {
    /// Of this plan.
    pub fn new(plan: Plan) -> Self {
        Self { plan }
    }
}

impl Experiment for KernelClients {
    fn title(&self) -> String {
        let Plan { turns, seconds, .. } = self.plan;
        format!(
            "crosslane bench kernel, two virtual machines, one bridge, medians of {turns} turns of {seconds} s"
        )
    }

    fn steps(&self) -> Vec<String> {
        vec!["all turns".to_owned()]
    }

    /// Boots the machines and measures. What fails in a machine is left out, and a note says why.
    fn take(&mut self, _: usize, progress: &ProgressBar) -> Result<Taken> {
        if let Some(need) = missing(NEEDS) {
            anyhow::bail!("{} is not installed ({})", need.what, need.source);
        }
        eprintln!("  two virtual machines boot; without KVM that takes a minute or two");
        let mut rig = Rig::up(self.plan.image.clone())?;
        let accelerator = rig.accelerator().to_owned();
        let mut taken = measure(&mut rig, &self.plan, progress)?;
        rig.down()?;
        taken.notes.push(match accelerator.as_str() {
            "kvm" => "the machines run on kvm".to_owned(),
            _ => "without KVM the machines are emulated: only ratios mean anything".to_owned(),
        });
        Ok(taken)
    }
}

/// All turns.
fn measure(rig: &mut Rig, plan: &Plan, progress: &ProgressBar) -> Result<Taken> {
    let (mut all, mut notes) = (Vec::new(), Vec::new());
    for number in 1..=plan.turns {
        match turns::turn(rig, number % 2 == 1, plan.seconds, progress) {
            Ok(runs) => {
                print(progress, &line(number, &runs));
                all.push(runs);
            }
            Err(error) if all.is_empty() => return Err(error),
            // Turns that were whole say something still.
            Err(error) => {
                notes.push(format!("turn {number} and those behind it are left out: {error:#}"));
                break;
            }
        }
    }
    ensure!(all.iter().flatten().any(|(_, _, run)| run.is_ok()), "nothing could be measured");
    let mut taken = gather(&all);
    taken.notes.splice(0..0, notes);
    Ok(taken)
}

/// One turn in one line.
fn line(number: usize, runs: &[Run]) -> String {
    let part = |(what, by, run): &Run| {
        let (what_name, by) = (what.name(), by.name(*what));
        match run {
            Ok(value) => format!("{what_name} by {by} {value:.1} {}", unit(*what).name()),
            Err(error) => format!("{what_name} by {by}: {error:#}"),
        }
    };
    format!("  turn {number}: {}", runs.iter().map(part).collect::<Vec<_>>().join("; "))
}

fn unit(what: What) -> Unit {
    match what {
        What::Copy | What::Bulk => Unit::MegabytesPerSecond,
        What::Message | What::Echo => Unit::Microseconds,
    }
}

/// Figures of all turns, each beside the stock client's of the same turns, and why runs are missing.
fn gather(turns: &[Vec<Run>]) -> Taken {
    let mut taken = Taken::default();
    let cases = [
        (What::Copy, By::Memcpy),
        (What::Copy, By::RepMovs),
        (What::Bulk, By::Sockets),
        (What::Bulk, By::Ip),
        (What::Message, By::Sockets),
        (What::Message, By::Ip),
        (What::Echo, By::Ip),
    ];
    for (what, by) in cases {
        let stock = By::Stock.name(what);
        let sample = |by| Sample::new(values(turns, what, by));
        let figure = Figure::new(what.name(), by.name(what), unit(what), sample(by));
        let mut figure = figure.against(stock, sample(By::Stock)).by_turns();
        if by == By::Sockets {
            figure = figure.bar(stock, BAR, None);
        }
        taken.figures.push(figure);
    }
    for (number, runs) in (1..).zip(turns) {
        taken.notes.extend(runs.iter().filter_map(|(what, by, run)| {
            let (name, by) = (what.name(), by.name(*what));
            Some(format!("turn {number}, {name} by {by}: {:#}", run.as_ref().err()?))
        }));
    }
    taken
}

/// What was measured of this in all turns.
fn values(turns: &[Vec<Run>], what: What, by: By) -> Vec<f64> {
    let wanted = turns.iter().flatten().filter(|run| (run.0, run.1) == (what, by));
    wanted.filter_map(|(_, _, run)| run.as_ref().ok().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    fn one_turn(sockets: Result<f64>) -> Vec<Run> {
        vec![
            (What::Bulk, By::Stock, Ok(10.0)),
            (What::Bulk, By::Sockets, sockets),
            (What::Message, By::Stock, Ok(3000.0)),
            (What::Message, By::Sockets, Ok(2000.0)),
        ]
    }

    fn find<'a>(figures: &'a [Figure], what: What, by: &str) -> &'a Figure {
        figures.iter().find(|figure| figure.group == what.name() && figure.case == by).unwrap()
    }

    #[test]
    fn turns_become_figures_with_bars_for_sockets() {
        let figures = gather(&[one_turn(Ok(30.0)), one_turn(Ok(50.0))]).figures;
        let met = |what: What, by: By| find(&figures, what, by.name(what)).meets_bar();
        assert_eq!(met(What::Bulk, By::Sockets), Some(true));
        assert_eq!(met(What::Message, By::Sockets), Some(false));
        assert_eq!(met(What::Message, By::Ip), None);
        assert_eq!(figures.iter().filter(|figure| figure.bar.is_some()).count(), 2);
    }

    #[test]
    fn turns_that_failed_are_left_out_and_say_why() {
        let turns = [one_turn(Err(anyhow!("no stream"))), one_turn(Ok(50.0))];
        let taken = gather(&turns);
        let figure = find(&taken.figures, What::Bulk, "sockets");
        assert_eq!((figure.median(), figure.bar_ratio()), (Some(50.0), Some(5.0)));
        assert_eq!(taken.notes, ["turn 1, iperf3, 128 KB by sockets: no stream"]);
        assert!(
            line(1, &turns[0]).contains("iperf3, 128 KB by sockets: no stream"),
            "{}",
            line(1, &turns[0])
        );
    }
}

//! `crosslane bench stack --machine`: the same table in a virtual machine, whose kernel has the tracer that this one may lack.

use super::here::{By, Said};
use super::part::size_name;
use super::{Outcome, Plan, figures, study};
use crate::calm::turn;
use crate::frame::shared::Shared;
use crate::frame::{Experiment, Taken};
use crate::place;
use crate::program::process::run;
use crate::progress::print;
use crate::speaker::own_program;
use anyhow::{Context, Result};
use crosslane_lab::{Lab, Options, Preload};
use crosslane_shm::account;
use indicatif::ProgressBar;
use std::path::PathBuf;
use std::time::Duration;

/// How long the machines may take to boot; without KVM they share a processor with all the rest.
const BOOT: Duration = Duration::from_secs(300);
/// How long one measurement may take beside the time in which messages are sent: without KVM reading a trace takes long.
const BESIDE: Duration = Duration::from_secs(120);
/// Where everything runs.
const HOST: &str = "h1";
/// Names of the columns.
const OURS: &str = "inside a host";
const KERNEL: &str = "loopback TCP, traced";

/// The experiment: a step for each size.
#[derive(Debug)]
pub struct StackInMachine {
    plan: Plan,
    image: Option<PathBuf>,
    lab: Shared<Lab>,
}

impl StackInMachine {
    /// Of this plan. `image`: the folder of the machines' image; where it usually is if `None`.
    pub fn new(plan: Plan, image: Option<PathBuf>) -> Self {
        Self { plan, image, lab: Shared::default() }
    }
}

impl Experiment for StackInMachine {
    fn title(&self) -> String {
        let runs = self.plan.runs;
        format!(
            "crosslane bench stack, cycles a message by function in a virtual machine, medians of {runs} runs"
        )
    }

    fn steps(&self) -> Vec<String> {
        self.plan.sizes.iter().map(|size| size_name(*size)).collect()
    }

    fn take(&mut self, step: usize, progress: &ProgressBar) -> Result<Taken> {
        let (plan, image, size) = (&self.plan, &self.image, self.plan.sizes[step]);
        self.lab.with(|| boot(image.clone()), |lab| measure(lab, plan, size, progress))
    }
}

/// Boots the machines.
fn boot(image: Option<PathBuf>) -> Result<Lab> {
    let mut options =
        Options { machines: Some(place::machines(image)?), patience: BOOT, ..place::pair("stack") };
    // Without them the daemon leaves loopback to the kernel.
    options.rules.extend(["client", "server"].map(|role| format!("use both {role} * 127.0.0.0/8:*")));
    eprintln!("  two virtual machines boot; without KVM that takes a minute or two");
    place::up(&options)
}

/// One size, in one of the machines. What was traced is said with the plan's last size.
fn measure(lab: &Lab, plan: &Plan, size: usize, progress: &ProgressBar) -> Result<Taken> {
    let (mut ours, mut kernel, mut last) = (Vec::new(), Vec::new(), None);
    for run in 1..=plan.runs {
        progress.set_message(format!("{}, run {run} of {}", size_name(size), plan.runs));
        ours.push(turn(|| ask(lab, By::Ours, size, plan.time))?.outcome);
        let said = turn(|| ask(lab, By::Kernel, size, plan.time))?;
        kernel.push(said.outcome);
        last = Some(said);
    }
    print(progress, &format!("  {}: {}", size_name(size), rates(&ours, &kernel)));
    let group = format!("{}, {OURS}", size_name(size));
    let figures = figures(&group, &ours, &[(KERNEL, &kernel)]).into_iter().chain(study(size)).collect();
    let accelerator = lab.state().accelerator.as_deref().unwrap_or_default();
    let is_last = plan.sizes.last() == Some(&size);
    Ok(Taken { figures, notes: if is_last { notes(last.as_ref(), accelerator) } else { Vec::new() } })
}

/// Measures once in the machine.
fn ask(lab: &Lab, by: By, size: usize, time: Duration) -> Result<Said> {
    let (preload, name) = match by {
        By::Ours => (Preload::On, "ours"),
        By::Kernel => (Preload::Off, "kernel"),
    };
    let mut command = lab.command(HOST, preload, own_program()?)?;
    command.args(["bench", "stack", "--here", name, &size.to_string(), &time.as_millis().to_string()]);
    let said = run(command, time * 2 + BESIDE).with_context(|| format!("{name} in the machine"))?;
    serde_json::from_str(said.trim()).with_context(|| format!("the machine says {said:?}"))
}

fn rates(ours: &[Outcome], kernel: &[Outcome]) -> String {
    let last = |of: &[Outcome]| of.last().map_or(0.0, |outcome| outcome.rate);
    format!("{:.0} messages in a second by streams, {:.0} by TCP", last(ours), last(kernel))
}

/// Notes for the reader: what was traced, and what that costs.
fn notes(kernel: Option<&Said>, accelerator: &str) -> Vec<String> {
    let mut notes = vec![format!(
        "all is inside one machine; the kernel's functions are traced by function_graph, each with what the tracer takes, which \
         \"messages in a second\" with and without show; counting a span of ours takes {:.0} cycles outside of a machine",
        account::overhead().whole
    )];
    if accelerator != "kvm" {
        notes.push("without KVM the machine is emulated: only ratios mean anything".to_owned());
    }
    if let Some(said) = kernel {
        let calls: Vec<String> = said.calls.iter().map(|(name, calls)| format!("{name} {calls}")).collect();
        notes.push(format!("Linux {}, congestion control {}", said.kernel, said.congestion));
        notes.push(format!("functions of the last run, with their calls: {}", calls.join(", ")));
    }
    notes
}

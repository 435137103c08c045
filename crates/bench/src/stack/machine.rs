//! `crosslane bench stack --machine`: the same table in a virtual machine, whose kernel has the tracer that this one may lack.

use super::here::{By, Said};
use super::part::size_name;
use super::{Outcome, Plan, figures, study};
use crate::figure::Report;
use crate::place;
use crate::program::process::run;
use crate::progress::{USUAL, print, progress};
use crate::speaker::own_program;
use anyhow::{Context, Result};
use crosslane_lab::{Lab, Options, Preload};
use crosslane_shm::account;
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

/// Boots the machines and measures `plan` in one of them.
///
/// # Errors
/// There is no image, the machines do not boot, a program fails, or their kernel has no such tracer.
pub fn measure(plan: &Plan, image: Option<PathBuf>) -> Result<Report> {
    let mut options =
        Options { machines: Some(place::machines(image)?), patience: BOOT, ..place::pair("stack") };
    // Without them the daemon leaves loopback to the kernel.
    options.rules.extend(["client", "server"].map(|role| format!("use both {role} * 127.0.0.0/8:*")));
    eprintln!("  two virtual machines boot; without KVM that takes a minute or two");
    let lab = place::up(&options)?;
    let accelerator = lab.state().accelerator.clone().unwrap_or_default();
    let mut report = Report::new(format!(
        "Cycles a message by function in a virtual machine ({accelerator}), medians of {} runs",
        plan.runs
    ));
    let progress = progress((2 * plan.runs * plan.sizes.len()) as u64, USUAL);
    let mut last = None;
    for &size in &plan.sizes {
        let (mut ours, mut kernel) = (Vec::new(), Vec::new());
        for _ in 0..plan.runs {
            ours.push(ask(&lab, By::Ours, size, plan.time)?.outcome);
            progress.inc(1);
            let said = ask(&lab, By::Kernel, size, plan.time)?;
            kernel.push(said.outcome);
            progress.inc(1);
            last = Some(said);
        }
        print(&progress, &format!("  {}: {}", size_name(size), rates(&ours, &kernel)));
        let group = format!("{}, {OURS}", size_name(size));
        report.figures.extend(figures(&group, &ours, &[(KERNEL, &kernel)]));
    }
    progress.finish_and_clear();
    place::down(lab)?;
    report.figures.extend(study(&plan.sizes));
    report.gather_groups();
    report.warnings.extend(notes(last.as_ref(), &accelerator));
    Ok(report)
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

//! One program on streams and on TCP, by turns.

use super::catalogue::App;
use super::sides::Sides;
use super::spent::Hosts;
use super::{BAR, Plan};
use crate::calm::steady;
use crate::figure::{Figure, Sample, Unit};
use crate::place::{InLab, Place, daemons};
use crate::program::VETH;
use crate::program::process::{Server, run};
use anyhow::{Context, Result, ensure};
use crosslane_apps::Site;
use crosslane_lab::Lab;
use indicatif::ProgressBar;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// How long a client may take in addition to the time that it measures.
const BESIDE: Duration = Duration::from_secs(40);

/// Interfaces of streams and of the kernel's TCP in each host: the fabric's, and the first cable's veth.
const INTERFACES: [&str; 2] = ["xl0", "c1"];

/// The results of all turns: streams first, then TCP.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs {
    rates: [Vec<f64>; 2],
    /// Processor time of one unit of work, us.
    spent: [Vec<f64>; 2],
    /// The highest steal of a run that counts, percent.
    steal: f64,
}

impl Runs {
    /// Rate and processor time, each beside TCP's.
    pub(super) fn figures(self, app: &App) -> Vec<Figure> {
        let steal = Some(self.steal);
        let figure = |case: &str, unit, [ours, tcp]: [Vec<f64>; 2]| {
            let figure = Figure::new(app.name, case, unit, Sample::new(ours)).against(VETH, Sample::new(tcp));
            Figure { steal, ..figure.by_turns() }
        };
        let spent = format!("processor time, {}", app.per);
        vec![
            figure(app.title, app.unit, self.rates).bar(VETH, BAR, None),
            figure(&spent, Unit::Microseconds, self.spent),
        ]
    }
}

/// Starts the servers on both ways and lets the client run by turns.
///
/// # Errors
/// A server does not listen, a client fails, or no stream carried what should be on one.
pub(super) fn by_turns(app: &App, lab: &Lab, plan: &Plan, progress: &ProgressBar) -> Result<Runs> {
    let places = InLab::between(lab, "h1", "h2")?;
    let folder = lab.folder().join(app.name);
    fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    let hosts = Hosts::of(&daemons(lab))?;
    let mut runs = Runs::default();
    let mut sides = Vec::new();
    for (place, interface) in places.iter().zip(INTERFACES) {
        sides.push(Way::begin(app, place, &folder, interface)?);
    }
    if app.warm_up > 0.0 {
        progress.set_message(format!("{}, warming up", app.name));
        sides.iter().try_for_each(|way| way.run(app, &hosts, app.warm_up).map(drop))?;
    }
    for turn in 1..=plan.turns {
        for (number, way) in sides.iter().enumerate() {
            let (place, turns) = (way.place.name(), plan.turns);
            progress.set_message(format!("{} over {place}, turn {turn} of {turns}", app.name));
            let ((rate, spent), steal) = steady(|| way.run(app, &hosts, plan.seconds))?;
            runs.rates[number].push(rate);
            runs.spent[number].push(spent);
            runs.steal = runs.steal.max(steal);
        }
    }
    Ok(runs)
}

/// One way, with its servers.
struct Way<'a> {
    place: &'a InLab<'a>,
    folder: &'a Path,
    interface: &'a str,
    port: u16,
    /// In the order in which they were started.
    servers: Vec<Server>,
}

impl<'a> Way<'a> {
    fn begin(app: &App, place: &'a InLab<'a>, folder: &'a Path, interface: &'a str) -> Result<Self> {
        let mut way = Self { place, folder, interface, port: place.port()?, servers: Vec::new() };
        way.servers = way.with(|sides| (app.serve)(&sides.server)).context("the server")?;
        Ok(way)
    }

    fn with<T>(&self, f: impl FnOnce(&Sides<'_>) -> Result<T>) -> Result<T> {
        let (near, far) =
            (|program: &str| self.place.client(program), |program: &str| self.place.server(program));
        let (address, port) = (self.place.address(), self.port);
        let site = |start| Site { start, folder: self.folder, address, port };
        f(&Sides { client: site(&near), server: site(&far), interface: self.interface })
    }

    /// Rate, and processor time of one unit of work, us.
    fn run(&self, app: &App, hosts: &Hosts, seconds: f64) -> Result<(f64, f64)> {
        let command = self.with(|sides| app.ask(sides, seconds))?;
        let (carried, before, daemons) = (self.place.carried(), hosts.spent(), hosts.spent_by_daemons());
        let said = run(command, BESIDE + Duration::from_secs_f64(seconds))?;
        let (spent, daemons) = (hosts.spent() - before, hosts.spent_by_daemons() - daemons);
        let work = (app.read)(&said)?;
        // A client that reports its processor time knows it better: some of its processes are nobody's children.
        let spent = work.processor.map_or(spent, |processor| processor + daemons);
        ensure!(
            carried.is_none() || self.place.carried() > carried,
            "no stream carried it: it ran over the kernel's TCP"
        );
        Ok((work.rate(), spent * 1e6 / work.count))
    }
}

impl Drop for Way<'_> {
    /// What was started last goes first.
    fn drop(&mut self) {
        while self.servers.pop().is_some() {}
    }
}

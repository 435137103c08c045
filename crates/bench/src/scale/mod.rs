//! `crosslane bench scale`: what is left when there are many: connections between two hosts ([`crowd`]), hosts in a ring of this machine, and
//! hosts in a ring of virtual time.

pub mod args;
pub mod crowd;

use crate::calm::turn;
use crate::figure::{Figure, Sample, Unit, bytes};
use crate::frame::shared::Shared;
use crate::frame::{Experiment, Taken};
use crate::place::{self, daemons};
use crate::program::VETH;
use crate::program::process::Server;
use crate::program::used;
use crate::ring::Rig as Hosts;
use crate::speaker::{Speaker, own_program};
use anyhow::{Context, Result};
use crosslane_client::session::{FILES, OWN_CALLS_VARIABLE};
use crosslane_lab::{Lab, Options, Preload, Topology};
use crosslane_pcie::Cable;
use crosslane_plan::{Forwarding, Settings, plan};
use crowd::{Asked, Opened};
use indicatif::ProgressBar;
use std::time::Duration;

/// Ports of the answering programs: on streams, and on the kernel's TCP.
const PORT: u16 = 23_100;
const PLAIN_PORT: u16 = 23_101;
/// Fewer connections are opened in too short a time for a rate.
const FEW: u32 = 10;
/// Bytes of a write between hosts, and how long each sends, ms.
const SIZE: usize = 64 << 10;
const MILLIS: u64 = 300;
/// How long idle daemons are watched.
const IDLE: Duration = Duration::from_secs(2);
/// Percent of a processor that count as nothing.
const LEAST: f64 = 0.01;
/// What the cables of virtual time are, and what settles its order of messages.
const CABLE: &str = "gen3 x8, mps 256, copper 2 m";
const SEED: u64 = 1;
/// The formulas, as a reference.
const FORMULA: &str = "formula";

/// The options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Numbers of connections.
    pub connections: Vec<u32>,
    /// Numbers of hosts of this machine.
    pub hosts: Vec<u8>,
    /// Numbers of hosts of virtual time.
    pub simulated: Vec<u16>,
    /// Runs of each case.
    pub runs: usize,
    /// How long connections are used in each, ms.
    pub millis: u64,
}

/// The experiment: a step for each number.
#[derive(Debug)]
pub struct Scale {
    plan: Plan,
    pair: Shared<Pair>,
}

/// Two hosts, one of which answers.
#[derive(Debug)]
struct Pair {
    lab: Lab,
    _servers: [Server; 2],
}

impl Scale {
    /// Of this plan.
    pub fn new(plan: Plan) -> Self {
        Self { plan, pair: Shared::default() }
    }
}

impl Experiment for Scale {
    fn title(&self) -> String {
        let Plan { runs, millis, .. } = self.plan;
        format!("crosslane bench scale, medians of {runs} runs, connections used for {millis} ms")
    }

    fn steps(&self) -> Vec<String> {
        let Plan { connections, hosts, simulated, .. } = &self.plan;
        let connections = connections.iter().map(|count| format!("{count} connections"));
        let hosts = hosts.iter().map(|count| format!("{count} hosts"));
        let simulated = simulated.iter().map(|count| format!("{count} simulated hosts"));
        connections.chain(hosts).chain(simulated).collect()
    }

    fn take(&mut self, step: usize, progress: &ProgressBar) -> Result<Taken> {
        let plan = &self.plan;
        if let Some(&count) = plan.connections.get(step) {
            return self.pair.with(Pair::new, |pair| pair.connections(plan, count, progress));
        }
        self.pair.drop_it();
        let step = step - plan.connections.len();
        match plan.hosts.get(step) {
            Some(&count) => hosts(plan, count),
            None => simulated(plan.simulated[step - plan.hosts.len()], progress),
        }
    }
}

impl Pair {
    fn new() -> Result<Self> {
        let lab = place::up(&place::pair("scale"))?;
        let serve = |preload, port: u16| {
            let mut server = lab.command("h2", preload, own_program()?)?;
            server.env(OWN_CALLS_VARIABLE, FILES).args(["bench", "scale", "--answer", &port.to_string()]);
            Server::start(server, port)
        };
        let servers = [serve(Preload::On, PORT)?, serve(Preload::Off, PLAIN_PORT)?];
        Ok(Self { lab, _servers: servers })
    }

    /// Connections that were opened a second, and what came of asking on them.
    fn ask(&self, preload: Preload, count: u32, millis: u64) -> Result<(f64, Asked)> {
        let to = match preload {
            Preload::On => format!("{}:{PORT}", self.lab.address("h2")?),
            Preload::Off => format!("{}:{PLAIN_PORT}", self.lab.baseline("h1", "h2")?),
        };
        let mut client = self.lab.command("h1", preload, own_program()?)?;
        client.env(OWN_CALLS_VARIABLE, FILES);
        client.args(["bench", "scale", "--ask", &to, &count.to_string(), &millis.to_string()]);
        let mut client = Speaker::start(client)?;
        let Opened { seconds } = client.receive().with_context(|| format!("{count} connections"))?;
        let asked = client.receive().with_context(|| format!("asking on {count} connections"))?;
        Ok((f64::from(count) / seconds, asked))
    }

    /// All figures of a number of connections.
    fn connections(&self, plan: &Plan, count: u32, progress: &ProgressBar) -> Result<Taken> {
        let (mut ours, mut tcp, mut streams) = (Vec::new(), Vec::new(), Vec::new());
        for run in 1..=plan.runs {
            progress.set_message(format!("{count} connections, run {run} of {}", plan.runs));
            let (asked, opened) = turn(|| {
                let before = self.opened();
                let asked = self.ask(Preload::On, count, plan.millis)?;
                Ok((asked, self.opened().saturating_sub(before)))
            })?;
            ours.push(asked);
            #[expect(clippy::cast_precision_loss, reason = "a share")]
            streams.push(100.0 * opened as f64 / f64::from(count));
            tcp.push(turn(|| self.ask(Preload::Off, count, plan.millis))?);
        }
        let case = format!("{count} connections");
        let figure = |group: &str, unit, value: fn(&(f64, Asked)) -> f64| {
            let sample = |all: &[(f64, Asked)]| Sample::new(all.iter().map(value).collect());
            Figure::new(group, case.clone(), unit, sample(&ours)).against(VETH, sample(&tcp)).by_turns()
        };
        let p99 = |all: &[(f64, Asked)]| Sample::new(all.iter().map(|(_, asked)| asked.p99_us).collect());
        let mut figures = vec![
            figure("connections: echoes of 64 bytes a second", Unit::PerSecond, |(_, asked)| asked.rate),
            figure("connections: an echo, median", Unit::Microseconds, |(_, asked)| asked.median_us),
            Figure::new("connections: an echo, 99 of 100", case.clone(), Unit::Microseconds, p99(&ours))
                .beside(VETH, p99(&tcp)),
        ];
        if count >= FEW {
            let first = |(_, asked): &(f64, Asked)| asked.first;
            figures.extend([
                figure("connections: first echo of each, a second", Unit::PerSecond, first),
                figure("connections: opened a second", Unit::PerSecond, |(opened, _)| *opened),
            ]);
        }
        let streams = Sample::new(streams);
        figures.push(Figure::new("connections: of them streams", case.clone(), Unit::Percent, streams));
        Ok(figures.into())
    }

    /// Stream ends that programs in `h1` have got so far.
    fn opened(&self) -> u64 {
        self.lab.status("h1").unwrap_or_default().counters.streams_opened
    }
}

/// A ring of so many hosts, each of which sends to the next one; then nothing moves.
fn hosts(plan: &Plan, count: u8) -> Result<Taken> {
    let topology = if count == 2 { Topology::Pair } else { Topology::Ring };
    let ring = Hosts::of(&Options { hosts: count, topology, ..Options::scratch("scale") })?;
    let names: Vec<String> = (1..=count).map(|host| format!("h{host}")).collect();
    let next = |at: usize| names[(at + 1) % names.len()].as_str();
    let flows: Vec<_> = names.iter().enumerate().map(|(at, name)| (name.as_str(), next(at))).collect();
    let (mut ours, mut veth, mut idle) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.runs {
        for (preload, sums) in [(Preload::On, &mut ours), (Preload::Off, &mut veth)] {
            sums.push(ring.rates(preload, &flows, SIZE, MILLIS)?.iter().sum::<f64>());
        }
        idle.push(used(&daemons(ring.lab()), IDLE)?.max(LEAST));
    }
    let case = format!("{count} hosts");
    let sum = format!("hosts: each to the next one, {} at a time, sum", bytes(SIZE));
    Ok(vec![
        Figure::new(&sum, case.clone(), Unit::MegabytesPerSecond, Sample::new(ours))
            .against(VETH, Sample::new(veth))
            .by_turns(),
        Figure::new("hosts: all idle daemons together", case, Unit::PercentOfCore, Sample::new(idle)),
    ]
    .into())
}

/// A ring of so many hosts in virtual time, each number beside its formula.
fn simulated(count: u16, progress: &ProgressBar) -> Result<Taken> {
    let cable: Cable = CABLE.parse()?;
    let topology = if count == 2 { "pair" } else { "ring" }.parse()?;
    let forwarding = Forwarding::default();
    let settings = Settings { hosts: count, topology, cable, forwarding, streams: 1, lost: Vec::new() };
    let mut tell = |name: &str, share: f64| progress.set_message(format!("{name}, {:.0} %", 100.0 * share));
    let planned = plan(&settings, Some(SEED), &mut tell)?;
    let figure = |it: &crosslane_plan::Figure| {
        let (unit, scale) = match it.unit {
            crosslane_plan::Unit::Rate => (Unit::MegabytesPerSecond, 1e-6),
            crosslane_plan::Unit::Time => (Unit::Nanoseconds, 1.0),
        };
        let sample = |value: f64| Sample::new(vec![value * scale]);
        // The plan's own names say how many cables, which each number of hosts has more of.
        let key = serde_json::to_value(it.quantity).unwrap_or_default();
        let group = format!("simulated ring: {}", key.as_str().unwrap_or_default().replace('_', " "));
        Figure::new(&group, format!("{count} hosts"), unit, it.simulated.and_then(sample))
            .against(FORMULA, sample(it.formula))
    };
    let figures: Vec<Figure> =
        planned.whole.figures.iter().filter(|it| it.simulated.is_some()).map(figure).collect();
    Ok(figures.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_of_virtual_time_has_the_simulator_beside_the_formula() {
        let figures = simulated(4, &ProgressBar::hidden()).unwrap().figures;
        assert!(figures.iter().any(|figure| figure.group == "simulated ring: all to all"), "{figures:?}");
        for figure in &figures {
            let ratio = figure.ratio(figure.reference(FORMULA).unwrap()).unwrap();
            assert!((0.5..2.0).contains(&ratio), "{figure:?}");
        }
    }

    #[test]
    fn scale_steps_have_different_names() {
        let plan = Plan { connections: vec![2], hosts: vec![2], simulated: vec![2], runs: 1, millis: 1 };
        assert_eq!(Scale::new(plan).steps(), ["2 connections", "2 hosts", "2 simulated hosts"]);
    }
}

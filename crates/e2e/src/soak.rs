//! The soak: four flows round a ring of four hosts whose bytes are all compared, while cables are cut and mended and
//! programs and daemons killed, at moments that follow from a seed.
//!
//! A transfer may break off only if one of its ends or the daemon of one of its hosts was killed, or the network was
//! torn apart between them. It may end early without an error only if its sender was killed. No byte may ever be wrong.
//! The daemons of the first two hosts are never killed: at rest they must hold no more descriptors, shared or resident
//! memory at the end than after the warm-up.

mod dice;
mod flow;
mod growth;
mod network;

pub use flow::Tally;
pub use growth::{Holding, descriptors_by_kind};

use crate::rig::Rig;
use crate::{PATIENCE, wait_for};
use anyhow::{Context, Result, ensure};
use crosslane_lab::{Options, Topology};
use dice::Dice;
use flow::Flow;
use network::Network;
use rustix::process::Signal;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The hosts of the ring.
const HOSTS: [&str; 4] = ["h1", "h2", "h3", "h4"];
/// Hosts from this one on may lose their daemon.
const MORTAL: usize = 2;
/// Who sends to whom: neighbours and those across, mortal hosts and others.
const FLOWS: [(usize, usize); 4] = [(0, 1), (1, 3), (2, 0), (3, 2)];
/// Time between two faults, milliseconds.
const FAULT_MS: (u64, u64) = (30, 700);
/// How long a daemon stays dead, milliseconds.
const DEAD_MS: (u64, u64) = (0, 1500);
/// Pause of the loop that watches.
const LOOK: Duration = Duration::from_millis(5);
/// Time between two lines of progress.
const SAY: Duration = Duration::from_secs(10);

/// The options.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How long.
    pub time: Duration,
    /// Seed of faults, lengths and bytes.
    pub seed: u64,
    /// Set by a caller that wants an early end.
    pub stop: Arc<AtomicBool>,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// How long it took, s.
    pub seconds: u64,
    /// All transfers.
    pub tally: Tally,
    /// Cables cut, mended, programs killed, daemons killed.
    pub faults: Faults,
    /// Holdings of the daemons that were never killed, after the warm-up and at the end.
    pub held: Vec<(String, Holding, Holding)>,
}

/// Faults so far.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Faults {
    /// Cables cut.
    pub cuts: u64,
    /// Cables mended.
    pub mends: u64,
    /// Programs killed that sent.
    pub senders: u64,
    /// Programs killed that received.
    pub servers: u64,
    /// Daemons killed.
    pub daemons: u64,
}

/// The soak under way.
struct Soak {
    rig: Rig,
    dice: Dice,
    network: Network,
    flows: Vec<Flow>,
    faults: Faults,
    next_fault: Instant,
    /// Daemons that are to be started again, and when.
    dead: Vec<(usize, Instant)>,
    said: Instant,
    begun: Instant,
}

/// Soaks; `None`, loudly, where the kernel lets this user make no namespaces.
///
/// # Errors
/// Something was wrong: the text says what, and ends with the daemons' stories.
pub fn run(plan: &Plan) -> Result<Option<Report>> {
    let options = Options { hosts: 4, topology: Topology::Ring, ..Options::scratch("soak") };
    let Some(rig) = Rig::up(options)? else { return Ok(None) };
    let mut soak = Soak::begin(rig, plan.seed)?;
    match soak.whole(plan) {
        Ok(held) => Ok(Some(soak.report(plan.seed, held))),
        Err(error) => {
            let stories: String = HOSTS.iter().map(|host| soak.rig.story(host)).collect();
            let last: String = stories.chars().skip(stories.chars().count().saturating_sub(20_000)).collect();
            Err(error.context(format!("seed {} after {:?}\n{last}", plan.seed, soak.begun.elapsed())))
        }
    }
}

impl Soak {
    fn begin(rig: Rig, seed: u64) -> Result<Self> {
        let now = Instant::now();
        let flows = FLOWS.iter().map(|(from, to)| Flow::start(&rig, *from, *to)).collect::<Result<_>>()?;
        Ok(Self {
            rig,
            dice: Dice::new(seed),
            network: Network::ring(),
            flows,
            faults: Faults::default(),
            next_fault: now,
            dead: Vec::new(),
            said: now,
            begun: now,
        })
    }

    /// A warm-up of a tenth, then the rest; returns the holdings of the immortal daemons after each.
    fn whole(&mut self, plan: &Plan) -> Result<Vec<(String, Holding, Holding)>> {
        let end = self.begun + plan.time;
        self.torment(self.begun + plan.time / 10, &plan.stop)?;
        let first = self.rest()?;
        self.torment(end, &plan.stop)?;
        let last = self.rest()?;
        let held = HOSTS.iter().zip(first.into_iter().zip(last));
        let held: Vec<_> = held.map(|(host, (first, last))| ((*host).to_owned(), first, last)).collect();
        for (host, first, last) in &held {
            last.has_not_grown(first).with_context(|| self.growth_of(host))?;
        }
        Ok(held)
    }

    fn growth_of(&self, host: &str) -> String {
        let pid = self.rig.lab.daemon(host).ok().flatten().map_or(0, |daemon| daemon.pid);
        format!("the daemon of {host} has grown; its descriptors now: {:?}", descriptors_by_kind(pid))
    }

    fn torment(&mut self, end: Instant, stop: &AtomicBool) -> Result<()> {
        while Instant::now() < end && !stop.load(Relaxed) {
            if Instant::now() >= self.next_fault {
                self.fault()?;
                self.next_fault = Instant::now() + self.dice.pause(FAULT_MS.0, FAULT_MS.1);
            }
            self.step(true)?;
            self.say();
        }
        Ok(())
    }

    /// One look at everything; returns whether a transfer is under way.
    fn step(&mut self, more: bool) -> Result<bool> {
        self.raise_the_dead(Instant::now())?;
        self.network.note();
        let mut busy = false;
        for flow in &mut self.flows {
            busy |= flow.step(&self.rig, &self.network, &mut self.dice, more)?;
        }
        std::thread::sleep(LOOK);
        Ok(busy)
    }

    /// Mends everything, lets transfers end, and waits until nothing is left of them; returns the holdings of the
    /// immortal daemons then.
    fn rest(&mut self) -> Result<Vec<Holding>> {
        for cable in self.network.cables(false) {
            self.set_cable(cable, true)?;
        }
        self.dead.iter_mut().for_each(|(_, at)| *at = Instant::now());
        while self.step(false)? {}
        let (rig, immortal) = (&self.rig, &HOSTS[..MORTAL]);
        wait_for("nothing is left of the transfers", PATIENCE * 3, || {
            let left = immortal.iter().map(|host| rig.account(host).map_or(1, |it| it.circuits)).sum::<u64>();
            if left == 0 { Ok(()) } else { Err(format!("{left} circuits")) }
        })?;
        immortal.iter().map(|host| self.holding(host)).collect()
    }

    fn holding(&self, host: &str) -> Result<Holding> {
        let daemon = self.rig.lab.daemon(host)?;
        ensure!(daemon.is_some_and(|daemon| daemon.alive()), "the daemon of {host} has ended");
        Holding::of(daemon.map_or(0, |daemon| daemon.pid))
    }

    /// A second cable is cut now and then: then the ring falls apart.
    fn fault(&mut self) -> Result<()> {
        let (whole, cut) = (self.network.cables(true), self.network.cables(false));
        match self.dice.below(20) {
            0..7 if cut.is_empty() || cut.len() == 1 && self.dice.below(4) == 0 => {
                let chosen = self.dice.below(whole.len());
                self.set_cable(whole[chosen], false)
            }
            0..14 if !cut.is_empty() => {
                let chosen = self.dice.below(cut.len());
                self.set_cable(cut[chosen], true)
            }
            14..17 => {
                self.faults.senders += 1;
                let flow = self.dice.below(FLOWS.len());
                self.flows[flow].kill_sender()
            }
            17 => {
                self.faults.servers += 1;
                let flow = self.dice.below(FLOWS.len());
                self.flows[flow].kill_server(&self.rig)
            }
            18 if self.dead.is_empty() => self.kill_daemon(),
            _ => Ok(()),
        }
    }

    fn set_cable(&mut self, cable: (usize, usize), whole: bool) -> Result<()> {
        let (one, other) = (HOSTS[cable.0], HOSTS[cable.1]);
        // Before the daemons notice.
        self.network.set_cable(cable, whole);
        if whole {
            self.faults.mends += 1;
            self.rig.lab.mend(one, other)?;
        } else {
            self.faults.cuts += 1;
            self.rig.lab.cut(one, other)?;
        }
        self.network.set_cable(cable, whole);
        Ok(())
    }

    fn kill_daemon(&mut self) -> Result<()> {
        let host = MORTAL + self.dice.below(HOSTS.len() - MORTAL);
        self.faults.daemons += 1;
        self.network.set_daemon(host, false);
        self.rig.lab.kill_daemon(HOSTS[host], Signal::KILL)?;
        let at = Instant::now() + self.dice.pause(DEAD_MS.0, DEAD_MS.1);
        self.dead.push((host, at));
        Ok(())
    }

    fn raise_the_dead(&mut self, now: Instant) -> Result<()> {
        let due: Vec<usize> = self.dead.iter().filter(|(_, at)| *at <= now).map(|(host, _)| *host).collect();
        for host in due {
            self.dead.retain(|(dead, _)| *dead != host);
            self.rig.lab.start_daemon(HOSTS[host])?;
            self.network.set_daemon(host, true);
        }
        Ok(())
    }

    fn tally(&self) -> Tally {
        self.flows.iter().fold(Tally::default(), |sum, flow| Tally {
            transfers: sum.transfers + flow.tally.transfers,
            whole: sum.whole + flow.tally.whole,
            broken: sum.broken + flow.tally.broken,
            bytes: sum.bytes + flow.tally.bytes,
        })
    }

    fn say(&mut self) {
        if self.said.elapsed() >= SAY {
            self.said = Instant::now();
            let seconds = self.begun.elapsed().as_secs();
            eprintln!("soak: {seconds} s, {:?}, {:?}", self.tally(), self.faults);
        }
    }

    fn report(&self, seed: u64, held: Vec<(String, Holding, Holding)>) -> Report {
        Report {
            seed,
            seconds: self.begun.elapsed().as_secs(),
            tally: self.tally(),
            faults: self.faults,
            held,
        }
    }
}

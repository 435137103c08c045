//! One flow: a server on one host, and a program on another that sends to it, one transfer after the other.

use super::HOSTS;
use super::dice::Dice;
use super::network::Network;
use crate::honest::public_copy;
use crate::program::Program;
use crate::rig::Rig;
use anyhow::{Result, bail, ensure};
use rustix::process::Signal;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Longest transfer: two to the power of this, bytes.
const LONGEST: u64 = 27;
/// Pause after a transfer that broke off.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a transfer may take, cuts and all: then it hangs.
const HANGS: Duration = Duration::from_secs(90);

/// The results of transfers so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Begun.
    pub transfers: u64,
    /// Arrived whole.
    pub whole: u64,
    /// Broken off, since an end was killed or the network was torn apart.
    pub broken: u64,
    /// Bytes that were compared.
    pub bytes: u64,
}

/// Host numbers count from 0.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) from: usize,
    pub(super) to: usize,
    port: u16,
    server: Program,
    /// When the server was killed last.
    server_killed: Option<Instant>,
    /// How much of the server's output was read.
    read: usize,
    transfer: Option<Transfer>,
    /// When the next transfer may begin: after one that broke off there is a pause.
    next: Instant,
    /// Senders that were killed, by the seeds of their transfers: what they sent may end early.
    killed: BTreeSet<u64>,
    pub(super) tally: Tally,
}

#[derive(Debug)]
struct Transfer {
    program: Program,
    seed: u64,
    begun: Instant,
}

impl Flow {
    pub(super) fn start(rig: &Rig, from: usize, to: usize) -> Result<Self> {
        let port = rig.port();
        let server = start_server(rig, to, port)?;
        let (tally, killed, next) = (Tally::default(), BTreeSet::new(), Instant::now());
        Ok(Self { from, to, port, server, server_killed: None, read: 0, transfer: None, next, killed, tally })
    }

    /// Ends a transfer that is over and, if `more`, begins the next one. `Ok(true)`: a transfer is under way.
    pub(super) fn step(&mut self, rig: &Rig, network: &Network, dice: &mut Dice, more: bool) -> Result<bool> {
        self.read_results()?;
        let name = self.name();
        if let Some(transfer) = &mut self.transfer {
            if transfer.program.is_over() {
                self.conclude(network)?;
            } else if transfer.begun.elapsed() > HANGS {
                bail!("{name}: transfer {} hangs{}", transfer.seed, transfer.program.tail());
            }
        }
        let may_begin = more && self.next <= Instant::now();
        if self.transfer.is_none() && may_begin && network.runs(self.from) && network.runs(self.to) {
            self.begin(rig, dice)?;
        }
        Ok(self.transfer.is_some())
    }

    /// Kills the program that sends, if one does.
    pub(super) fn kill_sender(&mut self) -> Result<()> {
        if let Some(transfer) = &mut self.transfer
            && !transfer.program.is_over()
        {
            self.killed.insert(transfer.seed);
            transfer.program.signal(Signal::KILL)?;
        }
        Ok(())
    }

    /// Kills the server and starts another one in its place.
    pub(super) fn kill_server(&mut self, rig: &Rig) -> Result<()> {
        self.server.kill()?;
        self.read_results()?;
        self.server_killed = Some(Instant::now());
        self.server = start_server(rig, self.to, self.port)?;
        self.read = 0;
        Ok(())
    }

    fn begin(&mut self, rig: &Rig, dice: &mut Dice) -> Result<()> {
        let (seed, len) = (dice.number(), dice.length(LONGEST));
        let program = public_copy(rig, "crosslane-flow")?;
        let address = rig.address(HOSTS[self.to])?.to_string();
        let words = ["client", &address, &self.port.to_string(), &seed.to_string(), &len.to_string()];
        let mut command = rig.command(HOSTS[self.from], program)?;
        let program = Program::start(command.args(words))?;
        self.transfer = Some(Transfer { program, seed, begun: Instant::now() });
        self.tally.transfers += 1;
        Ok(())
    }

    /// The sending program has ended: well, or for a known reason.
    fn conclude(&mut self, network: &Network) -> Result<()> {
        let Some(mut transfer) = self.transfer.take() else { return Ok(()) };
        if transfer.program.wait(HANGS)?.success() {
            self.tally.whole += 1;
            return Ok(());
        }
        let server_killed =
            self.server_killed.is_some_and(|at| at + Duration::from_secs(1) >= transfer.begun);
        let known = self.killed.contains(&transfer.seed)
            || server_killed
            || network.excuses(self.from, self.to, transfer.begun);
        let (name, tail) = (self.name(), transfer.program.tail());
        ensure!(known, "{name}: transfer {} was broken off for no reason:{tail}", transfer.seed);
        self.tally.broken += 1;
        self.next = Instant::now() + PAUSE;
        Ok(())
    }

    /// Reads the server's results.
    fn read_results(&mut self) -> Result<()> {
        let output = self.server.output();
        let fresh = output.get(self.read..).unwrap_or_default();
        let Some(end) = fresh.iter().rposition(|byte| *byte == b'\n') else { return Ok(()) };
        self.read += end + 1;
        for line in String::from_utf8_lossy(&fresh[..end]).lines() {
            let found: Value = serde_json::from_str(line)?;
            self.tally.bytes += found["at"].as_u64().unwrap_or(0);
            let (seed, end) = (found["seed"].as_u64().unwrap_or(0), found["end"].as_str().unwrap_or("wrong"));
            // One that was killed before it had named its transfer ends early, too.
            let cut_off = end == "short" && (self.killed.contains(&seed) || found["at"] == 0);
            ensure!(end == "whole" || end == "reset" || cut_off, "{}: the server got {line}", self.name());
        }
        Ok(())
    }

    fn name(&self) -> String {
        format!("flow {} to {}", HOSTS[self.from], HOSTS[self.to])
    }
}

fn start_server(rig: &Rig, host: usize, port: u16) -> Result<Program> {
    let program = public_copy(rig, "crosslane-flow")?;
    let mut command = rig.command(HOSTS[host], program)?;
    let mut server = Program::start(command.args(["server", &port.to_string()]))?;
    server.listens_to_tcp(port)?;
    Ok(server)
}

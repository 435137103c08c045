//! Two virtual machines with one bridge between them, and who has it.

use crate::place;
use crate::program::process::{Server, run};
use crate::speaker::own_program;
use anyhow::{Context, Result};
use crosslane_lab::{Lab, Options, Preload};
use rustix::process::Signal;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// Hosts of clients and of servers.
pub(super) const CLIENT: &str = "h1";
pub(super) const SERVER: &str = "h2";
/// Addresses of `ntb_netdev`'s interfaces in these two.
const ADDRESSES: [&str; 2] = ["10.88.0.1", "10.88.0.2"];
/// Port of the first server.
const FIRST_PORT: u16 = 5301;
/// The bridge, as Crosslane's module has it.
const DEVICE: &str = "/dev/crosslane0";
/// What changes who has the bridge.
const SCRIPT: &str = include_str!("client.sh");
/// How long machines may take to boot, and links to come up; without KVM they share a processor with all the rest.
const BOOT: Duration = Duration::from_secs(300);
/// How long anything in a machine may take in addition to what it is asked for.
pub(super) const BESIDE: Duration = Duration::from_secs(60);
/// Order of the bytes that `ntb_perf` copies in a run: about a second's without KVM, and with it.
const PERF_ORDER: [&str; 2] = ["26", "32"];

/// The machines. Between two who have the bridge nobody has it in either: the kernel's clients wait long for a peer of another kind.
pub(super) struct Rig {
    lab: Lab,
    ports: AtomicU16,
}

impl Rig {
    /// Boots the machines. Nobody has the bridge.
    pub(super) fn up(image: Option<PathBuf>) -> Result<Self> {
        let options =
            Options { machines: Some(place::machines(image)?), patience: BOOT, ..place::pair("kernel") };
        let mut rig = Self { lab: place::up(&options)?, ports: AtomicU16::new(FIRST_PORT) };
        rig.stop_daemons()?;
        Ok(rig)
    }

    /// Ends the machines.
    pub(super) fn down(self) -> Result<()> {
        place::down(self.lab)
    }

    /// How the machines are run: `kvm` or `tcg`.
    pub(super) fn accelerator(&self) -> &str {
        self.lab.state().accelerator.as_deref().unwrap_or_default()
    }

    /// The address of the server's host by `ntb_netdev`.
    pub(super) fn stock_address() -> Result<IpAddr> {
        Ok(ADDRESSES[1].parse()?)
    }

    /// Its address on the fabric.
    pub(super) fn address(&self) -> Result<IpAddr> {
        Ok(self.lab.address(SERVER)?)
    }

    /// A port that no server has had: connections to an earlier one may still be in TIME_WAIT.
    pub(super) fn new_port(&self) -> u16 {
        self.ports.fetch_add(1, Relaxed)
    }

    /// Bytes that programs of the client's host have sent by streams.
    pub(super) fn sent(&self) -> Result<u64> {
        Ok(self.lab.status(CLIENT)?.counters.stream_tx_bytes)
    }

    /// What `program` prints in the client's host, if it takes no longer than `time` and what is allowed beside.
    pub(super) fn ask(
        &self,
        preload: Preload,
        program: &str,
        arguments: &[&str],
        time: Duration,
    ) -> Result<String> {
        let mut command = self.lab.command(CLIENT, preload, program)?;
        command.args(arguments);
        run(command, time + BESIDE).with_context(|| program.to_owned())
    }

    /// Starts a server in its host, which listens on `port`.
    pub(super) fn serve(
        &self,
        preload: Preload,
        program: &str,
        arguments: &[&str],
        port: u16,
    ) -> Result<Server> {
        let mut command = self.lab.command(SERVER, preload, program)?;
        command.args(arguments);
        let ready = || self.script(SERVER, &["listen", &format!("{port:04X}")]).map(drop);
        Server::start_elsewhere(command, ready).with_context(|| format!("the server {program}"))
    }

    /// What the script says in a host.
    fn script(&self, host: &str, words: &[&str]) -> Result<String> {
        let mut command = self.lab.command(host, Preload::Off, "sh")?;
        command.args(["-c", SCRIPT, "sh"]).args(words);
        run(command, BESIDE).with_context(|| format!("{} in {host}", words.join(" ")))
    }

    /// Runs the script in both hosts at once, each with words of its own.
    fn both(&self, words: [&[&str]; 2]) -> Result<()> {
        thread::scope(|scope| {
            let far = scope.spawn(|| self.script(SERVER, words[1]));
            self.script(CLIENT, words[0])?;
            far.join().map_or_else(|_| anyhow::bail!("a thread has panicked"), |outcome| outcome.map(drop))
        })
    }

    /// Takes the bridge from whoever has it.
    pub(super) fn leave(&self) -> Result<()> {
        self.both([&["leave"]; 2])
    }

    /// The rate of stock `ntb_perf`, as it prints it.
    pub(super) fn ntb_perf(&self) -> Result<String> {
        let order = PERF_ORDER[usize::from(self.accelerator() == "kvm")];
        self.both([&["perf", order]; 2])?;
        self.script(CLIENT, &["copy"])
    }

    /// Gives the bridge to stock `ntb_netdev`, and waits until packets go through.
    pub(super) fn netdev(&self) -> Result<()> {
        self.both([&["netdev", ADDRESSES[0]], &["netdev", ADDRESSES[1]]])?;
        self.script(CLIENT, &["reach", ADDRESSES[1]]).map(drop)
    }

    /// Gives the bridge to Crosslane's module. No daemon runs.
    pub(super) fn crosslane(&self) -> Result<()> {
        self.both([&["load", "crosslane_ntb"]; 2])
    }

    /// The rate of stores into the window, MB/s, by `memcpy` or by `rep movs`, as long as no daemon has it.
    pub(super) fn stores(&self, rep_movs: bool, seconds: u32) -> Result<f64> {
        let program = own_program()?;
        let mut hold = self.lab.command(SERVER, Preload::Off, &program)?;
        hold.args(["bench", "kernel", "--hold", DEVICE]);
        let _held = Server::start_speaking_within(hold, BESIDE)?;
        let mut pour = self.lab.command(CLIENT, Preload::Off, &program)?;
        pour.args(["bench", "kernel", "--pour", DEVICE, "--seconds", &seconds.to_string()]);
        pour.args(rep_movs.then_some("--rep-movs"));
        let rate = run(pour, Duration::from_secs(seconds.into()) + BESIDE)?;
        rate.trim().parse().with_context(|| format!("no rate: {rate}"))
    }

    /// Starts the daemons and waits until they have their link.
    pub(super) fn start_daemons(&mut self) -> Result<()> {
        for host in [CLIENT, SERVER] {
            self.lab.start_daemon(host)?;
        }
        Ok(self.lab.wait_links(BOOT)?)
    }

    /// Ends the daemons, and takes the bridge from Crosslane's module.
    pub(super) fn stop_daemons(&mut self) -> Result<()> {
        for host in [CLIENT, SERVER] {
            self.lab.kill_daemon(host, Signal::KILL)?;
        }
        self.leave()
    }
}

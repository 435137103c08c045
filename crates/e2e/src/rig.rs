//! A lab for one test, programs in its hosts, and what the daemons counted.

use crate::{PATIENCE, package, program, wait_for};
use anyhow::{Context, Result, ensure};
use crosslane_lab::{
    CableKind, Lab, LabError, Options, Posted, Preload, Topology, malloc_library, preload_list,
};
use crosslane_status::{Holds, Status};
use std::cell::Cell;
use std::ffi::OsStr;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// First port that servers get; below the range that the kernel gives to clients.
const FIRST_PORT: u16 = 20_000;

/// A lab and a folder for one test; both are gone when it is dropped.
#[derive(Debug)]
pub struct Rig {
    /// The lab.
    pub lab: Lab,
    folder: TempDir,
    port: Cell<u16>,
    malloc: Cell<bool>,
}

/// Counters and holdings of one host's daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Payload that programs sent by streams, bytes.
    pub sent: u64,
    /// Payload that programs received by streams, bytes.
    pub received: u64,
    /// Stream ends that programs got.
    pub opened: u64,
    /// Stream ends that were broken off here.
    pub aborted: u64,
    /// Bytes of IP packets into the fabric and out of it.
    pub ip_bytes: u64,
    /// Times that somebody broke the protocol.
    pub violations: u64,
    /// Stream ends that are there now.
    pub circuits: u64,
    /// Window memory in use now, all ports, bytes.
    pub window_used: u64,
    /// Programs with a session now.
    pub sessions: u64,
}

/// Delays of stores, us, as `10` or `0-1000`: then all cables are posted ones, unless a test has chosen.
const DELAY: &str = "CROSSLANE_E2E_DELAY_US";
/// Inbound memory of each port, as the daemon's `window`.
const WINDOW: &str = "CROSSLANE_E2E_WINDOW";

/// Set: each stream between two hosts uses two circuits, over a second cable or the other way round.
const STRIPE: &str = "CROSSLANE_E2E_STRIPE";

/// The same lab with cables as the environment chooses, so that one suite runs on each kind.
fn cabled(mut options: Options) -> Result<Options> {
    if let Ok(delay) = std::env::var(DELAY)
        && options.cable_kind == CableKind::Soft
    {
        let (least, most) = delay.split_once('-').unwrap_or((&delay, &delay));
        let bounds = least.parse().and_then(|least| Ok((least, most.parse()?)));
        let delay_us = Some(bounds.with_context(|| format!("{DELAY}: `{delay}` is no number or range"))?);
        options.cable_kind = CableKind::Posted(Posted { delay_us, seed: Some(1), ..Posted::default() });
    }
    // A test about another window keeps it.
    if let Ok(window) = std::env::var(WINDOW)
        && options.window == Options::named("").window
    {
        options.window = window;
    }
    if std::env::var_os(STRIPE).is_some() {
        options.stripe = true;
        if options.topology == Topology::Pair {
            options.beside = options.beside.max(2);
        } else {
            options.all_ways = !options.one_way;
        }
    }
    Ok(options)
}

/// Whether the environment makes all cables posted ones: messages between daemons take milliseconds then.
pub fn has_delays() -> bool {
    std::env::var_os(DELAY).is_some()
}

impl Rig {
    /// A lab of two hosts with one cable; `None`, loudly, where the kernel lets this user make no namespaces or
    /// the socket library was not built.
    ///
    /// # Errors
    /// The lab does not come up.
    pub fn pair() -> Result<Option<Self>> {
        Self::up(Options { hosts: 2, topology: Topology::Pair, ..Options::scratch("e2e") })
    }

    /// As [`Self::pair`], for a program that has dozens of streams at once: see [`Self::up_with_room`].
    ///
    /// # Errors
    /// The lab does not come up.
    pub fn pair_with_room() -> Result<Option<Self>> {
        Self::up_with_room(Options { hosts: 2, topology: Topology::Pair, ..Options::scratch("e2e") })
    }

    /// As [`Self::up`], for dozens of streams at once: a window of 4 MB, which the environment may choose, has room for
    /// 43 with short rings, of which a neighbour may take half.
    ///
    /// # Errors
    /// The lab does not come up.
    pub fn up_with_room(options: Options) -> Result<Option<Self>> {
        let mut options = cabled(options)?;
        if std::env::var_os(WINDOW).is_some() {
            options.window = "64M".to_owned();
        }
        Self::up_as(&options)
    }

    /// Whether stores over the cables are delayed: then the two programs cannot map each other's memory.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn is_posted(&self) -> Result<bool> {
        let status = self.lab.status("h1")?;
        Ok(status.ports.iter().any(|port| port.kind == "posted"))
    }

    /// A lab of three hosts in a ring; `None` as [`Self::pair`].
    ///
    /// # Errors
    /// The lab does not come up.
    pub fn ring() -> Result<Option<Self>> {
        Self::up(Options::scratch("e2e"))
    }

    /// A lab as `options` have it; `None` as [`Self::pair`].
    ///
    /// # Errors
    /// The lab does not come up.
    pub fn up(options: Options) -> Result<Option<Self>> {
        Self::up_as(&cabled(options)?)
    }

    fn up_as(options: &Options) -> Result<Option<Self>> {
        let lab = match Lab::up(options) {
            Ok(lab) => lab,
            Err(LabError::Keeper(why)) if why.contains("does not let you") => {
                package::skip(&why);
                return Ok(None);
            }
            Err(error) => {
                return Err(error).context("the lab does not come up; is the workspace built (make build)?");
            }
        };
        // Programs that drop their rights must still get through.
        let folder = tempfile::Builder::new().prefix("crosslane-e2e.").tempdir()?;
        open_folder(folder.path())?;
        Ok(Some(Self { lab, folder, port: Cell::new(FIRST_PORT), malloc: Cell::new(false) }))
    }

    /// Folder of this test, open to all users.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Path of a file in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A port that no server of this test has.
    pub fn port(&self) -> u16 {
        let port = self.port.get();
        self.port.set(port + 1);
        port
    }

    /// An accelerated program in a host.
    ///
    /// # Errors
    /// There is no such host, or no socket library.
    pub fn command(&self, host: &str, program: impl AsRef<OsStr>) -> Result<Command> {
        let mut command = self.lab.command(host, Preload::On, program)?;
        if self.malloc.get() {
            let malloc = malloc_library(self.lab.state().program.parent())?;
            let sockets = self.lab.state().sockets.as_ref().context("the socket library was not built")?;
            command.env("LD_PRELOAD", preload_list(sockets, Some(&malloc))).env("CROSSLANE_MALLOC", "64K");
        }
        Ok(command)
    }

    /// From now on accelerated programs run as under `crosslane run --malloc 64K`.
    pub fn large_allocations_are_buffers(&self) {
        self.malloc.set(true);
    }

    /// A program in a host without acceleration.
    ///
    /// # Errors
    /// There is no such host.
    pub fn plain(&self, host: &str, program: impl AsRef<OsStr>) -> Result<Command> {
        Ok(self.lab.command(host, Preload::Off, program)?)
    }

    /// An accelerated program in a host, of another user. The library is copied to where that user can read it.
    ///
    /// # Errors
    /// There is no such host, or no socket library.
    pub fn command_as(&self, user: &str, host: &str, program: impl AsRef<OsStr>) -> Result<Command> {
        let library = self.lab.state().sockets.clone().context("the socket library was not built")?;
        let copy = self.file("libcrosslane_sockets.so");
        if !copy.exists() {
            std::fs::copy(&library, &copy).context("copy the socket library")?;
        }
        let mut command = self.plain(host, "setpriv")?;
        command.args(privileges(user)?);
        command.arg("env").arg(format!("LD_PRELOAD={}", copy.display())).arg(program);
        Ok(command)
    }

    /// The command `crosslane` for a host's daemon.
    ///
    /// # Errors
    /// There is no such host, or the command was not built.
    pub fn tool(&self, host: &str, words: &[&str]) -> Result<Command> {
        let path = self.lab.state().program.with_file_name("crosslane");
        ensure!(path.is_file(), "{} was not built", path.display());
        let mut command = Command::new(path);
        command.arg("--socket").arg(&self.lab.host(host)?.control).args(words);
        Ok(command)
    }

    /// Fabric address of a host.
    ///
    /// # Errors
    /// There is no such host.
    pub fn address(&self, host: &str) -> Result<IpAddr> {
        Ok(self.lab.address(host)?)
    }

    /// The counters of a host's daemon.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn account(&self, host: &str) -> Result<Account> {
        Ok(Account::of(&self.lab.status(host)?))
    }

    /// Waits until a host holds exactly as much as when its account was `before`: streams, segments, sessions.
    ///
    /// # Errors
    /// Something is left.
    pub fn holds_as(&self, host: &str, before: &Account) -> Result<()> {
        wait_for("everything is given back", PATIENCE, || {
            let now = self.account(host).map_err(|error| error.to_string())?;
            let held = |it: &Account| (it.circuits, it.window_used, it.sessions);
            if held(&now) == held(before) { Ok(()) } else { Err(format!("{now:?}, was {before:?}")) }
        })
    }

    /// Begins to measure the traffic of `hosts`.
    ///
    /// # Errors
    /// A daemon does not answer.
    pub fn measure(&self, hosts: &[&str]) -> Result<Measure<'_>> {
        let before = hosts
            .iter()
            .map(|host| Ok(((*host).to_owned(), self.account(host)?)))
            .collect::<Result<Vec<_>>>()?;
        Ok(Measure { rig: self, before })
    }

    /// What the user with this number holds at a host, by the quotas.
    ///
    /// # Errors
    /// There is no such host, or it does not answer.
    pub fn holds(&self, host: &str, user: u32) -> Result<Holds> {
        let payers = self.lab.status(host)?.quota.payers;
        let payer = payers.into_iter().find(|payer| payer.user == Some(user));
        Ok(payer.map(|payer| payer.holds).unwrap_or_default())
    }

    /// A host's status and its daemon's log, for reports of failures.
    pub fn story(&self, host: &str) -> String {
        let status =
            self.lab.status(host).map_or_else(|error| error.to_string(), |status| status.to_string());
        format!("[{host}] {status}\n{}\n", self.log(host).unwrap_or_default())
    }

    /// What a host's daemon has logged.
    ///
    /// # Errors
    /// There is no such host.
    pub fn log(&self, host: &str) -> Result<String> {
        Ok(program::text_of(&self.lab.host(host)?.log))
    }
}

impl Account {
    /// Reads a daemon's status.
    pub fn of(status: &Status) -> Self {
        let counters = &status.counters;
        Self {
            sent: counters.stream_tx_bytes,
            received: counters.stream_rx_bytes,
            opened: counters.streams_opened,
            aborted: counters.streams_aborted,
            ip_bytes: counters.ip_tx_bytes + counters.ip_rx_bytes,
            violations: counters.violations,
            circuits: status.circuits.len() as u64,
            window_used: status.ports.iter().map(|port| port.window_used).sum(),
            sessions: status.sessions + status.lost_sessions,
        }
    }
}

/// The counters of hosts at the beginning of a measurement.
#[derive(Debug)]
pub struct Measure<'rig> {
    rig: &'rig Rig,
    before: Vec<(String, Account)>,
}

impl Measure<'_> {
    /// Checks that streams carried at least `payload` bytes past each of the hosts (sent and received together),
    /// over at least `streams` new stream ends.
    ///
    /// # Errors
    /// They did not, and what was counted instead.
    pub fn carried(&self, payload: u64, streams: u64) -> Result<()> {
        self.each("streams carried it", |before, now| {
            let moved = (now.sent + now.received).saturating_sub(before.sent + before.received);
            let opened = now.opened.saturating_sub(before.opened);
            if moved >= payload && opened >= streams {
                return Ok(());
            }
            Err(format!("{moved} bytes of {payload}, {opened} streams of {streams}"))
        })
    }

    /// Checks that no stream was opened and IP packets carried at least `payload` bytes past each host.
    ///
    /// # Errors
    /// There were streams, or less was carried.
    pub fn carried_by_ip(&self, payload: u64) -> Result<()> {
        self.each("IP carried it", |before, now| {
            let moved = now.ip_bytes.saturating_sub(before.ip_bytes);
            if moved >= payload && now.opened == before.opened {
                return Ok(());
            }
            Err(format!("{moved} bytes of {payload}, {} streams", now.opened - before.opened))
        })
    }

    /// Checks that nothing is left once the programs are gone (no stream, session or segment), and that nobody broke
    /// the protocol.
    ///
    /// # Errors
    /// Something is left.
    pub fn gave_back(&self) -> Result<()> {
        self.each("everything was given back", |before, now| {
            let held = |it: Account| (it.circuits, it.window_used, it.sessions, it.violations);
            // A status query from before may still have been counted as a session at the beginning.
            let sessions = now.sessions <= before.sessions;
            if held(Account { sessions: before.sessions, ..*now }) == held(*before) && sessions {
                return Ok(());
            }
            Err(format!(
                "(circuits, window_used, sessions, violations) were {:?}, are {:?}",
                held(*before),
                held(*now)
            ))
        })
    }

    /// What each host has counted since the beginning, `f(before, now)`.
    fn each(&self, what: &str, f: impl Fn(&Account, &Account) -> Result<(), String>) -> Result<()> {
        for (host, before) in &self.before {
            wait_for(&format!("{what} ({host})"), PATIENCE, || {
                let status = self.rig.lab.status(host).map_err(|error| error.to_string())?;
                f(before, &Account::of(&status)).map_err(|why| {
                    format!("{why}; plain: {:?}; circuits: {:?}", status.counters.plain, status.circuits)
                })
            })?;
        }
        Ok(())
    }
}

/// Arguments of `setpriv` for becoming `user`.
///
/// # Errors
/// There is no such user.
pub fn privileges(user: &str) -> Result<[String; 3]> {
    let users = std::fs::read_to_string("/etc/passwd").context("users")?;
    let line = users.lines().find(|line| line.split(':').next() == Some(user));
    let mut fields = line.with_context(|| format!("no user {user}"))?.split(':').skip(2);
    let mut number = || fields.next().context("a line of /etc/passwd is short");
    Ok([format!("--reuid={}", number()?), format!("--regid={}", number()?), "--clear-groups".to_owned()])
}

/// Makes a folder accessible to every user.
///
/// # Errors
/// The mode cannot be set.
pub fn open_folder(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
    Ok(())
}

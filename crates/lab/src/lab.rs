//! The lab as Rust code meets it: a guard that takes everything down with it.

use crate::config::Order;
use crate::folder::{Folder, Programs};
use crate::keeper;
use crate::plan::{Options, Preload};
use crate::process::{self, Identity};
use crate::query;
use crate::state::{HostState, State};
use crate::{LabError, enter, folder};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the keeper may take to end all processes of a lab.
const DOWN_PATIENCE: Duration = Duration::from_secs(12);
/// A lab without a keeper may be about to get one for as long.
const BEGINNING: Duration = Duration::from_secs(60);
/// Pause between two looks at something that has no event to wait for.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A lab that is up. Goes down when dropped, unless it was [attached](Lab::attach) or [detached](Lab::detach).
#[derive(Debug)]
pub struct Lab {
    name: String,
    pub(crate) folder: Folder,
    pub(crate) state: State,
    keeper: Option<Child>,
}

impl Lab {
    /// Brings a lab up and waits until all links are up and every host knows every other.
    ///
    /// # Errors
    /// [`LabError::AlreadyUp`], [`LabError::Missing`], [`LabError::Forbidden`] (as [`LabError::Keeper`] text),
    /// [`LabError::NotReady`]; nothing is left behind.
    pub fn up(options: &Options) -> Result<Self, LabError> {
        options.check()?;
        let programs = Programs::find(options.bin.as_deref())?;
        let folder = Folder::new(options.base.as_deref(), &options.name);
        clear(&folder, options)?;
        create(&folder, options)?;
        let order = Order {
            name: options.name.clone(),
            hosts: options.hosts,
            topology: options.topology,
            window: options.window.clone(),
            ring_max: options.ring_max.clone(),
            spin_us: options.spin_us,
            one_way: options.one_way,
            resilience: options.resilience,
            rules: options.rules.clone(),
            log: options.log.clone(),
            daemon: programs.daemon.clone(),
            keeper: programs.keeper.clone(),
            sockets: programs.sockets.clone(),
        };
        let started = start_keeper(&programs.keeper, &folder, &order, options.patience);
        let (keeper, state) = match started {
            Ok(started) => started,
            Err(error) => {
                folder.remove()?;
                return Err(error);
            }
        };
        let lab = Self { name: options.name.clone(), folder, state, keeper: Some(keeper) };
        lab.wait_links(options.patience)?;
        Ok(lab)
    }

    /// The lab called `name` that is up already; dropping the result leaves it up.
    ///
    /// # Errors
    /// [`LabError::NotUp`].
    pub fn attach(name: &str, base: Option<&Path>) -> Result<Self, LabError> {
        let folder = Folder::new(base, name);
        match folder.state() {
            Some(state) if state.ready && folder.kept() => {
                Ok(Self { name: name.to_owned(), folder, state, keeper: None })
            }
            _ => Err(LabError::NotUp { name: name.to_owned(), folder: folder.path }),
        }
    }

    /// Lets the lab live on when this process ends.
    ///
    /// # Errors
    /// [`LabError::Io`] if the keeper is gone.
    pub fn detach(mut self) -> Result<(), LabError> {
        if let Some(mut keeper) = self.keeper.take() {
            let stdin = keeper.stdin.as_mut();
            stdin.map_or(Ok(()), |pipe| pipe.write_all(b"D")).map_err(LabError::io("talk to the keeper"))?;
        }
        Ok(())
    }

    /// Ends the daemons and all programs in the namespaces, and removes the lab's files.
    ///
    /// # Errors
    /// [`LabError::Io`] if something could not be ended or removed.
    pub fn down(mut self) -> Result<(), LabError> {
        self.end()
    }

    /// Takes down the lab called `name`, also one whose keeper died. `false` if there is nothing to take down.
    ///
    /// # Errors
    /// [`LabError::Io`] if something could not be ended or removed.
    pub fn clean(name: &str, base: Option<&Path>) -> Result<bool, LabError> {
        let folder = Folder::new(base, name);
        if !folder.path.exists() {
            return Ok(false);
        }
        take_down(&folder)?;
        Ok(true)
    }

    /// Takes down what is left of labs in `base` whose keepers were killed; their names.
    ///
    /// # Errors
    /// [`LabError::Io`] if something could not be ended or removed.
    pub fn sweep(base: &Path) -> Result<Vec<String>, LabError> {
        let left_over = |name: &String| Folder::new(Some(base), name).is_left_over(BEGINNING);
        let names: Vec<String> = folder::list(base).into_iter().filter(left_over).collect();
        for name in &names {
            take_down(&Folder::new(Some(base), name))?;
        }
        Ok(names)
    }

    fn end(&mut self) -> Result<(), LabError> {
        let keeper = self.keeper.take();
        let outcome = take_down(&self.folder);
        if let Some(mut keeper) = keeper {
            keeper.wait().map_err(LabError::io("wait for the keeper"))?;
        }
        outcome
    }

    /// A program in host `host` (`"h1"`), accelerated or not. The spawned process becomes the program itself. It
    /// is not ended with its maker, but with the lab at the latest.
    ///
    /// # Errors
    /// [`LabError::NoHost`]; [`LabError::Missing`] if the socket library was not built.
    pub fn command(
        &self,
        host: &str,
        preload: Preload,
        program: impl AsRef<OsStr>,
    ) -> Result<Command, LabError> {
        let host = &self.state.host(host)?.name;
        if preload == Preload::On {
            enter::library(&self.state)?;
        }
        let mut command = Command::new(&self.state.program);
        command
            .arg("enter")
            .arg(&self.folder.path)
            .arg(host)
            .arg(if preload == Preload::On { "on" } else { "off" })
            .arg("free")
            .arg(program);
        Ok(command)
    }

    /// Name of the lab.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Folder of the lab's files.
    pub fn folder(&self) -> &Path {
        &self.folder.path
    }

    /// What its keeper knows: hosts, cables, paths. Daemons' processes are as of the last start or kill.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// One host.
    ///
    /// # Errors
    /// [`LabError::NoHost`].
    pub fn host(&self, host: &str) -> Result<&HostState, LabError> {
        self.state.host(host)
    }

    /// Fabric address (IPv4) of a host.
    ///
    /// # Errors
    /// [`LabError::NoHost`].
    pub fn address(&self, host: &str) -> Result<IpAddr, LabError> {
        Ok(self.state.host(host)?.address.into())
    }

    /// Fabric address (IPv6) of a host.
    ///
    /// # Errors
    /// [`LabError::NoHost`].
    pub fn address6(&self, host: &str) -> Result<IpAddr, LabError> {
        Ok(self.state.host(host)?.address6.into())
    }

    /// Address of `to` on the veth pair beside the last cable of a shortest way from `from`: the kernel's TCP between
    /// the same namespaces, with forwarding in those between.
    ///
    /// # Errors
    /// [`LabError::NoHost`]; [`LabError::Options`] if there is no way.
    pub fn baseline(&self, from: &str, to: &str) -> Result<IpAddr, LabError> {
        let (one, other) = (self.state.host(from)?, self.state.host(to)?);
        let pair = self.state.baseline(one, other);
        pair.map(|(_, to)| to).ok_or_else(|| LabError::Options(format!("no way leads from {from} to {to}")))
    }

    /// Control socket of a host's daemon.
    ///
    /// # Errors
    /// [`LabError::NoHost`].
    pub fn control(&self, host: &str) -> Result<PathBuf, LabError> {
        Ok(self.state.host(host)?.control.clone())
    }

    /// Status of a host's daemon.
    ///
    /// # Errors
    /// [`LabError::NoHost`], [`LabError::NoDaemon`].
    pub fn status(&self, host: &str) -> Result<Value, LabError> {
        query::status(&self.state.host(host)?.control)
    }

    /// Polls the status of a host's daemon until `ready` holds for it, and returns that status.
    ///
    /// # Errors
    /// [`LabError::NotReady`] with the last status after `patience`.
    pub fn wait_until(
        &self,
        host: &str,
        patience: Duration,
        mut ready: impl FnMut(&Value) -> bool,
    ) -> Result<Value, LabError> {
        let mut found = None;
        self.look_until(patience, || match self.status(host) {
            Ok(status) if ready(&status) => {
                found = Some(status);
                Ok(())
            }
            Ok(status) => Err(Wait::More(format!("last status of {host}: {status}"))),
            Err(error) => Err(Wait::More(error.to_string())),
        })?;
        found.ok_or_else(|| LabError::Options("status was lost".to_owned()))
    }

    /// Waits until the links of all hosts are up and every host knows every other, as far as no cable is cut.
    ///
    /// # Errors
    /// [`LabError::NotReady`] after `patience`, or as soon as a daemon has ended, with what is missing and the
    /// ends of the logs.
    pub fn wait_links(&self, patience: Duration) -> Result<(), LabError> {
        self.look_until(patience, || {
            for host in &self.state.hosts {
                let status = query::status(&host.control).map_err(|error| self.waits_for(host, &error))?;
                query::missing(&status, &self.state.ports(host), &self.state.reachable(host))
                    .map_or(Ok(()), |why| Err(Wait::More(why)))?;
            }
            Ok(())
        })
    }

    /// What to make of a daemon that does not answer: it may not have got so far yet, or be gone for good.
    fn waits_for(&self, host: &HostState, error: &LabError) -> Wait {
        let now = self.folder.state();
        let runs = now.is_none_or(|now| now.host(&host.name).is_ok_and(|now| now.daemon.is_some()));
        if runs {
            Wait::More(error.to_string())
        } else {
            Wait::Never(format!("the daemon of {} has ended", host.name))
        }
    }

    fn look_until(
        &self,
        patience: Duration,
        mut look: impl FnMut() -> Result<(), Wait>,
    ) -> Result<(), LabError> {
        let begin = Instant::now();
        loop {
            let (why, hope) = match look() {
                Ok(()) => return Ok(()),
                Err(Wait::More(why)) => (why, true),
                Err(Wait::Never(why)) => (why, false),
            };
            if !hope || begin.elapsed() >= patience || !self.folder.kept() {
                let seconds = begin.elapsed().as_secs_f64();
                return Err(LabError::NotReady { seconds, why, logs: log_ends(&self.state) });
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Process of a host's daemon, if it runs.
    ///
    /// # Errors
    /// [`LabError::NoHost`].
    pub fn daemon(&self, host: &str) -> Result<Option<Identity>, LabError> {
        Ok(self.state.host(host)?.daemon.filter(|daemon| daemon.alive()))
    }

    /// Reads again what the keeper has written.
    pub(crate) fn refresh(&mut self) -> Result<(), LabError> {
        self.state = State::read(&self.folder.path)?;
        Ok(())
    }
}

/// Why what was looked for is not there.
enum Wait {
    /// It may come.
    More(String),
    /// It will not.
    Never(String),
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.keeper.is_some() {
            // Best effort: a drop has nobody to tell; `down` tells.
            let _ = self.end();
        }
    }
}

/// Makes room for a new lab: nothing there, a left-over, or one that may be replaced.
fn clear(folder: &Folder, options: &Options) -> Result<(), LabError> {
    if !folder.path.exists() {
        return Ok(());
    }
    settle(folder);
    if folder.kept() && !options.force {
        return Err(LabError::AlreadyUp { name: options.name.clone() });
    }
    take_down(folder)
}

/// Waits, for a while, for a keeper that is about to end, or has just begun: it has no state then.
fn settle(folder: &Folder) {
    let deadline = Instant::now() + DOWN_PATIENCE;
    while folder.kept() && !folder.ready() && Instant::now() < deadline {
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn create(folder: &Folder, options: &Options) -> Result<(), LabError> {
    let failed = |source: std::io::Error| LabError::io(format!("create {}", folder.path.display()))(source);
    folder.create().map_err(|error| {
        if error.kind() == std::io::ErrorKind::AlreadyExists {
            LabError::AlreadyUp { name: options.name.clone() }
        } else {
            failed(error)
        }
    })?;
    fs::write(folder.file(folder::LOCK), "").map_err(LabError::io("create the lab's lock"))
}

/// Starts the keeper and waits for its word.
fn start_keeper(
    program: &Path,
    folder: &Folder,
    order: &Order,
    patience: Duration,
) -> Result<(Child, State), LabError> {
    let order = serde_json::to_vec(order).map_err(|e| LabError::Keeper(e.to_string()))?;
    fs::write(folder.file(keeper::ORDER), order).map_err(LabError::io("write the lab's order"))?;
    let log = fs::File::create(folder.file("keeper.log")).map_err(LabError::io("create keeper.log"))?;
    let mut keeper = Command::new(program)
        .arg("keep")
        .arg(&folder.path)
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(LabError::io(format!("start {}", program.display())))?;
    let word = keeper.stdout.take().map_or_else(String::new, |pipe| read_word(pipe, patience));
    let state = if word.trim() == keeper::READY { folder.state() } else { None };
    match state {
        Some(state) => Ok((keeper, state)),
        None => {
            // End of file on its standard input tells it to clean up.
            drop(keeper.stdin.take());
            keeper.wait().map_err(LabError::io("wait for the keeper"))?;
            let said = if word.trim().is_empty() { log_end(&folder.file("keeper.log")) } else { word };
            Err(LabError::Keeper(said.trim().to_owned()))
        }
    }
}

/// All that `pipe` gives up to its end, a line's end, or `patience`.
fn read_word(mut pipe: impl Read + AsFd, patience: Duration) -> String {
    let deadline = Instant::now() + patience;
    let mut word = Vec::new();
    let mut part = [0; 512];
    while !word.ends_with(b"\n") {
        let timeout = Timespec::try_from(deadline.saturating_duration_since(Instant::now())).ok();
        match poll(&mut [PollFd::new(&pipe, PollFlags::IN)], timeout.as_ref()) {
            Ok(0) => return "its keeper said nothing in time".to_owned(),
            Ok(_) => match pipe.read(&mut part) {
                Ok(0) | Err(_) => break,
                Ok(n) => word.extend_from_slice(&part[..n]),
            },
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&word).into_owned()
}

/// Takes down whatever is left of a lab, with its keeper's help or without.
fn take_down(folder: &Folder) -> Result<(), LabError> {
    settle(folder);
    let Some(state) = folder.state() else {
        if folder.kept() {
            return Err(LabError::Keeper(format!(
                "its keeper neither begins nor ends: {}",
                folder.path.display()
            )));
        }
        return folder.remove();
    };
    if folder.kept() && state.keeper.signal(Signal::TERM) && !state.keeper.wait_gone(DOWN_PATIENCE) {
        state.keeper.signal(Signal::KILL);
        state.keeper.wait_gone(Duration::from_secs(2));
    }
    // The rest is for a keeper that was killed: it would have done all this.
    let daemons: Vec<Identity> = state.hosts.iter().filter_map(|h| h.daemon).filter(|d| d.alive()).collect();
    let mark = state.mark_entry();
    // Nobody holds the namespaces for sure any more, so their inodes may be others': the mark must agree.
    let ours = |pid| process::started_with(pid, &mark);
    process::end_members(&state.networks(), ours, Duration::from_secs(2))?;
    process::end(&daemons, Duration::from_secs(2));
    folder.remove()
}

fn log_ends(state: &State) -> String {
    let end = |host: &HostState| {
        let end = log_end(&host.log);
        (!end.is_empty()).then(|| format!("\n--- log of {} ({}):\n{end}", host.name, host.log.display()))
    };
    state.hosts.iter().filter_map(end).collect()
}

/// The last lines of a log.
pub(crate) fn log_end(path: &Path) -> String {
    let text = fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}

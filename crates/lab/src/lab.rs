//! The lab for Rust code: a guard that takes everything down with it.

use crate::config::Order;
use crate::folder::{self, Folder, Programs};
use crate::plan::{Options, Preload};
use crate::process::Identity;
use crate::query::Tool;
use crate::state::{HostState, State};
use crate::updown::{clear, create, start_keeper, take_down};
use crate::{LabError, enter};
use crosslane_status::Status;
use std::ffi::OsStr;
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

/// How long a lab without a keeper may be about to get one.
const BEGINNING: Duration = Duration::from_secs(60);

/// A lab that is up. Goes down when dropped, unless it was [attached](Lab::attach) or [detached](Lab::detach).
#[derive(Debug)]
pub struct Lab {
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
        let order = Order { options: options.clone(), programs };
        let (keeper, state) = match start_keeper(&folder, &order) {
            Ok(started) => started,
            Err(error) => return folder.remove().and(Err(error)),
        };
        let lab = Self { folder, state, keeper: Some(keeper) };
        lab.wait_links(options.patience)?;
        Ok(lab)
    }

    /// The lab called `name` that is up already; dropping the result leaves it up.
    ///
    /// # Errors
    /// [`LabError::NotUp`].
    pub fn attach(name: &str, base: Option<&Path>) -> Result<Self, LabError> {
        let folder = Folder::new(base, name);
        folder.check()?;
        match folder.state() {
            Some(state) if state.ready && folder.kept() => Ok(Self { folder, state, keeper: None }),
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
        folder.check()?;
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
        let names: Vec<String> = folder::list(base)?.into_iter().filter(left_over).collect();
        for name in &names {
            let folder = Folder::new(Some(base), name);
            folder.check()?;
            take_down(&folder)?;
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
        let accelerated = if preload == Preload::On { "on" } else { "off" };
        let mut command = Command::new(&self.state.program);
        command.arg("enter").arg(&self.folder.path).args([host, accelerated, "free"]).arg(program);
        Ok(command)
    }

    /// Folder of the lab's files.
    pub fn folder(&self) -> &Path {
        &self.folder.path
    }

    /// The state that its keeper wrote: hosts, cables, paths. Processes of daemons are as of the last start or kill.
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
        let pair = self.state.baseline(one, other).filter(|_| self.state.accelerator.is_none());
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
    pub fn status(&self, host: &str) -> Result<Status, LabError> {
        Tool::of(&self.folder.path, &self.state, self.state.host(host)?)?.status()
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

impl Drop for Lab {
    fn drop(&mut self) {
        if self.keeper.is_some() {
            // Best effort: a drop cannot report errors; `down` does.
            let _ = self.end();
        }
    }
}

//! Faults made on purpose: cables cut and mended, hosts killed and started again.

use crate::keeper::{self, Command as Ask};
use crate::machine::{self, cable, client};
use crate::plan::Cable;
use crate::query::{self, Tool};
use crate::state::HostState;
use crate::{Lab, LabError, process};
use crosslane_status::Status;
use crosslane_wire::local::Request;
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// How long both ends of a cable may take to notice that it was cut or mended: a connecting port tries again after
/// at most 1 s.
const NOTICE: Duration = Duration::from_secs(10);
/// How long a killed host may take to be gone.
const GONE: Duration = Duration::from_secs(10);
/// Pause between two looks at a link.
const LOOK_AGAIN: Duration = Duration::from_micros(100);

/// The outcome of [`Lab::cut`] or [`Lab::mend`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noticed {
    /// `false`: it was cut (or whole) already.
    pub changed: bool,
    /// Both ends, in the order of the request: the host, and how long after the request its daemon had the link down
    /// (or up again); `None` if that took more than 10 s, or the daemon does not run.
    pub ends: Vec<(String, Option<Duration>)>,
}

impl Lab {
    /// Pulls the cable between two hosts, of several the first that is not pulled: a port switches its link off, both daemons see the link go as they see any
    /// loss, and it stays down, also over restarts of the daemons, until [`Lab::mend`].
    ///
    /// # Errors
    /// [`LabError::NoHost`], [`LabError::NoCable`]; [`LabError::Refused`] or [`LabError::NoDaemon`] if keeper or
    /// daemon fail.
    pub fn cut(&mut self, one: &str, other: &str) -> Result<Noticed, LabError> {
        self.set_cable(one, other, true)
    }

    /// Plugs in again what [`Lab::cut`] pulled, of several cables the first that is.
    ///
    /// # Errors
    /// As [`Lab::cut`].
    pub fn mend(&mut self, one: &str, other: &str) -> Result<Noticed, LabError> {
        self.set_cable(one, other, false)
    }

    /// Pulls the cable between two hosts and plugs it in again at once, without waiting for the daemons to notice.
    ///
    /// # Errors
    /// As [`Lab::cut`].
    pub fn flap(&mut self, one: &str, other: &str) -> Result<(), LabError> {
        let (_, cable) = self.cable_between(one, other, false)?;
        if self.state.accelerator.is_some() {
            // The keeper has both machines look each time.
            return [true, false]
                .into_iter()
                .try_for_each(|cut| keeper::ask(&self.folder, &Ask::Cable { number: cable.number, cut }));
        }
        let tool = Tool::connect(&self.puller(&cable).control)?;
        tool.order(&request(&cable, true))?;
        tool.order(&request(&cable, false))
    }

    fn set_cable(&mut self, one: &str, other: &str, cut: bool) -> Result<Noticed, LabError> {
        self.refresh()?;
        let (ends, cable) = self.cable_between(one, other, !cut)?;
        let changed = self.state.cut.contains(&cable.number) != cut;
        if changed {
            // First the configuration for a daemon that restarts, then the running daemon.
            keeper::ask(&self.folder, &Ask::Cable { number: cable.number, cut })?;
            self.refresh()?;
        }
        let begin = Instant::now();
        let puller = self.puller(&cable);
        // Also if nothing has changed: an earlier caller may have been killed in between, or the daemon hung.
        if self.state.accelerator.is_some() {
            cable::set_cut(&self.folder.path, &cable, cut)?;
        } else if self.runs(puller) {
            Tool::connect(&puller.control)?.order(&request(&cable, cut))?;
        }
        if !changed {
            return Ok(Noticed { changed, ends: Vec::new() });
        }
        let both_run = ends.iter().all(|end| self.runs(end));
        let wait = |end: &HostState| {
            let wanted = both_run || cut;
            if wanted && self.runs(end) { self.notices(end, &cable, cut, begin) } else { None }
        };
        let seen = std::thread::scope(|scope| {
            let first = scope.spawn(|| wait(&ends[0]));
            [wait(&ends[1]), first.join().unwrap_or(None)]
        });
        let [second, first] = seen;
        let [one, other] = ends.map(|end| end.name);
        Ok(Noticed { changed, ends: vec![(one, first), (other, second)] })
    }

    /// Two neighbours, and the cable between them; of several, the first that is in this state.
    fn cable_between(
        &self,
        one: &str,
        other: &str,
        is_cut: bool,
    ) -> Result<([HostState; 2], Cable), LabError> {
        let ends = [self.state.host(one)?, self.state.host(other)?];
        let cable = self.state.cable(ends[0], ends[1], is_cut)?;
        Ok((ends.map(HostState::clone), cable.clone()))
    }

    /// The host whose port switches off the link of `cable`: one end is enough, and the other is to notice by itself.
    fn puller(&self, cable: &Cable) -> &HostState {
        &self.state.hosts[usize::from(cable.a) - 1]
    }

    pub(crate) fn runs(&self, host: &HostState) -> bool {
        self.state.hosts.iter().any(|it| it.id == host.id && it.daemon.is_some_and(|daemon| daemon.alive()))
    }

    /// Sends `signal` to a host's daemon and waits until it is gone. The programs in the host live on.
    ///
    /// # Errors
    /// [`LabError::NoHost`]; [`LabError::Refused`] if it does not run, or not end within 5 s.
    pub fn kill_daemon(&mut self, host: &str, signal: Signal) -> Result<(), LabError> {
        let host = self.state.host(host)?;
        if self.state.accelerator.is_some() {
            return client::ask(&self.folder.path, host, &machine::Ask::Kill(signal.as_raw())).map(drop);
        }
        let host = host.name.clone();
        keeper::ask(&self.folder, &Ask::Kill { host, signal: signal.as_raw() })?;
        self.refresh()
    }

    /// Kills (SIGKILL) all that runs in a host, its daemon or its machine too: a host that loses its power.
    ///
    /// # Errors
    /// [`LabError::NoHost`]; [`LabError::Refused`] if something is still there after 10 s.
    pub fn kill_host(&mut self, host: &str) -> Result<(), LabError> {
        self.refresh()?;
        let host = self.state.host(host)?.clone();
        process::kill_members(&[host.inode], |_| true)?;
        // The keeper, as the daemon's parent, has to reap it.
        let deadline = Instant::now() + GONE;
        while self.state.host(&host.name)?.daemon.is_some() {
            if Instant::now() >= deadline {
                return Err(LabError::Refused(format!("{} is still there", host.name)));
            }
            std::thread::sleep(LOOK_AGAIN);
            self.refresh()?;
        }
        Ok(())
    }

    /// Starts a host's daemon again after [`Lab::kill_daemon`], or its machine after [`Lab::kill_host`], with the configuration
    /// that it had: a new life. Does not wait for its links: see [`Lab::wait_links`] and [`Lab::wait_host`].
    ///
    /// # Errors
    /// [`LabError::NoHost`]; [`LabError::Refused`] if it runs or cannot be started.
    pub fn start_daemon(&mut self, host: &str) -> Result<(), LabError> {
        self.refresh()?;
        let host = self.state.host(host)?;
        if self.state.accelerator.is_some() && self.runs(host) {
            return client::ask(&self.folder.path, host, &machine::Ask::Start).map(drop);
        }
        let host = host.name.clone();
        keeper::ask(&self.folder, &Ask::Start { host })?;
        self.refresh()
    }

    /// How long after `begin` the daemon of `host` had its end of `cable` down, or up; `None` if not in time.
    fn notices(&self, host: &HostState, cable: &Cable, down: bool, begin: Instant) -> Option<Duration> {
        let tool = Tool::of(&self.folder.path, &self.state, host).ok()?;
        let name = cable.port_name(host.id);
        let is_down = |status: &Status| query::down_port(status, &[name]).is_some();
        while begin.elapsed() < NOTICE {
            if is_down(&tool.status().ok()?) == down {
                return Some(begin.elapsed());
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        None
    }
}

/// The request to the host that switches off `cable`.
fn request(cable: &Cable, cut: bool) -> Request {
    let port = cable.port_name(cable.a).to_owned();
    if cut { Request::Cut { port } } else { Request::Mend { port } }
}

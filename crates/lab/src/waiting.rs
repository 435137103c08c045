//! Polling for states that a lab has no event for: daemons that answer, links that come up.

use crate::query::Tool;
use crate::state::{HostState, State};
use crate::updown::log_end;
use crate::{Lab, LabError, query};
use crosslane_status::Status;
use std::time::{Duration, Instant};

/// Pause between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl Lab {
    /// Polls the status of a host's daemon until `ready` holds for it, and returns that status.
    ///
    /// # Errors
    /// [`LabError::NotReady`] with the last status after `patience`.
    pub fn wait_until(
        &self,
        host: &str,
        patience: Duration,
        mut ready: impl FnMut(&Status) -> bool,
    ) -> Result<Status, LabError> {
        self.look_until(patience, || match self.status(host) {
            Ok(status) if ready(&status) => Ok(status),
            Ok(status) => Err(Wait::More(format!("last status of {host}: {status}"))),
            Err(error) => Err(Wait::More(error.to_string())),
        })
    }

    /// Waits until the links of all hosts are up and every host knows every other, as far as no cable is cut.
    ///
    /// # Errors
    /// [`LabError::NotReady`] after `patience`, or as soon as a daemon has ended, with what is missing and the
    /// ends of the logs.
    pub fn wait_links(&self, patience: Duration) -> Result<(), LabError> {
        self.look_until(patience, || {
            for host in &self.state.hosts {
                let status = self.answer(host)?;
                let missing = query::missing(&status, &self.state.ports(host), &self.state.reachable(host));
                missing.map_or(Ok(()), |why| Err(Wait::More(why)))?;
            }
            Ok(())
        })
    }

    /// Waits until a host has the links that it can have: those of cables that are not cut, to hosts whose daemons run.
    ///
    /// # Errors
    /// [`LabError::NoHost`]; [`LabError::NotReady`] after `patience`, or as soon as its daemon has ended.
    pub fn wait_host(&self, host: &str, patience: Duration) -> Result<(), LabError> {
        let host = self.state.host(host)?;
        let lives = |id: u8| self.state.hosts.iter().any(|it| it.id == id && self.runs(it));
        let cables = self.state.whole_cables().filter(|cable| cable.other(host.id).is_some_and(lives));
        let ports: Vec<&str> = cables.map(|cable| cable.port_name(host.id)).collect();
        self.look_until(patience, || {
            let down = query::down_port(&self.answer(host)?, &ports);
            down.map_or(Ok(()), |why| Err(Wait::More(format!("{}: {why}", host.name))))
        })
    }

    /// The status of a host's daemon. One that does not answer may not have started yet, or be gone for good.
    fn answer(&self, host: &HostState) -> Result<Status, Wait> {
        Tool::of(&self.folder.path, &self.state, host).and_then(|tool| tool.status()).map_err(|error| {
            let now = self.folder.state();
            match now.is_none_or(|now| now.host(&host.name).is_ok_and(|now| now.daemon.is_some())) {
                true => Wait::More(error.to_string()),
                false => Wait::Never(format!("the daemon of {} has ended", host.name)),
            }
        })
    }

    fn look_until<T>(
        &self,
        patience: Duration,
        mut look: impl FnMut() -> Result<T, Wait>,
    ) -> Result<T, LabError> {
        let begin = Instant::now();
        loop {
            let (why, hope) = match look() {
                Ok(found) => return Ok(found),
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
}

/// Why a state is not there.
enum Wait {
    /// It may come.
    More(String),
    /// It will not.
    Never(String),
}

fn log_ends(state: &State) -> String {
    let end = |host: &HostState| {
        let end = log_end(&host.log);
        (!end.is_empty()).then(|| format!("\n--- log of {} ({}):\n{end}", host.name, host.log.display()))
    };
    state.hosts.iter().filter_map(end).collect()
}

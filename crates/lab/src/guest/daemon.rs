//! The daemon of a machine.

use crate::config::Order;
use crate::folder::Folder;
use crate::machine::Ask;
use crate::process::{Identity, KILL_PATIENCE};
use crate::state::HostState;
use crate::{LabError, query};
use rustix::process::Signal;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// The daemon of this machine.
#[derive(Debug)]
pub(super) struct Daemon {
    order: Order,
    host: HostState,
    child: Mutex<Option<Child>>,
}

impl Daemon {
    /// Starts the daemon of `host` of the lab in `folder`.
    pub(super) fn begin(folder: &Folder, host: &HostState) -> Result<Self, LabError> {
        let daemon = Self { order: Order::read(folder)?, host: host.clone(), child: Mutex::default() };
        daemon.start()?;
        Ok(daemon)
    }

    fn start(&self) -> Result<(), LabError> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        if child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None))) {
            return Err(LabError::Options(format!("the daemon of {} runs already", self.host.name)));
        }
        let daemon = Command::new(&self.order.programs.daemon)
            .arg("--config")
            .arg(&self.host.config)
            .env("CROSSLANE_LOG", &self.order.options.log)
            .stdin(Stdio::null())
            .spawn()
            .map_err(LabError::io("start the daemon"))?;
        *child = Some(daemon);
        Ok(())
    }

    fn kill(&self, signal: i32) -> Result<(), LabError> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let name = &self.host.name;
        let runs = child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)));
        let Some(daemon) = child.as_mut().filter(|_| runs) else {
            return Err(LabError::Options(format!("the daemon of {name} does not run")));
        };
        let signal = Signal::from_named_raw(signal)
            .ok_or_else(|| LabError::Options(format!("{signal} is no signal")))?;
        let gone = i32::try_from(daemon.id()).ok().and_then(Identity::of).is_none_or(|it| {
            it.signal(signal);
            it.wait_gone(KILL_PATIENCE)
        });
        if !gone {
            let patience = KILL_PATIENCE.as_secs();
            return Err(LabError::Options(format!("the daemon of {name} did not end within {patience} s")));
        }
        daemon.wait().map_err(LabError::io("wait for the daemon"))?;
        *child = None;
        Ok(())
    }

    /// Answers a request about the daemon.
    pub(super) fn answer(&self, ask: &Ask) -> Result<Vec<u8>, LabError> {
        match ask {
            Ask::Status => {
                let status = query::status(&self.host.control)?;
                serde_json::to_vec(&status).map_err(LabError::io("write the status"))
            }
            Ask::Kill(signal) => self.kill(*signal).map(|()| Vec::new()),
            Ask::Start => self.start().map(|()| Vec::new()),
            Ask::Run(_) => Err(LabError::Options("a program is not of the daemon".to_owned())),
        }
    }
}

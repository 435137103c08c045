//! The inside of a machine: its first process, the daemon, and programs for clients outside.

use super::{Ask, session};
use crate::config::Order;
use crate::folder::Folder;
use crate::process::{Identity, KILL_PATIENCE};
use crate::state::{HostState, State};
use crate::{LabError, keeper, query, wiring};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, WaitOptions, waitpid};
use rustix::system::{RebootCommand, reboot, sethostname};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How often the agent looks for clients: a port has no event for one that comes.
const LOOK: Duration = Duration::from_millis(50);
/// How long the ports of the serial device may take to appear.
const PORTS_APPEAR: Duration = Duration::from_secs(20);

/// The machine of `host` of the lab in `folder`: as its first process sets it up and waits, for orphans too, until its agent ends, which
/// it starts; as another process is that agent. Returns only on failure.
///
/// # Errors
/// What could not be set up; the machine stops.
pub fn machine(folder: &Path, host: &str) -> Result<(), LabError> {
    let folder = Folder { path: folder.to_owned() };
    let state = State::read(&folder.path)?;
    let host = state.host(host)?;
    if rustix::process::getpid() != Pid::INIT {
        return Agent::start(&folder, host)?.serve();
    }
    let outcome = first_process(host);
    if let Err(error) = &outcome {
        eprintln!("crosslane-keeper: {error}");
    }
    // The end of the first process would be a panic of the kernel.
    let _ = reboot(RebootCommand::PowerOff);
    outcome
}

fn first_process(host: &HostState) -> Result<(), LabError> {
    sethostname(host.name.as_bytes()).map_err(LabError::io("set the name of the host"))?;
    wiring::trust_addresses()?;
    wiring::run(&wiring::host(host.id, true))?;
    let arguments = std::env::args_os().skip(1);
    let agent =
        Command::new("/proc/self/exe").args(arguments).spawn().map_err(LabError::io("start the agent"))?;
    let agent = i32::try_from(agent.id()).unwrap_or(0);
    loop {
        match waitpid(None, WaitOptions::empty()) {
            Ok(Some((pid, _))) if pid.as_raw_nonzero().get() == agent => {
                return Err(LabError::Keeper("the agent of the machine has ended".to_owned()));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(LabError::io("wait for a process")(errno)),
        }
    }
}

/// The daemon of this machine.
#[derive(Debug)]
pub(super) struct Daemon {
    order: Order,
    host: HostState,
    child: Mutex<Option<Child>>,
}

impl Daemon {
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

/// Who runs programs for clients outside.
struct Agent {
    daemon: Arc<Daemon>,
    ports: Vec<Port>,
}

struct Port {
    file: Arc<File>,
    busy: Arc<AtomicBool>,
}

impl Agent {
    fn start(folder: &Folder, host: &HostState) -> Result<Self, LabError> {
        let order = fs::read(folder.file(keeper::ORDER)).map_err(LabError::io("read the lab's order"))?;
        let order: Order =
            serde_json::from_slice(&order).map_err(|e| LabError::Options(format!("the lab's order: {e}")))?;
        let daemon = Daemon { order, host: host.clone(), child: Mutex::default() };
        daemon.start()?;
        Ok(Self { daemon: Arc::new(daemon), ports: open_ports()? })
    }

    fn serve(&self) -> Result<(), LabError> {
        loop {
            thread::sleep(LOOK);
            for port in &self.ports {
                if !port.busy.load(Ordering::Acquire) && has_request(&port.file)? {
                    port.busy.store(true, Ordering::Release);
                    let (daemon, file, busy) = (self.daemon.clone(), port.file.clone(), port.busy.clone());
                    thread::spawn(move || {
                        if let Err(error) = session::serve(&file, &daemon) {
                            eprintln!("crosslane-keeper: a client: {error}");
                        }
                        busy.store(false, Ordering::Release);
                    });
                }
            }
        }
    }
}

fn has_request(port: &File) -> Result<bool, LabError> {
    let mut fds = [PollFd::new(port, PollFlags::IN)];
    match poll(&mut fds, Some(&Default::default())) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(fds[0].revents().contains(PollFlags::IN)),
        Err(errno) => Err(LabError::io("look at a port")(errno)),
    }
}

/// Opens all ports of the serial device, which appear one after the other.
fn open_ports() -> Result<Vec<Port>, LabError> {
    let deadline = Instant::now() + PORTS_APPEAR;
    loop {
        let found = devices();
        if found.len() >= super::PORTS as usize {
            return found.iter().map(|path| open_port(path)).collect();
        }
        if Instant::now() >= deadline {
            let (some, all) = (found.len(), super::PORTS);
            return Err(LabError::Keeper(format!("the machine has {some} serial ports of {all}")));
        }
        thread::sleep(LOOK);
    }
}

fn devices() -> Vec<PathBuf> {
    let entries = fs::read_dir("/dev").into_iter().flatten().flatten().map(|entry| entry.path());
    let is_port =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vport"));
    entries.filter(is_port).collect()
}

fn open_port(path: &Path) -> Result<Port, LabError> {
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).write(true).custom_flags(nonblocking).open(path);
    let file = file.map_err(LabError::io(format!("open {}", path.display())))?;
    Ok(Port { file: Arc::new(file), busy: Arc::default() })
}

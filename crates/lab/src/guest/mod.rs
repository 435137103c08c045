//! The inside of a machine: its first process, the daemon, and programs for clients outside.

mod daemon;
mod program;
mod session;

use crate::folder::Folder;
use crate::machine::PORTS;
use crate::state::{HostState, State};
use crate::{LabError, wiring};
use daemon::Daemon;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::system::{RebootCommand, reboot, sethostname};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
    wiring::deepen_queues();
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
        let daemon = Daemon::begin(folder, host)?;
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

/// Whether a client is at the port and has said something: without one the port is readable, too, and at its end.
fn has_request(port: &File) -> Result<bool, LabError> {
    let mut fds = [PollFd::new(port, PollFlags::IN)];
    match poll(&mut fds, Some(&Default::default())) {
        Ok(_) => {
            let seen = fds[0].revents();
            Ok(seen.contains(PollFlags::IN) && !seen.contains(PollFlags::HUP))
        }
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(errno) => Err(LabError::io("look at a port")(errno)),
    }
}

/// Opens all ports of the serial device, which appear one after the other.
fn open_ports() -> Result<Vec<Port>, LabError> {
    let deadline = Instant::now() + PORTS_APPEAR;
    loop {
        let found = devices();
        if found.len() >= PORTS as usize {
            return found.iter().map(|path| open_port(path)).collect();
        }
        if Instant::now() >= deadline {
            let (some, all) = (found.len(), PORTS);
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

//! The keeper of a lab: one process of one thread that holds the namespaces, is the parent of the daemons, and
//! cleans up. It sleeps until a signal, a request on its socket, or the end of its maker wakes it.

mod begin;
mod request;

use crate::config::{self, Order};
use crate::folder::{self, Folder};
use crate::machine::server::Server;
use crate::machine::{cable, qemu};
use crate::namespace::{enter_network, new_network};
use crate::process::{self, Identity, KILL_PATIENCE};
use crate::state::{HostState, State};
use crate::{LabError, wiring};
use begin::{describe, leave_home, lock};
use request::read;
pub(crate) use request::{Command, ask};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::Signal;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command as Spawn, Stdio};
use std::time::Duration;

/// What the keeper prints when the daemons are started.
pub(crate) const READY: &str = "ready";
/// How long processes may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);

/// Keeps the lab of `folder` until it is asked to end; then ends all that runs in it and removes the folder.
///
/// # Errors
/// The lab could not be made; what was made is gone again.
pub fn keep(folder: &Path) -> Result<(), LabError> {
    let folder = Folder { path: folder.to_owned() };
    let outcome = Keeper::start(folder).and_then(|mut keeper| {
        let outcome = keeper.run();
        keeper.finish();
        outcome
    });
    if let Err(error) = &outcome {
        // The maker reads this; it may be gone.
        let _ = writeln!(std::io::stdout(), "{}", error.to_string().replace('\n', " "));
    }
    outcome
}

struct Keeper {
    folder: Folder,
    order: Order,
    state: State,
    networks: Vec<OwnedFd>,
    home: OwnedFd,
    daemons: Vec<Option<Child>>,
    /// One for each cable between virtual machines.
    servers: Vec<Server>,
    tied: bool,
    _user: Option<OwnedFd>,
    _lock: OwnedFd,
}

impl Keeper {
    /// Makes the namespaces; nothing runs yet.
    fn start(folder: Folder) -> Result<Self, LabError> {
        // A session of its own: Ctrl-C of the maker's terminal must not reach us; the end of the maker does.
        let _ = rustix::process::setsid();
        let lock = lock(&folder)?;
        let order = Order::read(&folder)?;
        let (user, home) = leave_home()?;
        let networks = (0..order.options.hosts).map(|_| new_network()).collect::<Result<Vec<_>, _>>()?;
        enter_network(home.as_fd())?;
        let tun = open("/dev/net/tun", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).is_ok();
        let state = describe(&folder, &order, user.as_ref(), &networks, tun)?;
        let daemons = networks.iter().map(|_| None).collect();
        let servers = Vec::new();
        Ok(Self {
            folder,
            order,
            state,
            networks,
            home,
            daemons,
            servers,
            tied: true,
            _user: user,
            _lock: lock,
        })
    }

    fn run(&mut self) -> Result<(), LabError> {
        let watch = Watch::new(&self.folder)?;
        match self.state.accelerator {
            None => self.wire()?,
            Some(_) => self.make_cables()?,
        }
        self.write_configs()?;
        self.store()?;
        for index in 0..self.networks.len() {
            maker_waits()?;
            self.start_daemon(index)?;
        }
        self.state.ready = true;
        self.store()?;
        writeln!(std::io::stdout(), "{READY}").map_err(LabError::io("tell the maker"))?;
        self.serve(&watch)
    }

    /// The memory of cables between virtual machines, and who hands it out.
    fn make_cables(&mut self) -> Result<(), LabError> {
        for it in &self.state.cables {
            cable::create(&self.folder.path, it)?;
            self.servers.push(Server::new(&self.folder.path, it)?);
        }
        Ok(())
    }

    fn wire(&self) -> Result<(), LabError> {
        let (hosts, tun) = (&self.state.hosts, self.state.tun);
        for host in hosts {
            self.inside(host, || {
                wiring::trust_addresses()?;
                wiring::deepen_queues();
                wiring::run(&wiring::host(host.id, tun))
            })?;
        }
        for cable in &self.state.cables {
            maker_waits()?;
            let (a, b) = (&hosts[usize::from(cable.a) - 1], &hosts[usize::from(cable.b) - 1]);
            let peer = format!("/proc/{}/fd/{}", std::process::id(), b.network);
            self.inside(a, || wiring::run(&(wiring::veth(cable, &peer) + &wiring::veth_end(cable, a.id))))?;
            self.inside(b, || wiring::run(&wiring::veth_end(cable, b.id)))?;
        }
        let (count, cables) = (self.order.options.hosts, &self.state.cables);
        for host in hosts {
            self.inside(host, || {
                wiring::forward()?;
                let fabric = if tun { String::new() } else { wiring::routes(host.id, count, cables) };
                wiring::run(&(fabric + &wiring::baseline_routes(host.id, count, cables)))
            })?;
        }
        Ok(())
    }

    /// Runs `work` in a host's network namespace.
    fn inside<T>(&self, host: &HostState, what: impl FnOnce() -> Result<T, LabError>) -> Result<T, LabError> {
        enter_network(self.networks[usize::from(host.id) - 1].as_fd())?;
        let outcome = what();
        enter_network(self.home.as_fd())?;
        outcome
    }

    fn write_configs(&self) -> Result<(), LabError> {
        for host in &self.state.hosts {
            let text = config::text(&self.order.options, &self.folder.path, host.id, &self.state)?;
            fs::write(&host.config, text)
                .map_err(LabError::io(format!("write {}", host.config.display())))?;
        }
        Ok(())
    }

    fn store(&self) -> Result<(), LabError> {
        self.state.store(&self.folder.file(folder::STATE))
    }

    /// What runs in the namespace of a host: its daemon, or its machine.
    fn command(&self, host: &HostState) -> Result<Vec<OsString>, LabError> {
        let (options, programs) = (&self.order.options, &self.order.programs);
        match (&options.machines, &self.state.accelerator) {
            (Some(machines), Some(accelerator)) => {
                qemu::command(machines, accelerator, &self.folder.path, host, &self.state)
            }
            _ => Ok([programs.daemon.as_os_str(), OsStr::new("--config"), host.config.as_os_str()]
                .map(OsString::from)
                .into()),
        }
    }

    /// Starts a host's daemon, or its machine.
    fn start_daemon(&mut self, index: usize) -> Result<(), LabError> {
        let host = &self.state.hosts[index];
        // A daemon's log about its users is not for other users.
        let log = fs::OpenOptions::new().create(true).append(true).mode(0o600).open(&host.log);
        let log = log.map_err(LabError::io(format!("open {}", host.log.display())))?;
        let error_log = log.try_clone().map_err(LabError::io("duplicate a descriptor"))?;
        let mut daemon = Spawn::new(&self.order.programs.keeper);
        if self.order.options.counted {
            daemon.env("CROSSLANE_ACCOUNT", self.folder.file(&format!("{}.account", host.name)));
        }
        let child = daemon
            .arg("place")
            .arg(&self.folder.path)
            .args([host.name.as_str(), "off", "tied"])
            .args(self.command(host)?)
            .env("CROSSLANE_LOG", &self.order.options.log)
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(error_log)
            .spawn()
            .map_err(LabError::io("start a daemon"))?;
        let pid = i32::try_from(child.id()).unwrap_or_default();
        self.state.hosts[index].daemon = Identity::of(pid);
        self.daemons[index] = Some(child);
        Ok(())
    }

    /// Sleeps until there is something to do, until the end.
    fn serve(&mut self, watch: &Watch) -> Result<(), LabError> {
        let stdin = std::io::stdin();
        loop {
            let news = self.wait(watch)?;
            if news.ended {
                return Ok(());
            }
            if news.child {
                drain(&watch.child);
                self.reap()?;
            }
            if news.asked {
                self.answer(&watch.socket);
            }
            if news.cables {
                self.servers.iter_mut().for_each(Server::look);
            }
            if news.maker {
                let mut word = [0];
                match stdin.lock().read(&mut word) {
                    Ok(1) => self.tied = word != *b"D",
                    _ => return Ok(()),
                }
            }
        }
    }

    fn wait(&self, watch: &Watch) -> Result<News, LabError> {
        let stdin = std::io::stdin();
        let mut fds = vec![
            PollFd::new(&watch.end, PollFlags::IN),
            PollFd::new(&watch.socket, PollFlags::IN),
            PollFd::new(&watch.child, PollFlags::IN),
        ];
        if self.tied {
            fds.push(PollFd::new(&stdin, PollFlags::IN));
        }
        let own = fds.len();
        fds.extend(self.servers.iter().flat_map(Server::events));
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(LabError::io("poll")(errno)),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let (own, cables) = ready.split_at(own);
        let maker = self.tied && own[3];
        Ok(News { ended: own[0], asked: own[1], child: own[2], maker, cables: cables.contains(&true) })
    }

    /// Reaps daemons that ended by themselves.
    fn reap(&mut self) -> Result<(), LabError> {
        for (daemon, host) in self.daemons.iter_mut().zip(&mut self.state.hosts) {
            if daemon.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None))) {
                *daemon = None;
                host.daemon = None;
            }
        }
        self.store()
    }

    fn answer(&mut self, socket: &UnixListener) {
        let Ok((mut peer, _)) = socket.accept() else { return };
        let Some(command) = read(&peer) else { return };
        let outcome = command.and_then(|command| self.obey(&command));
        let answer = outcome.map_or_else(|error| error.to_string(), |()| READY.to_owned());
        // The requester may be gone.
        let _ = peer.write_all(answer.as_bytes());
    }

    fn obey(&mut self, command: &Command) -> Result<(), LabError> {
        match command {
            Command::Start { host } => self.start_again(self.index(host)?)?,
            Command::Kill { host, signal } => self.kill(self.index(host)?, *signal)?,
            Command::Cable { number, cut } => self.note_cable(*number, *cut)?,
        }
        self.store()
    }

    fn index(&self, host: &str) -> Result<usize, LabError> {
        Ok(usize::from(self.state.host(host)?.id) - 1)
    }

    fn start_again(&mut self, index: usize) -> Result<(), LabError> {
        if self.daemons[index].is_some() {
            let host = &self.state.hosts[index].name;
            return Err(LabError::Options(format!("the daemon of {host} runs already")));
        }
        self.start_daemon(index)
    }

    fn kill(&mut self, index: usize, signal: i32) -> Result<(), LabError> {
        let (host, daemon) = (&mut self.state.hosts[index], &mut self.daemons[index]);
        let Some(child) = daemon else {
            return Err(LabError::Options(format!("the daemon of {} does not run", host.name)));
        };
        let signal = Signal::from_named_raw(signal)
            .ok_or_else(|| LabError::Options(format!("{signal} is no signal")))?;
        let gone = host.daemon.is_none_or(|it| {
            it.signal(signal);
            it.wait_gone(KILL_PATIENCE)
        });
        if !gone {
            let (name, patience) = (&host.name, KILL_PATIENCE.as_secs());
            return Err(LabError::Options(format!("the daemon of {name} did not end within {patience} s")));
        }
        child.wait().map_err(LabError::io("wait for a daemon"))?;
        (*daemon, host.daemon) = (None, None);
        Ok(())
    }

    fn note_cable(&mut self, number: u8, cut: bool) -> Result<(), LabError> {
        self.state.cut.retain(|&it| it != number);
        if cut {
            self.state.cut.push(number);
        }
        if self.state.accelerator.is_some() {
            return self.pull(number, cut);
        }
        self.write_configs()
    }

    /// Pulls a cable between virtual machines, or plugs it in: their kernels see it; their daemons have no part in it.
    fn pull(&self, number: u8, cut: bool) -> Result<(), LabError> {
        let mut cables = self.state.cables.iter().filter(|it| it.number == number);
        cables.try_for_each(|it| cable::set_cut(&self.folder.path, it, cut))?;
        self.servers.iter().filter(|it| it.number == number).for_each(Server::ring);
        Ok(())
    }

    /// Ends programs, then daemons, and removes the files.
    fn finish(&mut self) {
        // From here on the lab is not up; a process that wants one of its name waits for our lock.
        let _ = fs::remove_file(self.folder.file(folder::STATE));
        // We hold the namespaces, so their inodes cannot have been reused.
        let daemons: Vec<Identity> = self.state.hosts.iter().filter_map(|h| h.daemon).collect();
        let networks = self.state.networks();
        let others = |pid| !daemons.iter().any(|d| d.pid == pid);
        if let Err(error) = process::end_members(&networks, others, GRACE) {
            eprintln!("crosslane-keeper: {error}");
        }
        process::end(&daemons, GRACE);
        for child in self.daemons.iter_mut().flatten() {
            // A child that survives SIGKILL is left to init.
            let _ = child.try_wait();
        }
        if let Err(error) = self.folder.remove() {
            eprintln!("crosslane-keeper: {error}");
        }
    }
}

/// What the keeper was woken for.
struct News {
    ended: bool,
    asked: bool,
    child: bool,
    maker: bool,
    cables: bool,
}

/// What wakes the keeper.
struct Watch {
    end: UnixStream,
    child: UnixStream,
    socket: UnixListener,
}

impl Watch {
    fn new(folder: &Folder) -> Result<Self, LabError> {
        let pipe = |signals: &[i32]| -> std::io::Result<UnixStream> {
            let (read, write) = UnixStream::pair()?;
            for &signal in signals {
                signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
            }
            read.set_nonblocking(true)?;
            Ok(read)
        };
        let end = pipe(&[SIGTERM, SIGINT, SIGHUP]).map_err(LabError::io("watch signals"))?;
        let child = pipe(&[SIGCHLD]).map_err(LabError::io("watch children"))?;
        let socket =
            UnixListener::bind(folder.file(folder::KEEPER)).map_err(LabError::io("listen for requests"))?;
        Ok(Self { end, child, socket })
    }
}

/// Fails if the maker is gone, as after Ctrl-C.
fn maker_waits() -> Result<(), LabError> {
    let stdin = std::io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    let gone = poll(&mut fds, Some(&Default::default())).is_ok_and(|ready| ready > 0);
    if gone { Err(LabError::Keeper("it is not wanted any more".to_owned())) } else { Ok(()) }
}

fn drain(mut pipe: &UnixStream) {
    let mut bytes = [0; 64];
    while matches!(pipe.read(&mut bytes), Ok(n) if n > 0) {}
}

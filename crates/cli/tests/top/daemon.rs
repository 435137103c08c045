//! Daemons of two hosts on one cable, and streams between them.

use crosslane_client::session::{Grant, Session};
use crosslane_wire::local::Request;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
const DAEMON: &str = "--become-a-daemon";

/// The configuration of the daemon that this process is to be, if it is to be one.
pub(crate) fn asked_for() -> Option<PathBuf> {
    let mut words = std::env::args_os().skip(1);
    (words.next()? == DAEMON).then(|| words.next().map(PathBuf::from))?
}

/// Asks again and again until `probe` has a value.
pub(crate) fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Two hosts, h1 and h2.
pub(crate) struct Pair {
    folder: tempfile::TempDir,
    daemons: Vec<Child>,
}

impl Pair {
    /// Starts them, and waits until they know each other.
    pub(crate) fn start() -> Self {
        let mut pair = Self { folder: tempfile::tempdir().expect("a folder"), daemons: Vec::new() };
        (1..=2).for_each(|host| pair.add(host));
        for host in 1..=2 {
            until("the cable is up", || pair.knows_the_other(host).then_some(()));
        }
        pair
    }

    fn add(&mut self, host: u16) {
        let (side, cable) = (if host == 1 { "a" } else { "b" }, self.folder.path().join("cable"));
        let text = format!(
            "host = {host}\nsubnet = \"127.86.0.0/24\"\ncontrol = \"{}\"\ninterface = \"\"\nring_max = \"1M\"\n\
             rules = [\"use both server * *:*\", \"use both client * *:*\"]\n\
             [[port]]\nname = \"right\"\ncable = \"{}\"\nside = \"{side}\"\nwindow = \"2G\"\n",
            self.socket(host).display(),
            cable.display()
        );
        let file = self.folder.path().join(format!("{host}.toml"));
        fs::write(&file, text).expect("written");
        let log = File::create(self.folder.path().join(format!("{host}.log"))).expect("a log");
        // It ends with the thread of the test, also if that is killed and drops nothing.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(std::env::current_exe().expect("this program"));
        self.daemons.push(command.arg(DAEMON).arg(file).stderr(log).spawn().expect("setpriv"));
    }

    fn knows_the_other(&self, host: u16) -> bool {
        let text = Session::connect(&self.socket(host)).ok().and_then(|session| {
            session.hello("test").ok()?;
            session.text(&Request::Status).ok()
        });
        let status = text.and_then(|text| crosslane_status::Status::parse(&text).ok());
        status.is_some_and(|status| !status.hosts.is_empty() && status.links.len() == 1)
    }

    /// The control socket of a host's daemon.
    pub(crate) fn socket(&self, host: u16) -> PathBuf {
        self.folder.path().join(format!("{host}.sock"))
    }

    /// Ends a host's daemon at once.
    pub(crate) fn kill(&mut self, host: usize) {
        self.daemons[host - 1].kill().expect("killed");
        self.daemons[host - 1].wait().expect("ended");
    }

    /// Sends a signal to a host's daemon.
    pub(crate) fn signal(&self, host: usize, signal: Signal) {
        kill_process(Pid::from_child(&self.daemons[host - 1]), signal).expect("signalled");
    }

    /// A stream from a program of this name at h1 to one at h2.
    pub(crate) fn stream(&self, program: &str) -> Stream {
        let session = |host, name: &str| {
            let session = Session::connect(&self.socket(host)).expect("a daemon");
            session.hello(name).expect("welcome");
            session
        };
        let (client, server) = (session(1, program), session(2, "server"));
        let listener = TcpListener::bind("127.86.0.2:0").expect("a listener");
        server.listen(listener.as_fd()).expect("announced");
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
        let socket = socket.expect("a socket");
        rustix::net::bind(&socket, &SocketAddr::from(([127, 86, 0, 1], 0))).expect("bound");
        let remote = listener.local_addr().expect("an address");
        let near =
            client.circuit(&Request::Connect { remote }, socket.as_fd()).expect("asked").expect("a circuit");
        rustix::net::connect(&socket, &remote).expect("connected");
        let (accepted, _) = listener.accept().expect("accepted");
        let far = server.circuit(&Request::Accept, accepted.as_fd()).expect("asked").expect("announced");
        Stream { near, _far: far, _sessions: [client, server], _sockets: (socket, accepted, listener) }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        if std::thread::panicking() {
            for host in 1..=2 {
                let log = fs::read_to_string(self.folder.path().join(format!("{host}.log")));
                eprintln!("--- log of h{host}\n{}", log.unwrap_or_default());
            }
        }
    }
}

/// A stream, and all that holds it.
pub(crate) struct Stream {
    near: Grant,
    _far: Grant,
    _sessions: [Session; 2],
    _sockets: (OwnedFd, TcpStream, TcpListener),
}

impl Stream {
    /// Counts bytes as sent, as a program counts its own.
    pub(crate) fn send(&self, bytes: u64) {
        self.near.state.counters.tx_bytes.fetch_add(bytes, Relaxed);
    }
}

//! Real daemons in a temporary folder, and a small client of their control sockets.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part of this")]

pub mod joined;
pub mod liar;

use crosslane_client::shared::SharedState;
use crosslane_passing::{Foreign, Owner, receive, send};
use crosslane_shm::wake::Receiver;
use crosslane_shm::{Inbound, Load, Outbound, Segment, Store};
use crosslane_wire::codec::{self, MAX_MESSAGE};
use crosslane_wire::local::{Reply, Request, STATUS_ANNOUNCED};
use crosslane_wire::segment::RING;
use crosslane_wire::{ChannelInfo, CircuitId, PROTOCOL_VERSION, Tuple, WaiterId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use serde_json::Value;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A user that is neither root nor runs daemons.
pub const NOBODY: u32 = 65534;
/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Asks again and again until `probe` has a value.
pub fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A folder with daemons; all end when it is dropped.
pub struct Lab {
    folder: tempfile::TempDir,
    daemons: Vec<Option<Child>>,
    /// What each port's part of the configuration says besides.
    port_lines: String,
}

/// Delays of stores, us, as `10` or `0-1000`: the cables of all tests that use [`port`] are posted ones then.
const DELAY: &str = "CROSSLANE_TEST_DELAY_US";
/// Seed of those delays; drawn, and printed, if it is not set.
const SEED: &str = "CROSSLANE_TEST_SEED";

/// Lines of a port whose stores land after `delay`, as [`DELAY`] has it.
pub fn posted_lines(delay: &str) -> String {
    let seed = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
        std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |since| u64::from(since.subsec_nanos()))
    });
    eprintln!("posted cables: {DELAY}={delay} {SEED}={seed}");
    let (least, most) = delay.split_once('-').unwrap_or((delay, delay));
    format!("kind = \"posted\"\ndelay_us = [{least}, {most}]\nseed = {seed}\n")
}

/// A port of a daemon under test.
pub struct TestPort {
    pub cable: &'static str,
    pub listens: bool,
    pub window: &'static str,
}

pub fn port(cable: &'static str, listens: bool) -> TestPort {
    TestPort { cable, listens, window: "2G" }
}

impl Lab {
    pub fn new() -> Self {
        let port_lines = std::env::var(DELAY).map_or_else(|_| String::new(), |delay| posted_lines(&delay));
        Self::with(port_lines)
    }

    /// With soft cables, whatever the environment says.
    pub fn soft() -> Self {
        Self::with(String::new())
    }

    /// With posted cables of such delays, us.
    pub fn posted(delay: &str) -> Self {
        Self::with(posted_lines(delay))
    }

    /// Whether stores are under way for a while on its cables: then no program maps another's buffers over them.
    pub fn is_posted(&self) -> bool {
        !self.port_lines.is_empty()
    }

    fn with(port_lines: String) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), daemons: Vec::new(), port_lines }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the configuration of daemon `number` with host id `host`.
    pub fn configure(&self, number: usize, host: u16, ports: &[TestPort], more: &str) -> PathBuf {
        let control = self.control(number);
        let mut text = format!(
            "host = {host}\nsubnet = \"127.86.0.0/24\"\ncontrol = \"{}\"\ninterface = \"\"\nring_max = \"1M\"\nrules = [\"use both server * *:*\", \"use both client * *:*\"]\n{more}\n",
            control.display()
        );
        for port in ports {
            let cable = self.path(port.cable);
            let side = if port.listens { "a" } else { "b" };
            text.push_str(&format!(
                "[[port]]\nname = \"{0}\"\ncable = \"{1}\"\nside = \"{side}\"\nwindow = \"{2}\"\n{3}",
                port.cable,
                cable.display(),
                port.window,
                self.port_lines
            ));
        }
        let file = self.path(&format!("{number}.toml"));
        std::fs::write(&file, text).unwrap();
        file
    }

    pub fn control(&self, number: usize) -> PathBuf {
        self.path(&format!("{number}.sock"))
    }

    /// Starts daemon `number` and waits until it answers.
    pub fn start(&mut self, number: usize) {
        let log = self.path(&format!("{number}.log"));
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log);
        self.start_logging(number, Stdio::from(log.unwrap()));
    }

    /// The same with another standard error.
    pub fn start_logging(&mut self, number: usize, log: Stdio) {
        // It ends with the thread of the test, also if that is killed and drops nothing.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", env!("CARGO_BIN_EXE_crosslaned")]);
        self.start_by(number, command, log);
    }

    /// The same by a command that becomes the daemon.
    pub fn start_by(&mut self, number: usize, mut command: Command, log: Stdio) {
        let file = self.path(&format!("{number}.toml"));
        let child =
            command.arg("--config").arg(file).env("CROSSLANE_LOG", "debug").stderr(log).spawn().unwrap();
        while self.daemons.len() <= number {
            self.daemons.push(None);
        }
        self.daemons[number] = Some(child);
        until("daemon answers", || Client::connect(&self.control(number)));
    }

    /// Two hosts on one cable, both up.
    pub fn pair() -> Self {
        let mut lab = Self::new();
        lab.configure(1, 1, &[port("c", true)], "");
        lab.configure(2, 2, &[port("c", false)], "");
        lab.start(1);
        lab.start(2);
        lab.wait_hosts(1, &[2]);
        lab.wait_hosts(2, &[1]);
        lab
    }

    /// Three hosts in a ring.
    pub fn ring() -> Self {
        let mut lab = Self::new();
        lab.configure(1, 1, &[port("c12", true), port("c31", false)], "");
        lab.configure(2, 2, &[port("c23", true), port("c12", false)], "");
        lab.configure(3, 3, &[port("c31", true), port("c23", false)], "");
        for number in 1..=3 {
            lab.start(number);
        }
        lab.wait_hosts(1, &[2, 3]);
        lab.wait_hosts(2, &[1, 3]);
        lab.wait_hosts(3, &[1, 2]);
        for number in 1..=3 {
            lab.wait(number, "both cables", |status| {
                let near =
                    |host: &Value| host["hops"] == 1 && host["ways"].as_array().is_some_and(|w| w.len() == 2);
                status["hosts"].as_array().unwrap().iter().all(near)
            });
        }
        lab
    }

    /// Has a daemon read its configuration again.
    pub fn reload(&mut self, number: usize) {
        let pid = rustix::process::Pid::from_child(self.daemon(number));
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    }

    pub fn daemon(&mut self, number: usize) -> &mut Child {
        self.daemons[number].as_mut().unwrap()
    }

    pub fn kill(&mut self, number: usize) {
        let mut child = self.daemons[number].take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Stops a daemon in order and returns its exit code.
    pub fn stop(&mut self, number: usize) -> Option<i32> {
        let mut child = self.daemons[number].take().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        until("daemon stops", || child.try_wait().unwrap()).code()
    }

    pub fn status(&self, number: usize) -> Value {
        let mut client = Client::hello(&self.control(number), "status");
        serde_json::from_str(&client.text(&Request::Status)).unwrap()
    }

    pub fn wait_hosts(&self, number: usize, hosts: &[u64]) {
        self.wait(number, &format!("hosts {hosts:?}"), |status| {
            let known: Vec<u64> =
                status["hosts"].as_array().unwrap().iter().map(|host| host["id"].as_u64().unwrap()).collect();
            known == hosts
        });
    }

    /// Waits until the status of a daemon is as wanted, and returns it.
    pub fn wait(&self, number: usize, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            last = self.status(number);
            if wanted(&last) {
                return last;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("not in time: {what}; status of {number} is {last:#}");
    }

    /// Waits until a daemon has no circuit left, and all window memory back.
    pub fn wait_idle(&self, number: usize) {
        self.wait(number, "all given back", |status| {
            let bare = |port: &Value| port["link"] != "up" || port["window_used"] == window_bare();
            status["circuits"].as_array().unwrap().is_empty()
                && status["ports"].as_array().unwrap().iter().all(bare)
        });
    }

    pub fn log(&self, number: usize) -> String {
        std::fs::read_to_string(self.path(&format!("{number}.log"))).unwrap_or_default()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for child in self.daemons.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            for number in 1..self.daemons.len() {
                eprintln!("--- log of daemon {number}\n{}", self.log(number));
            }
        }
    }
}

/// Window memory that a cable without circuits takes.
pub fn window_bare() -> u64 {
    crosslane_node::cable::circuits(2 << 30)
}

/// A session.
pub struct Client {
    socket: OwnedFd,
    status_page: Option<std::fs::File>,
    pub welcome: Option<Reply>,
}

/// One end of a circuit, mapped.
#[derive(Debug)]
pub struct Circuit {
    pub id: CircuitId,
    pub token: u64,
    pub tuple: Tuple,
    pub client: bool,
    pub status: u32,
    /// What its holders share, if this one made it; and the memory.
    pub state: Option<(SharedState, OwnedFd)>,
    pub keys: (u64, u64),
    pub inbound: Inbound,
    pub outbound: Outbound,
    pub fds: Vec<OwnedFd>,
}

impl Circuit {
    /// The end's name, and the proof of it.
    pub fn key(&self) -> (CircuitId, u64) {
        (self.id, self.token)
    }
}

impl Client {
    pub fn connect(path: &Path) -> Option<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).ok()?;
        Some(Self { socket, status_page: None, welcome: None })
    }

    pub fn hello(path: &Path, program: &str) -> Self {
        Self::connect(path).expect("a daemon").greet(program)
    }

    /// A session of another user: [`NOBODY`]. `None`: these tests do not run as root.
    pub fn of_nobody(path: &Path, program: &str) -> Option<Self> {
        use rustix::thread::set_thread_res_uid;
        let (root, nobody) = (rustix::process::Uid::ROOT, rustix::process::Uid::from_raw(NOBODY));
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: only root may be another user");
            return None;
        }
        // Of this thread alone; the kernel notes it when the session is made.
        let folder = path.parent().unwrap();
        std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        set_thread_res_uid(root, nobody, root).unwrap();
        let client = Self::connect(path);
        set_thread_res_uid(root, root, root).unwrap();
        Some(client.expect("a daemon").greet(program))
    }

    fn greet(self, program: &str) -> Self {
        let mut client = self;
        let request = Request::Hello { version: PROTOCOL_VERSION, program: program.to_owned(), ticket: 0 };
        let (reply, mut fds) = client.ask(&request, &[]);
        assert!(matches!(reply, Reply::Welcome { .. }), "{reply:?}");
        client.status_page = Some(fds.remove(0).into());
        client.welcome = Some(reply);
        client
    }

    /// What the session shows to go on by another connection.
    pub fn ticket(&self) -> u64 {
        let Some(Reply::Welcome { ticket, .. }) = self.welcome else { panic!("no welcome") };
        ticket
    }

    /// Ends the connection, but not this process.
    pub fn lose(&mut self) {
        self.socket = std::fs::File::open("/dev/null").unwrap().into();
    }

    /// Another connection, of the user that it is now, which shows the ticket; whether the session goes on by it.
    pub fn come_again(&mut self, path: &Path) -> bool {
        let (mut new, ticket) = (Self::connect(path).expect("a daemon"), self.ticket());
        let request = Request::Hello { version: PROTOCOL_VERSION, program: "again".to_owned(), ticket };
        let (reply, fds) = new.ask(&request, &[]);
        let resumed = matches!(reply, Reply::Welcome { resumed: true, .. });
        assert!(!resumed || fds.is_empty(), "a status page comes with a new session only");
        self.socket = new.socket;
        resumed
    }

    pub fn tell(&self, request: &Request, fds: &[BorrowedFd<'_>]) {
        let message = codec::encode(request).unwrap();
        // A daemon that has a flood of them before this one takes it later.
        until("the daemon takes a request", || {
            match send(&self.socket, &message, fds, SendFlags::DONTWAIT) {
                Err(Errno::AGAIN) => None,
                sent => Some(sent),
            }
        })
        .unwrap();
    }

    /// Whether there was room for a request.
    pub fn try_tell(&self, request: &Request) -> Result<(), Errno> {
        send(&self.socket, &codec::encode(request).unwrap(), &[], SendFlags::DONTWAIT)
    }

    /// The control connection.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub fn ask(&mut self, request: &Request, fds: &[BorrowedFd<'_>]) -> (Reply, Vec<OwnedFd>) {
        self.tell(request, fds);
        self.answer()
    }

    /// A wake event, and its number.
    pub fn waiter(&mut self) -> (WaiterId, Receiver) {
        let (reply, fds) = self.ask(&Request::Waiter, &[]);
        let Reply::Waiter { waiter, word } = reply else { panic!("{reply:?}") };
        (waiter, Receiver::of(fds.into_iter().next().unwrap(), word).unwrap())
    }

    pub fn answer(&mut self) -> (Reply, Vec<OwnedFd>) {
        self.hear().expect("an answer")
    }

    fn hear(&self) -> Option<(Reply, Vec<OwnedFd>)> {
        wait_readable(self.socket.as_fd());
        let mut buffer = [0; MAX_MESSAGE];
        let got = receive(&self.socket, &mut buffer, RecvFlags::DONTWAIT, Owner::NOBODY).ok()?;
        if got.bytes == 0 {
            return None;
        }
        let fds = got.fds.into_iter().map(Foreign::into_owned).collect();
        Some((codec::decode(&buffer[..got.bytes]).unwrap(), fds))
    }

    pub fn text(&mut self, request: &Request) -> String {
        self.tell(request, &[]);
        self.text_answer()
    }

    /// All packets of a text that was asked for.
    pub fn text_answer(&mut self) -> String {
        let mut text = String::new();
        loop {
            match self.answer().0 {
                Reply::Text { part, last } => {
                    text.push_str(&part);
                    if last {
                        return text;
                    }
                }
                other => panic!("no text but {other:?}"),
            }
        }
    }

    /// Announces a listener.
    pub fn listen(&mut self, listener: &TcpListener) {
        let (reply, _) = self.ask(&Request::Listen, &[listener.as_fd()]);
        assert_eq!(reply, Reply::Done);
    }

    /// Asks for a circuit; a reply that gives none comes back as it is.
    pub fn circuit(&mut self, request: &Request, socket: BorrowedFd<'_>) -> Result<Circuit, Reply> {
        let state = (*request != Request::Adopt).then(|| SharedState::create().unwrap());
        let memory = state.as_ref().map(|(_, memory)| memory.as_fd());
        let sent: Vec<BorrowedFd<'_>> = [socket].into_iter().chain(memory).collect();
        self.tell(request, &sent);
        self.granted().map(|circuit| Circuit { state, ..circuit })
    }

    /// The answer to a request for a circuit that was made before.
    pub fn granted(&mut self) -> Result<Circuit, Reply> {
        let (reply, fds) = self.answer();
        if matches!(reply, Reply::Circuit { .. }) { Ok(circuit_of(&reply, fds)) } else { Err(reply) }
    }

    pub fn connect_to(&mut self, local: &str, remote: SocketAddr) -> (OwnedFd, Result<Circuit, Reply>) {
        let socket = bound_socket(local);
        let circuit = self.circuit(&Request::Connect { remote }, socket.as_fd());
        (socket, circuit)
    }

    pub fn close(&self, circuit: &Circuit, abort: bool) {
        self.tell(&Request::Close { circuit: circuit.id, token: circuit.token, abort }, &[]);
    }

    /// The word of a circuit in the status page.
    pub fn status(&self, circuit: &Circuit) -> u32 {
        self.status_word(circuit.status)
    }

    /// Connections that wait to be accepted by a listener of this session.
    pub fn announced(&self) -> u32 {
        self.status_word(STATUS_ANNOUNCED)
    }

    fn status_word(&self, index: u32) -> u32 {
        let mut word = [0; 4];
        self.status_page.as_ref().unwrap().read_exact_at(&mut word, u64::from(index) * 4).unwrap();
        u32::from_ne_bytes(word)
    }
}

/// The circuit that a reply grants.
pub fn circuit_of(reply: &Reply, fds: Vec<OwnedFd>) -> Circuit {
    let Reply::Circuit { circuit, token, tuple, client, channel, rx_key, tx_key, status, .. } = reply else {
        panic!("no circuit but {reply:?}")
    };
    let given = |fd: &OwnedFd, info| Segment { fd: fd.try_clone().unwrap(), info };
    Circuit {
        id: *circuit,
        token: *token,
        tuple: *tuple,
        client: *client,
        status: *status,
        state: None,
        keys: (*rx_key, *tx_key),
        inbound: Inbound::map(&given(&fds[0], channel.inbound)).unwrap(),
        outbound: Outbound::map(&given(&fds[1], channel.outbound)).unwrap(),
        fds,
    }
}

/// The next segments of an end, as an end.
pub fn remap(end: &Circuit, channel: &ChannelInfo, keys: (u64, u64), fds: Vec<OwnedFd>) -> Circuit {
    let given = |fd: &OwnedFd, info| Segment { fd: fd.try_clone().unwrap(), info };
    Circuit {
        id: end.id,
        token: end.token,
        tuple: end.tuple,
        client: end.client,
        status: end.status,
        state: None,
        keys,
        inbound: Inbound::map(&given(&fds[0], channel.inbound)).unwrap(),
        outbound: Outbound::map(&given(&fds[1], channel.outbound)).unwrap(),
        fds,
    }
}

pub fn wait_readable(fd: BorrowedFd<'_>) {
    let mut ready = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let timeout = Timespec { tv_sec: 20, tv_nsec: 0 };
    assert_eq!(poll(&mut ready, Some(&timeout)), Ok(1), "nothing in time");
}

pub fn bound_socket(local: &str) -> OwnedFd {
    let local: SocketAddr = local.parse().unwrap();
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    rustix::net::bind(&socket, &local).unwrap();
    socket
}

/// Connects a bound socket and accepts it.
pub fn finish(socket: OwnedFd, listener: &TcpListener) -> (TcpStream, TcpStream) {
    rustix::net::connect(&socket, &listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    (socket.into(), server)
}

/// Whether what one end stores is what the other loads, both ways, and the keys fit.
pub fn check_joined(a: &Circuit, b: &Circuit) {
    for (from, to) in [(a, b), (b, a)] {
        let word = from.token | 1;
        from.outbound.store_u64(RING + 4096, word);
        // Over a posted cable it lands later.
        until("it lands", || (to.inbound.load_u64(RING + 4096) == word).then_some(()));
    }
    assert_eq!((a.keys.0, a.keys.1), (b.keys.1, b.keys.0));
    assert_eq!(a.tuple, b.tuple);
    assert!(a.client != b.client);
}

/// Whether this process may become other users; says so if not.
pub fn may_be_others() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED: only root can be several users");
    }
    root
}

impl Lab {
    /// Lets other users reach the daemons' sockets.
    pub fn open_to_all(&self) {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(self.folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

impl Client {
    /// A session of another user, not greeted yet. The kernel asks who connects, not who sends.
    pub fn connect_as(path: &Path, uid: u32) -> Option<Self> {
        let path = path.to_owned();
        let user = rustix::process::Uid::from_raw(uid);
        let connect = move || {
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            Self::connect(&path)
        };
        std::thread::spawn(connect).join().unwrap()
    }

    /// A session of another user, if the daemon takes it.
    pub fn hello_as(path: &Path, uid: u32) -> Option<Self> {
        let mut client = Self::connect_as(path, uid)?;
        let request = Request::Hello { version: PROTOCOL_VERSION, program: format!("user {uid}"), ticket: 0 };
        send(&client.socket, &codec::encode(&request).unwrap(), &[], SendFlags::DONTWAIT).ok()?;
        let (reply, mut fds) = client.hear()?;
        matches!(reply, Reply::Welcome { .. }).then(|| {
            client.status_page = Some(fds.remove(0).into());
            client.welcome = Some(reply);
            client
        })
    }
}

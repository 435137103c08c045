//! Daemons in this process, and an honest pair of programs whose stream goes on whatever happens.

use crosslane::fabric::Fabric;
use crosslane::stream::Stream;
use crosslane_node::config::Config;
use crosslane_node::daemon;
use crosslane_passing::{Foreign, Owner, receive, send};
use crosslane_wire::PROTOCOL_VERSION;
use crosslane_wire::codec::{self, MAX_MESSAGE};
use crosslane_wire::local::{Reply, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Uid;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest that an honest program waits for anything; most take microseconds.
pub(crate) const LONG: Duration = Duration::from_secs(5);
/// Longest until what a hostile program left is gone: doubtful ends are looked at each second.
const SETTLED: Duration = Duration::from_secs(20);
/// Inputs between two looks whether all was given back.
const SETTLE_EVERY: u32 = 400;
/// Bytes that the honest stream moves each way for each input.
const EXCHANGE: usize = 20_000;
/// Descriptors that daemons may have more than at first: status pages and channels that come later.
const SPARE: usize = 32;
/// Inputs that are printed when a test fails.
const RECENT: usize = 4;
/// Window memory of a cable without circuits.
const BARE: u64 = crosslane_node::cable::circuits(2 << 30);

/// A port of a daemon.
pub(crate) struct TestPort {
    /// File name of the cable.
    pub(crate) cable: &'static str,
    /// Whether this end listens.
    pub(crate) listens: bool,
}

/// What can be counted of what programs hold.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    sessions: u64,
    circuits: usize,
    listeners: usize,
    windows: Vec<u64>,
}

/// Daemons with the honest pair: one program on host 1, one on the last host.
pub(crate) struct World {
    /// What was tried last.
    pub(crate) recent: Recent,
    /// The first three parts of all addresses.
    subnet: &'static str,
    interface: &'static str,
    folder: tempfile::TempDir,
    daemons: Vec<JoinHandle<()>>,
    honest: Option<(Stream, Stream)>,
    sent: usize,
    inputs: u32,
    before: Vec<Held>,
    descriptors: usize,
    _alone: MutexGuard<'static, ()>,
}

/// Tests of one program run side by side; descriptors are counted for the whole process, so worlds take turns.
static ALONE: Mutex<()> = Mutex::new(());

impl World {
    /// Starts a daemon for each list of ports; hosts are counted from 1.
    pub(crate) fn start(hosts: &[&[TestPort]], more: &str) -> Self {
        Self::start_on("127.86.0", "", hosts, more)
    }

    /// The same with an interface, of which there is one in a network: for one daemon.
    pub(crate) fn with_interface(hosts: &[&[TestPort]]) -> Self {
        Self::start_on("10.86.0", "xl0", hosts, "")
    }

    fn start_on(subnet: &'static str, interface: &'static str, hosts: &[&[TestPort]], more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Other users reach the control sockets.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut world = Self {
            recent: Recent::default(),
            subnet,
            interface,
            folder,
            daemons: Vec::new(),
            honest: None,
            sent: 0,
            inputs: 0,
            before: Vec::new(),
            descriptors: 0,
            _alone: ALONE.lock().unwrap_or_else(PoisonError::into_inner),
        };
        hosts.iter().for_each(|ports| world.add(ports, more));
        world
    }

    /// Starts the daemon of the next host.
    pub(crate) fn add(&mut self, ports: &[TestPort], more: &str) {
        let number = self.daemons.len() + 1;
        let (subnet, interface) = (self.subnet, self.interface);
        let mut text = format!(
            "host = {number}\nsubnet = \"{subnet}.0/24\"\ncontrol = \"{}\"\ninterface = \"{interface}\"\nring_max = \"256K\"\n\
             rules = [\"use both server * *:*\", \"use both client * *:*\"]\n{more}\n",
            self.control(number).display()
        );
        for TestPort { cable, listens } in ports {
            let (path, side) = (self.path(cable), if *listens { "a" } else { "b" });
            text.push_str(&format!(
                "[[port]]\nname = \"{cable}\"\ncable = \"{}\"\nside = \"{side}\"\nwindow = \"64M\"\n",
                path.display()
            ));
        }
        let file = self.path(&format!("{number}.toml"));
        std::fs::write(&file, text).unwrap();
        let run = move || {
            let config = Config::read(&file).unwrap();
            daemon::serve(config, &file).unwrap();
        };
        self.daemons.push(std::thread::Builder::new().name(format!("daemon-{number}")).spawn(run).unwrap());
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn control(&self, number: usize) -> PathBuf {
        self.path(&format!("{number}.sock"))
    }

    /// Joins programs on hosts 1 and `to`; what they hold is what is left when all others are gone.
    pub(crate) fn join_honest(&mut self, to: usize) {
        let fabric = |number| until("a daemon", || Fabric::open_at(&self.control(number)).ok());
        let (near, far) = (fabric(1), fabric(to));
        let listener = far.listen(format!("{}.{to}:0", self.subnet).parse().unwrap()).unwrap();
        let client = until("a circuit", || near.connect(listener.address()).ok());
        let server = listener.accept().unwrap();
        for stream in [&client, &server] {
            stream.set_receive_timeout(Some(LONG));
            stream.set_send_timeout(Some(LONG));
        }
        // Both programs stay: their sessions are the streams'.
        self.honest = Some((client, server));
        drop(listener);
        self.exchange();
        until("rest", || {
            let before = self.held();
            std::thread::sleep(Duration::from_millis(100));
            (before == self.held()).then_some(())
        });
        self.before = self.held();
        self.descriptors = open_descriptors();
    }

    /// The honest stream's bytes go by the engines.
    pub(crate) fn offload_honest(&mut self) {
        let (client, server) = self.honest.as_ref().expect("an honest pair");
        client.set_offload(true);
        server.set_offload(true);
        for _ in 0..20 {
            self.exchange();
        }
        self.before = self.held();
        self.descriptors = open_descriptors();
    }

    /// What is right after each input: the daemons live and answer, the honest stream moves its bytes. Now and then also
    /// that all was given back.
    pub(crate) fn check(&mut self) {
        self.check_alive();
        self.exchange();
        if self.is_due() {
            self.settle();
        }
        self.inputs += 1;
    }

    /// Whether the next check looks whether all was given back.
    pub(crate) fn is_due(&self) -> bool {
        let always = std::env::var_os("CROSSLANE_FUZZ_SETTLE").is_some();
        always || self.inputs % SETTLE_EVERY == SETTLE_EVERY - 1
    }

    /// All that was taken is given back.
    pub(crate) fn settle(&self) {
        let begin = Instant::now();
        loop {
            let (held, descriptors) = (self.held(), open_descriptors());
            let more = descriptors.saturating_sub(self.descriptors);
            if held == self.before && more <= SPARE {
                return;
            }
            if begin.elapsed() > SETTLED {
                let status: Vec<Value> = (1..=self.daemons.len()).map(|number| self.status(number)).collect();
                panic!(
                    "not given back within {} inputs: {held:?}, {:?} at first; {descriptors} descriptors, {} at first\n{status:#?}",
                    self.inputs, self.before, self.descriptors
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn check_alive(&self) {
        for (daemon, number) in self.daemons.iter().zip(1..) {
            assert!(!daemon.is_finished(), "daemon {number} has ended");
            let begin = Instant::now();
            self.status(number);
            assert!(begin.elapsed() < LONG, "daemon {number} answered after {:?}", begin.elapsed());
        }
    }

    /// Bytes both ways, each compared.
    fn exchange(&mut self) {
        let Some((client, server)) = &self.honest else { return };
        for (from, to) in [(client, server), (server, client)] {
            let byte = |at: usize| u8::try_from((self.sent + at) % 251).unwrap();
            let bytes: Vec<u8> = (0..EXCHANGE).map(byte).collect();
            from.send(&bytes).unwrap();
            let mut got = vec![0; EXCHANGE];
            to.receive_all(&mut got).unwrap();
            assert!(got == bytes, "the honest stream's bytes are wrong");
            self.sent += 1;
        }
    }

    pub(crate) fn status(&self, number: usize) -> Value {
        let session = Session::connect(&self.control(number), None).expect("a session");
        session.tell(&hello(), &[]);
        assert!(matches!(session.answer(LONG), Some((Reply::Welcome { .. }, _))), "no welcome");
        session.tell(&Request::Status, &[]);
        let mut text = String::new();
        loop {
            match session.answer(LONG).expect("no status").0 {
                Reply::Text { part, last } => {
                    text.push_str(&part);
                    if last {
                        return serde_json::from_str(&text).unwrap();
                    }
                }
                other => panic!("no status but {other:?}"),
            }
        }
    }

    fn held(&self) -> Vec<Held> {
        let count = |value: &Value| value.as_array().map_or(0, Vec::len);
        let of = |status: Value| Held {
            sessions: ["sessions", "lost_sessions"].iter().filter_map(|key| status[key].as_u64()).sum(),
            circuits: count(&status["circuits"]),
            listeners: count(&status["listeners"]),
            windows: status["ports"]
                .as_array()
                .into_iter()
                .flatten()
                .map(
                    |port| {
                        if port["link"] == "up" { port["window_used"].as_u64().unwrap_or(0) } else { BARE }
                    },
                )
                .collect(),
        };
        (1..=self.daemons.len()).map(|number| of(self.status(number))).collect()
    }
}

/// The inputs before the one that fails: a daemon may find out later.
#[derive(Clone, Default)]
pub(crate) struct Recent(Rc<RefCell<VecDeque<String>>>);

impl Recent {
    /// An input begins; if the test fails before what is returned is dropped, the last inputs are printed, once.
    pub(crate) fn begin(&self, input: &impl Debug) -> Recent {
        let mut recent = self.0.borrow_mut();
        recent.truncate(RECENT - 1);
        recent.push_front(format!("{input:?}"));
        self.clone()
    }
}

impl Drop for Recent {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (before, input) in self.0.borrow_mut().drain(..).enumerate() {
                eprintln!("input {before} before the failure: {input}");
            }
        }
    }
}

/// What every session begins with.
pub(crate) fn hello() -> Request {
    Request::Hello { version: PROTOCOL_VERSION, program: "fuzz".to_owned(), ticket: 0 }
}

/// A session that says whatever it likes.
pub(crate) struct Session(pub(crate) OwnedFd);

impl Session {
    /// Connects as another user, if one is named and this process may.
    pub(crate) fn connect(path: &std::path::Path, user: Option<u32>) -> Option<Self> {
        as_user(user, || {
            let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
            let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
            rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).ok()?;
            Some(Self(socket))
        })
    }

    pub(crate) fn tell(&self, request: &Request, fds: &[BorrowedFd<'_>]) -> bool {
        codec::encode(request).is_ok_and(|bytes| self.send(&bytes, fds))
    }

    /// Sends a packet; whether it went.
    pub(crate) fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
        send(&self.0, bytes, fds, SendFlags::DONTWAIT).is_ok()
    }

    /// The next answer, if it comes in time.
    pub(crate) fn answer(&self, within: Duration) -> Option<(Reply, Vec<OwnedFd>)> {
        let mut ready = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
        let nanos = within.subsec_nanos().into();
        let timeout = Timespec { tv_sec: within.as_secs().try_into().unwrap(), tv_nsec: nanos };
        poll(&mut ready, Some(&timeout)).ok()?;
        let mut buffer = [0; MAX_MESSAGE];
        let got = receive(&self.0, &mut buffer, RecvFlags::DONTWAIT, Owner::NOBODY).ok()?;
        let fds = got.fds.into_iter().map(Foreign::into_owned).collect();
        Some((codec::decode(buffer.get(..got.bytes)?).ok()?, fds))
    }
}

/// Does something as another user, in a thread of its own.
pub(crate) fn as_user<T: Send>(user: Option<u32>, what: impl FnOnce() -> T + Send) -> T {
    let Some(user) = user.filter(|_| rustix::process::geteuid().is_root()) else { return what() };
    let run = || {
        let uid = Uid::from_raw(user);
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
        what()
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}

/// Asks again and again until `probe` has a value.
pub(crate) fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + SETTLED;
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

//! Owners and requesters as programs of their own: asleep, and killed in the middle: the other end gets an error, and
//! nobody else notices.

use super::support::{Lab, until};
use super::{address, fabric, peer, serve};
use crosslane::fabric::Fabric;
use crosslane::memory::{Access, Memory, RemoteRegion};
use crosslane::peer::{Error, Peer};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, setrlimit};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const ROLE: &str = "CROSSLANE_TEST_ROLE";
/// A notification that has an owner open files until it has no descriptors left; any other has it close them.
const HOARD: u64 = 1;

/// Another program: this test file again, as `role`. It is killed when dropped.
pub(crate) struct Program(Child);

impl Program {
    pub(crate) fn start(role: &str, control: PathBuf, words: &str) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "death::program", "--nocapture", "--test-threads=1"])
            .env(ROLE, format!("{role} {} {words}", control.display()))
            .stdout(Stdio::piped())
            .spawn();
        Self(child.unwrap())
    }

    /// The rest of the first line that begins with `mark`.
    fn line(&mut self, mark: &str) -> String {
        let lines = BufReader::new(self.0.stdout.take().unwrap()).lines();
        let found = lines.map_while(Result::ok).find_map(|line| line.strip_prefix(mark).map(str::to_owned));
        found.expect("the program says it")
    }

    /// Where it serves memory, and its region.
    pub(crate) fn owned(&mut self) -> (SocketAddr, RemoteRegion) {
        let line = self.line("owns ");
        let words: Vec<&str> = line.split(' ').collect();
        let (id, key) = (words[1].parse().unwrap(), words[2].parse().unwrap());
        (words[0].parse().unwrap(), RemoteRegion { id, key, len: 1 << 20 })
    }

    /// Whether all its threads sleep now.
    fn sleeps(&self) -> bool {
        all_are(self.0.id(), 'S')
    }

    pub(crate) fn freeze(&self) {
        freeze(&self.0);
    }

    /// It goes on.
    pub(crate) fn thaw(&self) {
        kill_process(Pid::from_child(&self.0), Signal::CONT).unwrap();
    }

    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Stops a process, and waits until none of its threads runs.
pub(crate) fn freeze(child: &Child) {
    kill_process(Pid::from_child(child), Signal::STOP).unwrap();
    until("it is frozen", || all_are(child.id(), 'T').then_some(()));
}

/// Whether all threads of a process are in this state of `/proc`.
fn all_are(process: u32, wanted: char) -> bool {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
    tasks.map(|task| fs::read_to_string(task.path().join("stat")).unwrap_or_default()).all(|stat| {
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        state == Some(wanted)
    })
}

/// Not a test of its own: what [`Program`] runs.
#[test]
fn program() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<&str> = role.split(' ').collect();
    let few = Rlimit { current: Some(100), maximum: Some(100) };
    setrlimit(Resource::Nofile, few).unwrap();
    let fabric = Fabric::open_at(words[1].as_ref()).unwrap();
    match words[0] {
        "putter" => {
            let [address, id, key] = words[2..] else { panic!("{role}") };
            let address: SocketAddr = address.parse().unwrap();
            let remote = RemoteRegion { id: id.parse().unwrap(), key: key.parse().unwrap(), len: 1 << 20 };
            let mut peer = Peer::connect(fabric, address).unwrap();
            println!("\nputs");
            loop {
                peer.put(&remote, 0, &vec![0x11; 1 << 20]).unwrap();
                peer.fetch_add(&remote, 0, 1).unwrap();
            }
        }
        "owner" => {
            let memory = Memory::serve(fabric, address(2)).unwrap();
            let region = memory.register(1 << 20).unwrap();
            let remote = region.share(Access::ALL).unwrap();
            println!("\nowns {} {} {}", memory.address(), remote.id, remote.key);
            let mut hoard = Vec::new();
            while let Ok(Some(notice)) = memory.notices().wait(None) {
                match notice.value {
                    HOARD => hoard.extend(std::iter::from_fn(|| File::open("/dev/null").ok())),
                    _ => hoard.clear(),
                }
                region.store(0, hoard.len() as u64).unwrap();
            }
        }
        role => super::zcopy::program(role, &fabric, &words[2..]),
    }
}

/// Ten looks in a row find it asleep.
fn wait_asleep(program: &Program) {
    let mut looks = 0;
    until("ten looks in a row find it asleep", || {
        looks = if program.sleeps() { looks + 1 } else { 0 };
        (looks == 10).then_some(())
    });
}

/// A connection waits that it has no descriptor for: it serves those that it has, and sleeps.
#[test]
fn owner_without_descriptors_does_not_run_hot_and_recovers() {
    let lab = Lab::pair();
    let mut program = Program::start("owner", lab.control(2), "");
    let (address, remote) = program.owned();
    let mut peer = Peer::connect(fabric(&lab, 1), address).unwrap();
    peer.notify(&remote, HOARD).unwrap();
    until("it has no descriptors left", || (peer.fetch_add(&remote, 0, 0).unwrap() > 0).then_some(()));
    let _waiting = TcpStream::connect(address).unwrap();
    wait_asleep(&program);
    peer.fetch_add(&remote, 8, 1).unwrap();
    peer.notify(&remote, HOARD + 1).unwrap();
    until("it has descriptors again", || (peer.fetch_add(&remote, 0, 0).unwrap() == 0).then_some(()));
    let mut other = Peer::connect(fabric(&lab, 2), address).unwrap();
    assert_eq!(other.fetch_add(&remote, 8, 1).unwrap(), 1);
}

#[test]
fn idle_owner_sleeps_and_is_woken() {
    let lab = Lab::pair();
    let mut program = Program::start("owner", lab.control(2), "");
    let remote = program.owned();
    let mut peers = [1, 2].map(|host| Peer::connect(fabric(&lab, host), remote.0).unwrap());
    for round in 0..5 {
        wait_asleep(&program);
        for (at, peer) in peers.iter_mut().enumerate() {
            assert_eq!(peer.fetch_add(&remote.1, 8 * at as u64, 1).unwrap(), round);
        }
    }
}

#[test]
fn requester_that_is_killed_in_the_middle_is_forgotten() {
    let lab = Lab::pair();
    let memory = serve(&lab, 2);
    let region = memory.register(1 << 20).unwrap();
    let remote = region.share(Access::ALL).unwrap();
    let mut honest = peer(&lab, 1, &memory);
    for _ in 0..5 {
        let words = format!("{} {} {}", memory.address(), remote.id, remote.key);
        let mut program = Program::start("putter", lab.control(1), &words);
        program.line("puts");
        let start = region.load(8).unwrap();
        until("it puts", || (region.load(1 << 19).unwrap() != start || start != 0).then_some(()));
        program.kill();
        region.store(8, 0).unwrap();
        honest.put(&remote, 1 << 18, &[3; 100_000]).unwrap();
        honest.flush().unwrap();
    }
    drop(honest);
    lab.wait_idle(1);
    lab.wait_idle(2);
}

#[test]
fn owner_that_is_killed_in_the_middle_is_an_error() {
    let lab = Lab::pair();
    for _ in 0..3 {
        let mut program = Program::start("owner", lab.control(2), "");
        let (address, remote) = program.owned();
        let mut peer = Peer::connect(fabric(&lab, 1), address).unwrap();
        let requests = std::thread::spawn(move || {
            let mut bytes = vec![0; 1 << 20];
            loop {
                let outcome = peer
                    .get(&remote, 0, &mut bytes)
                    .and_then(|()| peer.put(&remote, 0, &bytes))
                    .and_then(|_| peer.flush());
                if let Err(error) = outcome {
                    return error;
                }
            }
        });
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!requests.is_finished());
        program.kill();
        let error = requests.join().unwrap();
        assert!(matches!(error, Error::Stream(_)), "{error}");
        lab.wait_idle(1);
        lab.wait_idle(2);
    }
}

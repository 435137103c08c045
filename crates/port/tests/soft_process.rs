//! Soft ports of different processes, and of different users: killed in the middle of traffic, and back again.

mod support;

use crosslane_port::soft::{SoftConfig, SoftPort};
use crosslane_port::{DownReason, Event, Port};
use crosslane_shm::{Inbound, Load, Outbound, Store};
use crosslane_wire::SegmentRange;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use support::{DEADLINE, cable_path, next_event, wait};

const PATH: &str = "CROSSLANE_TEST_CABLE";
const LISTENS: &str = "CROSSLANE_TEST_LISTENS";
const RANGE: SegmentRange = SegmentRange { offset: 4096, len: 4096 };

/// Not a test by itself: the other process. It answers each word with the next one, until its standard input ends.
#[test]
fn other_process() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let config = SoftConfig { mode: 0o666, ..SoftConfig::new(path) };
    let listens = std::env::var_os(LISTENS).is_some();
    let mut port =
        if listens { SoftPort::listen(config).unwrap() } else { SoftPort::connect(config).unwrap() };
    let mut channel = None;
    while sleep_unless_input_ended(&port) {
        while let Some(event) = port.poll_event() {
            match event {
                Event::LinkUp => channel = Some(open(&mut port)),
                Event::LinkDown(_) => channel = None,
                Event::Doorbell(_) => answer(&mut port, channel.as_ref().expect("is up")),
            }
        }
    }
}

/// Whether to go on.
fn sleep_unless_input_ended(port: &SoftPort) -> bool {
    let input = std::io::stdin();
    let wait =
        port.timeout().map_or(1_000_000_000, |wait| u32::try_from(wait.as_nanos()).unwrap_or(999_999_999));
    let timeout =
        Timespec { tv_sec: i64::from(wait / 1_000_000_000), tv_nsec: (wait % 1_000_000_000).into() };
    let event_fd = port.event_fd();
    let mut fds = [PollFd::new(&event_fd, PollFlags::IN), PollFd::new(&input, PollFlags::IN)];
    poll(&mut fds, Some(&timeout)).unwrap();
    fds[1].revents().is_empty()
}

/// A segment for the peer to write to, and the word that says so.
fn open(port: &mut SoftPort) -> Inbound {
    port.set_inbound(0, 1 << 20).unwrap();
    let memory = port.map_inbound(0, RANGE).unwrap();
    port.write_peer_scratchpad(0, std::process::id());
    port.ring_peer_doorbell(1);
    memory
}

fn answer(port: &mut SoftPort, memory: &Inbound) {
    let word = memory.load_u64(0);
    if word == 0 {
        return;
    }
    let view = port.map_outbound(0, RANGE).unwrap();
    view.store_u64(0, word + 1);
    view.store_fence();
    port.ring_peer_doorbell(2);
}

/// The other process; killed when dropped.
struct Other(Child);

impl Other {
    fn start(path: &Path, listens: bool, user: Option<u32>) -> std::io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--exact", "other_process", "--nocapture"]).env(PATH, path);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).current_dir("/");
        if listens {
            command.env(LISTENS, "1");
        }
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        command.spawn().map(Self)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // SIGKILL.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for the next life and opens the channel of this side.
fn begin(port: &mut SoftPort, other: &Other) -> (Inbound, Outbound) {
    assert_eq!(next_event(port), Event::LinkUp);
    let memory = open(port);
    let deadline = Instant::now() + DEADLINE;
    while port.read_scratchpad(0) != other.0.id() {
        assert!(Instant::now() < deadline, "the other process does not answer");
        wait(&[port]);
        assert!(matches!(port.poll_event(), None | Some(Event::Doorbell(_))));
    }
    (memory, port.map_outbound(0, RANGE).unwrap())
}

/// One word there and its successor back; false if the link went down.
fn exchange(port: &mut SoftPort, memory: &Inbound, window: &Outbound, word: u64) -> bool {
    window.store_u64(0, word);
    window.store_fence();
    port.ring_peer_doorbell(1);
    let deadline = Instant::now() + DEADLINE;
    while memory.load_u64(0) != word + 1 {
        assert!(Instant::now() < deadline, "no answer to {word}");
        wait(&[port]);
        if let Some(Event::LinkDown(reason)) = port.poll_event() {
            assert_eq!(reason, DownReason::PeerGone);
            return false;
        }
    }
    true
}

fn killed_and_back(other_listens: bool) {
    let (_dir, path) = cable_path();
    let mut other = Other::start(&path, other_listens, None).unwrap();
    let config = SoftConfig::new(&path);
    let mut port =
        if other_listens { SoftPort::connect(config).unwrap() } else { SoftPort::listen(config).unwrap() };
    for _life in 0..3 {
        let (memory, window) = begin(&mut port, &other);
        for round in 1..200 {
            assert!(exchange(&mut port, &memory, &window, 2 * round));
        }
        other.0.kill().unwrap();
        // In the middle of traffic: the other side may or may not get to answer a few more.
        let deadline = Instant::now() + DEADLINE;
        for round in 200.. {
            assert!(Instant::now() < deadline, "the death was not seen");
            if !exchange(&mut port, &memory, &window, 2 * round) {
                break;
            }
        }
        assert!(!port.is_up());
        other = Other::start(&path, other_listens, None).unwrap();
    }
    begin(&mut port, &other);
}

#[test]
fn soft_process_that_connects_is_killed_and_comes_back() {
    killed_and_back(false);
}

#[test]
fn soft_process_that_listens_is_killed_and_comes_back() {
    killed_and_back(true);
}

#[test]
fn soft_socket_mode_decides_who_may_connect() {
    if !rustix::process::geteuid().is_root() {
        println!("not tried: only root can start a process of another user");
        return;
    }
    let (dir, path) = cable_path();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    for (mode, allowed) in [(0o600, false), (0o666, true)] {
        let mut port = SoftPort::listen(SoftConfig { mode, ..SoftConfig::new(&path) }).unwrap();
        let Ok(other) = Other::start(&path, false, Some(65534)) else {
            println!("not tried: another user cannot run this test's file");
            return;
        };
        if allowed {
            let (memory, window) = begin(&mut port, &other);
            assert!(exchange(&mut port, &memory, &window, 2));
            continue;
        }
        for _ in 0..60 {
            wait(&[&port]);
            assert_eq!(port.poll_event(), None);
        }
    }
}

//! Processes that end, execute programs with more rights, or change their user while they are held.
#![cfg(not(miri))]

use crosslane_shm::peer::{Peer, PeerError};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Names the socket that [`child`] connects to.
const CHILD: &str = "PEER_CHILD";
const NOBODY: u32 = 65534;

/// Not a test of its own, and nothing to do unless told: connects, waits for a line, and becomes the program that it names.
#[test]
fn child() {
    let Ok(socket) = std::env::var(CHILD) else { return };
    let _kept = UnixStream::connect(socket).unwrap();
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let mut words = line.split_whitespace();
    let Some(program) = words.next() else { return };
    panic!("{}", Command::new(program).args(words).exec());
}

/// Held where a program is written or a process is made: a process that is made meanwhile, by another thread, has the program open for
/// writing until it executes another, and until then nobody can execute it (`ETXTBSY`).
static WRITING: Mutex<()> = Mutex::new(());

fn writing() -> MutexGuard<'static, ()> {
    WRITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process of user `uid`, the socket that it opened, and who is there.
struct Held {
    child: Child,
    peer: Peer,
    _folder: tempfile::TempDir,
    socket: UnixStream,
}

impl Held {
    fn start(uid: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).unwrap();
        // Where others may execute it.
        let program = folder.path().join("program");
        let alone = writing();
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let mut command = Command::new(program);
        command.args(["--exact", "child", "--nocapture"]).env(CHILD, &path).stdin(Stdio::piped());
        if rustix::process::geteuid().is_root() {
            command.uid(uid).gid(uid);
        }
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        drop(alone);
        let (socket, _) = listener.accept().unwrap();
        let peer = Peer::of(socket.as_fd()).unwrap();
        Self { child, peer, _folder: folder, socket }
    }

    /// It becomes this program, and in the end the one that the kernel calls `name`: one on the way to it may never be seen.
    fn becomes(&mut self, program: &Path, argument: &str, name: &str) {
        let line = format!("{} {argument}\n", program.display());
        self.child.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        let comm = format!("/proc/{}/comm", self.child.id());
        while std::fs::read_to_string(&comm).unwrap().trim_end() != name {
            assert!(Instant::now() < end, "it did not become {name}");
            std::thread::yield_now();
        }
    }
}

impl Held {
    /// The kernel shows a program's name before its rights.
    fn is_soon(&self, expected: Result<(), PeerError>, what: &str) {
        let end = Instant::now() + Duration::from_secs(20);
        while self.peer.check() != expected {
            assert!(Instant::now() < end, "{what}: {:?}", self.peer.check());
            std::thread::yield_now();
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn peer_that_ended_is_gone_for_later_callers_too() {
    let mut held = Held::start(rustix::process::geteuid().as_raw());
    assert_eq!((held.peer.check(), held.peer.pid()), (Ok(()), i32::try_from(held.child.id()).unwrap()));
    held.child.kill().unwrap();
    held.child.wait().unwrap();
    assert_eq!(held.peer.check(), Err(PeerError::Gone));
    assert_eq!(Peer::of(held.socket.as_fd()).map(drop), Err(PeerError::Gone));
}

#[test]
fn peer_that_gains_rights_is_no_longer_its_users() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can make programs with more rights");
        return;
    }
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    for (name, mode, expected) in [
        ("as-before", 0o755, Ok(())),
        ("set-user-id", 0o4755, Err(PeerError::OtherUser)),
        ("set-group-id", 0o2755, Err(PeerError::OtherUser)),
    ] {
        let program = folder.path().join(name);
        let alone = writing();
        std::fs::copy("/bin/sleep", &program).unwrap();
        drop(alone);
        std::fs::set_permissions(&program, PermissionsExt::from_mode(mode)).unwrap();
        let mut held = Held::start(NOBODY);
        assert_eq!(held.peer.check(), Ok(()));
        held.becomes(&program, "1000", name);
        held.is_soon(expected, name);
    }
}

#[test]
fn peer_that_drops_root_is_no_longer_roots() {
    if !rustix::process::geteuid().is_root() || !Path::new("/usr/bin/setpriv").exists() {
        println!("SKIPPED: only root can give root up, here by setpriv");
        return;
    }
    let mut held = Held::start(0);
    assert_eq!(held.peer.check(), Ok(()));
    held.becomes(Path::new("/usr/bin/setpriv"), "--reuid 65534 --clear-groups sleep 1000", "sleep");
    held.is_soon(Err(PeerError::OtherUser), "root given up");
}

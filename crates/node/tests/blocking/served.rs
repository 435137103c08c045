//! What a program can keep from ever answering: a file that it serves itself (FUSE), and a socket whose lock is held by a
//! call that waits for such a file.

use super::{Attacked, attacked, share};
use crate::support::*;
use crosslane_passing::{Foreign, Owner, receive, send};
use crosslane_wire::local::Request;
use crosslane_wire::{BufferId, Reach, codec};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// The process that serves the file. While it lives, nobody who touches the file goes on.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A file and a socket about which the kernel does not answer. The server is the first to go: with it gone the kernel answers
/// for the file, with errors, and the descriptors can be closed here.
struct Stuck {
    _server: Server,
    file: OwnedFd,
    socket: OwnedFd,
}

impl Stuck {
    /// `None`, and says so, if this machine cannot have them.
    fn new(folder: &Path) -> Option<Self> {
        if !Path::new("/dev/fuse").exists() || Command::new("python3").arg("-V").output().is_err() {
            println!("SKIPPED: needs /dev/fuse (modprobe fuse) and python3");
            return None;
        }
        let folder = folder.join("served");
        std::fs::create_dir(&folder).unwrap();
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let mut command = Command::new("python3");
        command.args(["-c", include_str!("served.py")]).arg(folder).stdin(Stdio::from(theirs));
        let server = Server(command.spawn().unwrap());
        drop(command);
        wait_readable(ours.as_fd());
        let message = receive(&ours, &mut [0; 16], RecvFlags::DONTWAIT, Owner::NOBODY).unwrap();
        let mut fds = message.fds.into_iter().map(Foreign::into_owned);
        let (file, socket) = (fds.next().expect("the server says why"), fds.next().unwrap());
        let stuck = Self { _server: server, file, socket };
        let (file, socket) = (stuck.file.try_clone().unwrap(), stuck.socket.try_clone().unwrap());
        check_silence("the file", move || assert!(rustix::fs::fstat(file).is_err()));
        check_silence("the socket", move || assert!(rustix::net::getsockname(socket).is_ok()));
        Some(stuck)
    }
}

/// Checks that the kernel does not answer, while the server lives: else nothing is shown here.
fn check_silence(what: &str, ask: impl FnOnce() + Send + 'static) {
    const SOME_TIME: Duration = Duration::from_millis(200);
    let (answer, answered) = mpsc::channel();
    std::thread::spawn(move || {
        ask();
        let _ = answer.send(());
    });
    assert_eq!(answered.recv_timeout(SOME_TIME), Err(RecvTimeoutError::Timeout), "{what} answers");
}

/// A stranger sends each of these requests with such descriptors, one and too many, in sessions of its own. Others are served
/// meanwhile, and the daemon ends in order once the kernel answers again.
fn check(requests: &[Request], which: impl Fn(&Stuck) -> &OwnedFd) {
    let Some(attacked) = attacked() else { return };
    let Some(stuck) = Stuck::new(&attacked.lab.path("")) else { return };
    for request in requests {
        let bytes = codec::encode(request).unwrap();
        let fd: BorrowedFd<'_> = which(&stuck).as_fd();
        for count in [1, 40] {
            let stranger = attacked.stranger();
            send(stranger.socket(), &bytes, &vec![fd; count], SendFlags::DONTWAIT).unwrap();
        }
        attacked.check_others();
    }
    end(attacked, stuck);
}

fn end(mut attacked: Attacked, stuck: Stuck) {
    drop(stuck);
    assert_eq!(attacked.lab.stop(1), Some(0));
}

#[test]
fn file_whose_server_never_answers_holds_nobody_up() {
    let share: Request = codec::decode(&share()).unwrap();
    let register_buffer = Request::RegisterBuffer { buffer: BufferId(1), len: 4096, reach: Reach::Load };
    check(&[share, Request::Listen, Request::Accept, register_buffer], |stuck| &stuck.file);
}

#[test]
fn socket_whose_lock_is_held_holds_nobody_up() {
    check(&[Request::Listen, Request::Adopt, Request::Accept], |stuck| &stuck.socket);
}

//! Soft cables under test, and a peer that breaks the rules.
#![allow(dead_code)]

use crosslane_port::soft::frame::{Frame, MAX_WINDOWS, VERSION};
use crosslane_port::soft::{SoftConfig, SoftPort};
use crosslane_port::{Event, Port};
use crosslane_shm::Outbound;
use crosslane_shm::mem::new_segment;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg,
    socket_with,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long anything may take.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// A directory and the path of a cable in it.
pub(crate) fn cable_path() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cable");
    (dir, path)
}

/// Waits for the next event of `port`.
pub(crate) fn next_event(port: &mut impl Port) -> Event {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(event) = port.poll_event() {
            return event;
        }
        assert!(Instant::now() < deadline, "no event");
        wait(&[&*port]);
    }
}

/// Sleeps until one of the ports may have something, for 5 ms at most.
pub(crate) fn wait<P: Port>(ports: &[&P]) {
    let most = Duration::from_millis(5);
    let wait = ports.iter().filter_map(|port| port.timeout()).fold(most, Duration::min);
    let timeout = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
    let fds: Vec<_> = ports.iter().map(|port| port.event_fd()).collect();
    let mut polled: Vec<_> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let _ = poll(&mut polled, Some(&timeout));
}

/// Both ends of a cable, up.
pub(crate) fn joined(path: &Path) -> (SoftPort, SoftPort) {
    let mut a = SoftPort::listen(SoftConfig::new(path)).unwrap();
    let mut b = SoftPort::connect(SoftConfig::new(path)).unwrap();
    let deadline = Instant::now() + DEADLINE;
    while !(a.is_up() && b.is_up()) {
        assert!(Instant::now() < deadline, "no link");
        let _ = (a.poll_event(), b.poll_event());
    }
    (a, b)
}

/// A connection of something that is no port of ours.
pub(crate) struct Stranger {
    socket: OwnedFd,
}

impl Stranger {
    /// Plugs into the cable.
    pub(crate) fn connect(path: &Path) -> Self {
        Self::try_connect(path).expect("room for a connection")
    }

    /// Plugs into the cable, unless more wait there than the port has room for: then one tries again later.
    pub(crate) fn try_connect(path: &Path) -> Option<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        match connect(&socket, &SocketAddrUnix::new(path).unwrap()) {
            Ok(()) => Some(Self { socket }),
            Err(Errno::AGAIN) => None,
            Err(errno) => panic!("{errno}"),
        }
    }

    /// Sends a packet; whether it went.
    pub(crate) fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> bool {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, flags).is_ok()
    }

    /// Sends a frame, with memory of `len` bytes if given.
    pub(crate) fn frame(&self, frame: &Frame, memory: Option<u64>) -> bool {
        let memory = memory.map(|len| new_segment("stranger", len).unwrap());
        let descriptors: Vec<_> = memory.iter().map(AsFd::as_fd).collect();
        self.send(&frame.encode(), &descriptors)
    }

    /// Greets as a port with two windows of 1 MB would, and returns the victim's register page.
    pub(crate) fn greet(&self, victim: &mut impl Port) -> Outbound {
        assert!(self.frame(&hello(2), Some(4096)));
        assert_eq!(next_event(victim), Event::LinkUp);
        let mut bytes = [0; 24 + 8 * MAX_WINDOWS];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        recvmsg(&self.socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
        let page = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
            _ => None,
        });
        Outbound::sealed(page.unwrap(), 4096).unwrap()
    }
}

/// A Hello with `windows` windows of 1 MB.
pub(crate) fn hello(windows: usize) -> Frame {
    Frame::Hello { version: VERSION, translations: vec![1 << 20; windows] }
}

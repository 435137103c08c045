//! Descriptors of all kinds and in all states, as a program may send them.

use crate::world::as_user;
use bolero::TypeGenerator;
use crosslane_shm::mem::new_segment;
use crosslane_shm::state::State;
use crosslane_shm::submission::SubmissionQueue;
use crosslane_wire::buffer::memory_len;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

/// What a descriptor is.
#[derive(Clone, Copy, Debug, TypeGenerator)]
pub(crate) enum Kind {
    /// A TCP socket bound to an address.
    Bound(Address),
    Unbound,
    Listening(Address),
    /// Both ends of a connection; the accepted one goes to the pool first.
    Connected(Address),
    HalfClosed(Address),
    Udp,
    Tcp6,
    Unix,
    SeqPacket,
    /// Memory of so many pages with these seals.
    Memory {
        pages: u8,
        seals: u8,
    },
    /// Memory of this length, of which nothing is there.
    Vast(u64),
    Segment(u8),
    Buffer(u8),
    State,
    SubmissionQueue,
    Event,
    Blocking,
    Full,
    Semaphore,
    Pipe,
    PipeEnd,
    Epoll,
    Folder,
    File,
    Random,
    PidFd,
}

/// An address that a program may name.
#[derive(Clone, Copy, Debug, TypeGenerator)]
pub(crate) enum Address {
    /// Our host's.
    Own(u8),
    /// The far host's.
    Far(u8),
    /// That of a host that may not be there.
    Other(u8, u8),
    Loopback(u8),
    Any(u8),
    Outside([u8; 4], u16),
}

impl Address {
    /// With one of a few ports, so that programs meet; 0 is any.
    pub(crate) fn resolve(self) -> SocketAddr {
        let few = |port: u8| if port < 64 { 0 } else { 22_000 + u16::from(port % 8) };
        let (ip, port) = match self {
            Self::Own(port) => (Ipv4Addr::new(127, 86, 0, 1), few(port)),
            Self::Far(port) => (Ipv4Addr::new(127, 86, 0, 2), few(port)),
            Self::Other(host, port) => (Ipv4Addr::new(127, 86, 0, host), few(port)),
            Self::Loopback(port) => (Ipv4Addr::LOCALHOST, few(port)),
            Self::Any(port) => (Ipv4Addr::UNSPECIFIED, few(port)),
            Self::Outside(ip, port) => (ip.into(), port),
        };
        (ip, port).into()
    }
}

impl Kind {
    /// Makes it, with what belongs to it, as a user; nothing if that cannot be.
    pub(crate) fn make(self, user: Option<u32>) -> Vec<OwnedFd> {
        as_user(user, || self.try_make().unwrap_or_default())
    }

    fn try_make(self) -> std::io::Result<Vec<OwnedFd>> {
        let event = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let one = |fd: OwnedFd| Ok(vec![fd]);
        let memory = |pages: u8| u64::from(pages % 8) * 4096;
        match self {
            Self::Bound(address) => one(bound(address.resolve())?),
            Self::Unbound => one(socket(AddressFamily::INET, SocketType::STREAM)?),
            Self::Listening(address) => one(TcpListener::bind(address.resolve())?.into()),
            Self::Connected(address) => connected(address.resolve(), false),
            Self::HalfClosed(address) => connected(address.resolve(), true),
            Self::Udp => one(socket(AddressFamily::INET, SocketType::DGRAM)?),
            Self::Tcp6 => one(socket(AddressFamily::INET6, SocketType::STREAM)?),
            Self::Unix => one(socket(AddressFamily::UNIX, SocketType::STREAM)?),
            Self::SeqPacket => one(socket(AddressFamily::UNIX, SocketType::SEQPACKET)?),
            Self::Memory { pages, seals } => one(sealed(memory(pages), seals)?),
            Self::Vast(len) => one(sealed(len, 0)?),
            Self::Segment(pages) => one(new_segment("fuzz", memory(pages)).map_err(std::io::Error::other)?),
            Self::Buffer(pages) => {
                one(new_segment("fuzz", memory_len(memory(pages))).map_err(std::io::Error::other)?)
            }
            Self::State => one(State::create().map_err(std::io::Error::other)?.1),
            Self::SubmissionQueue => one(SubmissionQueue::create().map_err(std::io::Error::other)?.1),
            Self::Event => one(eventfd(0, event)?),
            Self::Blocking => one(eventfd(7, EventfdFlags::CLOEXEC)?),
            Self::Full => {
                let fd = eventfd(0, event)?;
                rustix::io::write(&fd, &(u64::MAX - 1).to_ne_bytes())?;
                one(fd)
            }
            Self::Semaphore => one(eventfd(3, event | EventfdFlags::SEMAPHORE)?),
            Self::Pipe => one(rustix::pipe::pipe()?.0),
            Self::PipeEnd => one(rustix::pipe::pipe()?.1),
            Self::Epoll => one(epoll::create(epoll::CreateFlags::CLOEXEC)?),
            Self::Folder => one(std::fs::File::open("/")?.into()),
            Self::File => one(std::fs::File::open("/proc/self/status")?.into()),
            Self::Random => one(std::fs::File::open("/dev/urandom")?.into()),
            Self::PidFd => {
                let me = rustix::process::getpid();
                one(rustix::process::pidfd_open(me, rustix::process::PidfdFlags::empty())?)
            }
        }
    }
}

fn socket(family: AddressFamily, kind: SocketType) -> std::io::Result<OwnedFd> {
    Ok(socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// Needs no right, also for addresses that are another's.
fn bound(address: SocketAddr) -> std::io::Result<OwnedFd> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_ip_freebind(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

/// A connection to a listener at `address`, and that listener.
fn connected(address: SocketAddr, half: bool) -> std::io::Result<Vec<OwnedFd>> {
    let listener = TcpListener::bind(address)?;
    let to = listener.local_addr()?;
    let client: OwnedFd = bound((Ipv4Addr::new(127, 86, 0, 1), 0).into())?;
    rustix::net::connect(&client, &to)?;
    let (server, _) = listener.accept()?;
    let client = TcpStream::from(client);
    if half {
        client.shutdown(std::net::Shutdown::Write)?;
    }
    Ok(vec![server.into(), client.into(), listener.into()])
}

fn sealed(len: u64, seals: u8) -> std::io::Result<OwnedFd> {
    let fd = memfd_create("fuzz", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&fd, len)?;
    fcntl_add_seals(&fd, SealFlags::from_bits_truncate(u32::from(seals) & 0x1f))?;
    Ok(fd)
}

//! The TUN interface that carries the fabric's IP.

use crate::address::Addresses;
use crate::config::Config;
use crate::netlink;
use crosslane_wire::HostId;
use crosslane_wire::packet::{HEAD, WORK};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{IntegerSetter, Opcode, Setter, Updater};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use thiserror::Error;

const TUNSETIFF: Opcode = 0x4004_54ca;
const IFF_TUN: u16 = 0x0001;
const IFF_MULTI_QUEUE: u16 = 0x0100;
const IFF_NO_PI: u16 = 0x1000;
const IFF_VNET_HDR: u16 = 0x4000;
const TUNSETOFFLOAD: Opcode = 0x4004_54d0;
const TUNSETVNETHDRSZ: Opcode = 0x4004_54d8;
const TUNSETVNETLE: Opcode = 0x4004_54dc;
/// Checksums, and TCP over IPv4 and IPv6 with and without congestion notification, may be left undone.
const OFFLOAD: usize = 0x01 | 0x02 | 0x04 | 0x08;
/// So may large UDP, since Linux 6.2.
const OFFLOAD_UDP: usize = 0x20 | 0x40;
const NAME: usize = 16;
/// All multicast groups of IPv4; those of IPv6 have a route on every interface.
const MULTICAST: (Ipv4Addr, u8) = (Ipv4Addr::new(224, 0, 0, 0), 4);

/// Why there is no interface.
#[derive(Debug, Error)]
pub enum TunError {
    /// The daemon may not.
    #[error(
        "interface {name}: {what}: {errno}; the daemon needs CAP_NET_ADMIN and /dev/net/tun (run it as root, or \
         give it both), \
         or set `interface = \"\"` to run without IP"
    )]
    Denied {
        /// The interface.
        name: String,
        /// What was tried.
        what: &'static str,
        /// How it failed.
        errno: Errno,
    },
    /// Somebody else has it.
    #[error(
        "interface {name} is in use: another daemon runs in this network namespace, or choose another `interface`"
    )]
    Busy {
        /// The interface.
        name: String,
    },
    /// The kernel cannot.
    #[error("interface {name}: {what}: {errno}")]
    System {
        /// The interface.
        name: String,
        /// What was tried.
        what: &'static str,
        /// How it failed.
        errno: Errno,
    },
}

/// `struct ifreq` with flags.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; NAME],
    flags: u16,
    rest: [u8; 22],
}

/// An interface of several queues; it goes when this is dropped. The kernel lets the packets of a connection leave by
/// the queue through which those of the other direction came: that is how each far host has a queue of its own, as far
/// as there are enough.
#[derive(Debug)]
pub struct Tun {
    queues: Vec<OwnedFd>,
    index: u32,
}

impl Tun {
    /// The interface's number in the kernel.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Makes the interface `name` with this host's addresses and the configured MTU, and brings it up. The addresses
    /// bring the routes to the fabric's subnets with them; neighbours there are none, since a TUN interface has no
    /// link layer that they could be asked for.
    pub fn open(name: &str, config: &Config) -> Result<Self, TunError> {
        let fail = |what| move |errno| error(name, what, errno);
        let queues = (0..config.queues).map(|_| open_queue(name)).collect::<Result<Vec<_>, _>>()?;
        let link = netlink::Route::open().map_err(fail("no route netlink"))?;
        let index = link.index(name).map_err(fail("no index"))?;
        if let Err(errno) = link.make_up_no_address(index) {
            tracing::debug!(%errno, "the kernel has no IPv6, or makes up link-local addresses");
        }
        link.bring_up(index, config.mtu).map_err(fail("cannot bring it up"))?;
        let addresses = config.addresses;
        let [v4, v6] = addresses.of(addresses.me);
        let local = Addresses::link_local(addresses.me).into();
        for (ip, prefix) in [(v4, addresses.v4.prefix_len()), (v6, addresses.v6.prefix_len()), (local, 64)] {
            match link.add_address(index, ip, prefix) {
                Ok(()) => {}
                Err(errno) if ip.is_ipv6() => tracing::warn!(%ip, %errno, "no IPv6 on the interface"),
                Err(errno) => return Err(error(name, "cannot add its address", errno)),
            }
        }
        if config.multicast {
            let (network, prefix) = MULTICAST;
            link.add_route(index, network.into(), prefix).map_err(fail("cannot route multicast"))?;
        }
        Ok(Self { queues, index })
    }

    /// Their descriptors.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.queues.iter().map(AsFd::as_fd)
    }

    /// Reads one packet of a queue, what is left to do to it first; `None` if there is none.
    pub fn receive(&self, queue: usize, packet: &mut [u8]) -> Option<usize> {
        rustix::io::read(self.queues.get(queue)?, packet).ok()
    }

    /// The queue for packets of and to this host.
    pub fn queue_of(&self, host: HostId) -> usize {
        usize::from(host.0) % self.queues.len().max(1)
    }

    /// Hands a packet to the kernel by a queue, what is left to do to it first; `false` if it would not have it.
    pub fn send(&self, queue: usize, packet: &[u8]) -> bool {
        self.queues.get(queue).is_some_and(|queue| rustix::io::write(queue, packet).is_ok())
    }
}

/// Opens another queue of the interface, or the first.
fn open_queue(name: &str) -> Result<OwnedFd, TunError> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty())
        .map_err(|errno| error(name, "cannot open /dev/net/tun", errno))?;
    attach(&fd, name).map_err(|errno| error(name, "cannot make it", errno))?;
    leave_work(&fd).map_err(|errno| error(name, "cannot have large packets whole", errno))?;
    Ok(fd)
}

fn attach(fd: &OwnedFd, name: &str) -> Result<(), Errno> {
    let flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR | IFF_MULTI_QUEUE;
    let mut request = InterfaceRequest { name: [0; NAME], flags, rest: [0; 22] };
    if name.len() >= NAME {
        return Err(Errno::NAMETOOLONG);
    }
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq` (40 bytes), which `InterfaceRequest` is laid out as.
    unsafe { rustix::ioctl::ioctl(fd, Updater::<TUNSETIFF, InterfaceRequest>::new(&mut request)) }
}

/// Tells the kernel to leave checksums and the cutting of large packets to others: to the far host's kernel.
fn leave_work(fd: &OwnedFd) -> Result<(), Errno> {
    let size = i32::try_from(HEAD - WORK).unwrap_or(0);
    // SAFETY: TUNSETVNETHDRSZ reads one int.
    unsafe { rustix::ioctl::ioctl(fd, Setter::<TUNSETVNETHDRSZ, i32>::new(size)) }?;
    // SAFETY: TUNSETVNETLE reads one int.
    unsafe { rustix::ioctl::ioctl(fd, Setter::<TUNSETVNETLE, i32>::new(1)) }?;
    // SAFETY: TUNSETOFFLOAD takes its flags as the argument itself.
    let offload =
        |flags| unsafe { rustix::ioctl::ioctl(fd, IntegerSetter::<TUNSETOFFLOAD>::new_usize(flags)) };
    offload(OFFLOAD | OFFLOAD_UDP).or_else(|_| offload(OFFLOAD))
}

fn error(name: &str, what: &'static str, errno: Errno) -> TunError {
    let name = name.to_owned();
    match errno {
        Errno::PERM | Errno::ACCESS => TunError::Denied { name, what, errno },
        Errno::BUSY => TunError::Busy { name },
        _ => TunError::System { name, what, errno },
    }
}

//! The TUN interface that carries the fabric's IP.

use crate::config::Config;
use crate::netlink;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use thiserror::Error;

const TUNSETIFF: Opcode = 0x4004_54ca;
const IFF_TUN: u16 = 0x0001;
const IFF_NO_PI: u16 = 0x1000;
const NAME: usize = 16;

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

/// An interface; it goes when this is dropped.
#[derive(Debug)]
pub struct Tun {
    fd: OwnedFd,
}

impl Tun {
    /// Makes the interface `name` with this host's addresses and the configured MTU, and brings it up. The addresses
    /// bring the routes to the fabric's subnets with them.
    pub fn open(name: &str, config: &Config) -> Result<Self, TunError> {
        let fail = |what| move |errno| error(name, what, errno);
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty())
            .map_err(fail("cannot open /dev/net/tun"))?;
        attach(&fd, name).map_err(fail("cannot make it"))?;
        let link = netlink::Route::open().map_err(fail("no route netlink"))?;
        let index = link.index(name).map_err(fail("no index"))?;
        link.bring_up(index, config.mtu).map_err(fail("cannot bring it up"))?;
        let addresses = config.addresses;
        for (ip, prefix) in
            addresses.of(addresses.me).into_iter().zip([addresses.v4.prefix, addresses.v6.prefix])
        {
            match link.add_address(index, ip, prefix) {
                Ok(()) => {}
                Err(errno) if ip.is_ipv6() => tracing::warn!(%ip, %errno, "no IPv6 on the interface"),
                Err(errno) => return Err(error(name, "cannot add its address", errno)),
            }
        }
        Ok(Self { fd })
    }

    /// Reads one packet; `None` if there is none.
    pub fn receive(&self, packet: &mut [u8]) -> Option<usize> {
        rustix::io::read(&self.fd, packet).ok()
    }

    /// Hands a packet to the kernel; `false` if it would not have it.
    pub fn send(&self, packet: &[u8]) -> bool {
        rustix::io::write(&self.fd, packet).is_ok()
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn attach(fd: &OwnedFd, name: &str) -> Result<(), Errno> {
    let mut request = InterfaceRequest { name: [0; NAME], flags: IFF_TUN | IFF_NO_PI, rest: [0; 22] };
    if name.len() >= NAME {
        return Err(Errno::NAMETOOLONG);
    }
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq` (40 bytes), which `InterfaceRequest` is laid out as.
    unsafe { rustix::ioctl::ioctl(fd, Updater::<TUNSETIFF, InterfaceRequest>::new(&mut request)) }
}

fn error(name: &str, what: &'static str, errno: Errno) -> TunError {
    let name = name.to_owned();
    match errno {
        Errno::PERM | Errno::ACCESS => TunError::Denied { name, what, errno },
        Errno::BUSY => TunError::Busy { name },
        _ => TunError::System { name, what, errno },
    }
}

//! Route netlink: gives an interface its addresses and routes, and brings it up.

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use std::net::IpAddr;
use std::os::fd::OwnedFd;

const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_CREATE: u16 = 0x400;
const IFLA_MTU: u16 = 4;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const ADDR_GEN_MODE_NONE: u8 = 1;
const AF_INET6: u16 = 10;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFF_UP: u32 = 1;
const IFA_F_NODAD: u8 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_STATIC: u8 = 4;
const RT_SCOPE_LINK: u8 = 253;
const RTN_UNICAST: u8 = 1;

/// A route netlink socket.
#[derive(Debug)]
pub struct Route {
    socket: OwnedFd,
}

impl Route {
    /// Opens a socket.
    pub fn open() -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        rustix::net::bind(&socket, &netlink::SocketAddrNetlink::new(0, 0))?;
        Ok(Self { socket })
    }

    /// The number of an interface.
    pub fn index(&self, name: &str) -> Result<u32, Errno> {
        let flags = SocketFlags::CLOEXEC;
        let any = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        rustix::net::netdevice::name_to_index(&any, name)
    }

    /// Sets the MTU and brings the interface up.
    pub fn bring_up(&self, index: u32, mtu: u16) -> Result<(), Errno> {
        let mut body = vec![0, 0, 0, 0];
        body.extend(index.to_ne_bytes());
        body.extend(IFF_UP.to_ne_bytes());
        body.extend(IFF_UP.to_ne_bytes());
        attribute(&mut body, IFLA_MTU, &u32::from(mtu).to_ne_bytes());
        self.ask(RTM_NEWLINK, 0, &body)
    }

    /// Has the kernel generate no link-local address for the interface; to be called before [`Self::bring_up`].
    pub fn make_up_no_address(&self, index: u32) -> Result<(), Errno> {
        let (mut mode, mut family) = (vec![], vec![]);
        attribute(&mut mode, IFLA_INET6_ADDR_GEN_MODE, &[ADDR_GEN_MODE_NONE]);
        attribute(&mut family, AF_INET6, &mode);
        let mut body = vec![0, 0, 0, 0];
        body.extend(index.to_ne_bytes());
        body.extend([0; 8]);
        attribute(&mut body, IFLA_AF_SPEC, &family);
        self.ask(RTM_NEWLINK, 0, &body)
    }

    /// Gives the interface an address, and with it the route to the address's network.
    pub fn add_address(&self, index: u32, ip: IpAddr, prefix: u8) -> Result<(), Errno> {
        let (family, bytes) = parts(ip);
        let mut body = vec![family, prefix, IFA_F_NODAD, 0];
        body.extend(index.to_ne_bytes());
        attribute(&mut body, IFA_LOCAL, &bytes);
        attribute(&mut body, IFA_ADDRESS, &bytes);
        self.ask(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, &body)
    }

    /// Adds a route to a network over the interface.
    pub fn add_route(&self, index: u32, network: IpAddr, prefix: u8) -> Result<(), Errno> {
        let (family, bytes) = parts(network);
        let mut body =
            vec![family, prefix, 0, 0, RT_TABLE_MAIN, RTPROT_STATIC, RT_SCOPE_LINK, RTN_UNICAST, 0, 0, 0, 0];
        attribute(&mut body, RTA_DST, &bytes);
        attribute(&mut body, RTA_OIF, &index.to_ne_bytes());
        self.ask(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &body)
    }

    /// Sends one request and receives its acknowledgement, which the kernel queues before `send` returns.
    fn ask(&self, kind: u16, flags: u16, body: &[u8]) -> Result<(), Errno> {
        let len = u32::try_from(16 + body.len()).map_err(|_| Errno::MSGSIZE)?;
        let mut bytes = len.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((flags | NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend(body);
        rustix::net::send(&self.socket, &bytes, SendFlags::empty())?;
        let mut answer = [0; 4096];
        let (len, _) = rustix::net::recv(&self.socket, &mut answer[..], RecvFlags::empty())?;
        read_ack(&answer[..len])
    }
}

/// Number of the address family, and the address in network byte order.
fn parts(ip: IpAddr) -> (u8, Vec<u8>) {
    match ip {
        IpAddr::V4(ip) => (2, ip.octets().to_vec()),
        IpAddr::V6(ip) => (10, ip.octets().to_vec()),
    }
}

fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let len = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
    body.extend(len.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

fn read_ack(answer: &[u8]) -> Result<(), Errno> {
    let (Some(kind), Some(code)) = (answer.get(4..6), answer.get(16..20)) else { return Err(Errno::BADMSG) };
    if kind != NLMSG_ERROR.to_ne_bytes() {
        return Err(Errno::BADMSG);
    }
    let code: [u8; 4] = code.try_into().map_err(|_| Errno::BADMSG)?;
    match i32::from_ne_bytes(code) {
        0 => Ok(()),
        code => Err(Errno::from_raw_os_error(-code)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded() {
        let mut body = vec![];
        attribute(&mut body, 3, &[1, 2, 3, 4, 5]);
        assert_eq!(body.len(), 12);
        assert_eq!(body[..2], 9_u16.to_ne_bytes());
    }

    #[test]
    fn loopback_has_an_index_and_nonsense_is_an_error() {
        let route = Route::open().unwrap();
        assert!(route.index("lo").unwrap() > 0);
        assert!(route.bring_up(0x7fff_fff0, 1500).is_err());
        assert!(read_ack(&[0; 10]).is_err());
    }
}

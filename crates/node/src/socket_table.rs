//! What the kernel knows of a TCP connection: by `sock_diag`, or by `/proc/net/tcp` where that is missing.

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const ALL_STATES: u32 = u32::MAX;
const LISTEN: u8 = 10;
/// Offsets in the answer: netlink header, then `inet_diag_msg`.
const STATE_AT: usize = 16 + 1;
const DESTINATION_PORT_AT: usize = 16 + 6;
const INODE_AT: usize = 16 + 68;
const ENOENT: i32 = 2;

/// What became of a connection on one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// A process holds it.
    Held,
    /// It exists, but nobody holds it (any more, or yet).
    Unheld,
    /// It does not exist.
    Gone,
}

/// What became of the connection from `local` to `remote`; `None` if the kernel does not say.
pub fn fate(local: SocketAddr, remote: SocketAddr) -> Option<Fate> {
    by_diag(local, remote).or_else(|| by_proc(local, remote))
}

fn by_diag(local: SocketAddr, remote: SocketAddr) -> Option<Fate> {
    let flags = SocketFlags::CLOEXEC;
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(netlink::SOCK_DIAG))
            .ok()?;
    rustix::net::send(&socket, &query(local, remote), SendFlags::empty()).ok()?;
    let mut answer = [0; 1024];
    let (len, _) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::DONTWAIT).ok()?;
    read_answer(&answer[..len], remote)
}

fn query(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let family: u8 = if local.is_ipv4() { 2 } else { 10 };
    let mut bytes = Vec::with_capacity(72);
    bytes.extend(72_u32.to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([family, 6, 0, 0]);
    bytes.extend(ALL_STATES.to_ne_bytes());
    bytes.extend(local.port().to_be_bytes());
    bytes.extend(remote.port().to_be_bytes());
    bytes.extend(address_bytes(local.ip()));
    bytes.extend(address_bytes(remote.ip()));
    bytes.extend([0; 4]);
    bytes.extend([0xff; 8]);
    bytes
}

fn address_bytes(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V6(ip) => ip.octets(),
        IpAddr::V4(ip) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&ip.octets());
            bytes
        }
    }
}

/// The kernel answers with the connection, or with a listener if there is only that, or with an error.
fn read_answer(answer: &[u8], remote: SocketAddr) -> Option<Fate> {
    let word = |at: usize| answer.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    if kind == NLMSG_ERROR {
        let error = i32::from_ne_bytes(answer.get(16..20)?.try_into().ok()?);
        return (error == -ENOENT).then_some(Fate::Gone);
    }
    if kind != SOCK_DIAG_BY_FAMILY {
        return None;
    }
    let port = u16::from_be_bytes(answer.get(DESTINATION_PORT_AT..DESTINATION_PORT_AT + 2)?.try_into().ok()?);
    if *answer.get(STATE_AT)? == LISTEN || port != remote.port() {
        return Some(Fate::Gone);
    }
    Some(if word(INODE_AT)? == 0 { Fate::Unheld } else { Fate::Held })
}

fn by_proc(local: SocketAddr, remote: SocketAddr) -> Option<Fate> {
    let mut fate = Fate::Gone;
    let mut read = false;
    for (path, v4) in [("/proc/net/tcp", true), ("/proc/net/tcp6", false)] {
        let Ok(table) = std::fs::read_to_string(path) else { continue };
        read = true;
        for line in table.lines().skip(1) {
            if let Some((a, b, inode)) = read_line(line, v4)
                && a == local
                && b == remote
            {
                fate = if inode == 0 { Fate::Unheld } else { Fate::Held };
            }
        }
    }
    read.then_some(fate)
}

fn read_line(line: &str, v4: bool) -> Option<(SocketAddr, SocketAddr, u64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let address = |text: &str| {
        let (ip, port) = text.split_once(':')?;
        let ip = if v4 { hex_v4(ip)?.into() } else { hex_v6(ip)?.to_canonical() };
        Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
    };
    Some((address(words.get(1)?)?, address(words.get(2)?)?, words.get(9)?.parse().ok()?))
}

fn hex_v4(text: &str) -> Option<Ipv4Addr> {
    Some(Ipv4Addr::from(u32::from_str_radix(text, 16).ok()?.to_ne_bytes()))
}

fn hex_v6(text: &str) -> Option<Ipv6Addr> {
    let mut octets = [0; 16];
    for (index, chunk) in octets.chunks_mut(4).enumerate() {
        let word = u32::from_str_radix(text.get(index * 8..index * 8 + 8)?, 16).ok()?;
        chunk.copy_from_slice(&word.to_ne_bytes());
    }
    Some(Ipv6Addr::from(octets))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn lives(fate: fn(SocketAddr, SocketAddr) -> Option<Fate>, address: &str) {
        let listener = TcpListener::bind(address).unwrap();
        let server = listener.local_addr().unwrap();
        let client = TcpStream::connect(server).unwrap();
        let local = client.local_addr().unwrap();
        assert_eq!(fate(local, server), Some(Fate::Held));
        assert_eq!(fate(server, local), Some(Fate::Unheld), "in the queue of the listener");
        let (accepted, _) = listener.accept().unwrap();
        assert_eq!(fate(server, local), Some(Fate::Held));
        drop(client);
        assert_ne!(fate(local, server), Some(Fate::Held));
        drop(accepted);
        let other = SocketAddr::new(local.ip(), 1);
        assert_eq!(fate(server, other), Some(Fate::Gone), "not the listener");
    }

    #[test]
    fn the_kernel_knows_who_is_held() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            lives(fate, address);
            lives(by_proc, address);
        }
    }
}

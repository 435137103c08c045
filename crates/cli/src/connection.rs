//! The TCP connections of a process, from `/proc`: which descriptor is which connection.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Number of the state ESTABLISHED in `/proc/net/tcp`; states from here to [`LAST_ALIVE`], except LISTEN, are of live connections.
const FIRST_ALIVE: u8 = 1;
const LAST_ALIVE: u8 = 8;

/// A descriptor that is a TCP connection; addresses in plain form (no IPv4 in IPv6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Connection {
    /// The process's descriptor.
    pub(crate) fd: i32,
    /// This side.
    pub(crate) local: SocketAddr,
    /// The far side.
    pub(crate) remote: SocketAddr,
}

/// All connections of a process, by descriptor; `None` if `/proc` does not tell (no such process, or not ours).
pub(crate) fn of_process(pid: u32) -> Option<Vec<Connection>> {
    let mut known = HashMap::new();
    for table in ["tcp", "tcp6"] {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        known.extend(text.lines().skip(1).filter_map(row));
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten() {
        let fd = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let link = fs::read_link(entry.path()).ok().and_then(|link| inode(link.to_str()?));
        if let (Some(fd), Some(&(local, remote))) = (fd, link.and_then(|inode| known.get(&inode))) {
            found.push(Connection { fd, local, remote });
        }
    }
    found.sort_by_key(|connection| connection.fd);
    Some(found)
}

/// The inode of `socket:[123]`.
fn inode(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// A row of `/proc/net/tcp`: inode, local and remote address, if it is a connection.
fn row(line: &str) -> Option<(u64, (SocketAddr, SocketAddr))> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, local, remote, state, _, _, _, _, _, inode, ..] = words[..] else { return None };
    let state = u8::from_str_radix(state, 16).ok()?;
    let alive = (FIRST_ALIVE..=LAST_ALIVE).contains(&state);
    alive.then_some((inode.parse().ok()?, (address(local)?, address(remote)?)))
}

/// `0200560A:1F90`: each 32 bits of the address in this machine's byte order.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match ip.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(at)?);
            }
            IpAddr::from(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    #[test]
    fn connections_of_this_process_are_found() {
        for address in ["127.0.0.1:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let port = listener.local_addr().expect("bound").port();
            let client = TcpStream::connect(("127.0.0.1", port)).expect("connected");
            let (server, from) = listener.accept().expect("accepted");
            let mine = of_process(std::process::id()).expect("our own");
            let of = |fd: i32| mine.iter().find(|connection| connection.fd == fd).copied();
            let there = SocketAddr::from(([127, 0, 0, 1], port));
            let here = SocketAddr::from(([127, 0, 0, 1], from.port()));
            let fd = client.as_raw_fd();
            assert_eq!(of(fd), Some(Connection { fd, local: here, remote: there }));
            let fd = server.as_raw_fd();
            assert_eq!(of(fd), Some(Connection { fd, local: there, remote: here }));
            assert_eq!(of(listener.as_raw_fd()), None);
        }
        assert_eq!(of_process(0), None);
    }
}

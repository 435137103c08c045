//! Which address the kernel would give an unbound socket that connects.

use crate::address::Addresses;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

/// Source of a connection to `remote` (in plain form); `None` if there is no way there.
pub fn source_of(remote: IpAddr, addresses: &Addresses) -> Option<IpAddr> {
    match remote {
        IpAddr::V4(ip) if ip.is_loopback() => Some(Ipv4Addr::LOCALHOST.into()),
        ip if ip.is_loopback() => Some(ip),
        ip if addresses.host_of(ip).is_some() => Some(addresses.of_family(addresses.me, ip.is_ipv4())),
        ip => ask_kernel(ip),
    }
}

/// Connects a datagram socket, which sends nothing, and reads the source address that the kernel gave it.
fn ask_kernel(remote: IpAddr) -> Option<IpAddr> {
    let any = if remote.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(SocketAddr::new(remote, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::network;
    use crosslane_wire::HostId;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn source_address_is_what_the_kernel_takes() {
        let addresses = Addresses {
            me: HostId(1),
            v4: network("10.86.0.0/24").unwrap(),
            v6: network("fd86::/64").unwrap(),
        };
        for target in ["127.0.0.1", "127.0.0.7"] {
            let listener = TcpListener::bind((target, 0)).unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let source = stream.local_addr().unwrap().ip();
            assert_eq!(source_of(target.parse().unwrap(), &addresses), Some(source), "{target}");
        }
        let own = source_of("10.86.0.1".parse().unwrap(), &addresses);
        assert_eq!(own, source_of("10.86.0.9".parse().unwrap(), &addresses));
        assert_eq!(own, Some("10.86.0.1".parse().unwrap()));
    }
}

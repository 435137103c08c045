//! Fabric addresses: the host id is the last part of the address.

use core::fmt::{Display, Formatter};
use crosslane_fabric::HOST_MAX;
use crosslane_wire::{HostId, Tuple};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A network address and how many of its bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The address, host bits zero.
    pub address: IpAddr,
    /// Bits that count.
    pub prefix: u8,
}

impl Network {
    /// Reads `ADDRESS/BITS`, or an address alone for a single host.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr =
            address.trim_matches(['[', ']']).parse().map_err(|_| format!("`{address}` is no IP address"))?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => most,
            Some(bits) => bits
                .parse()
                .ok()
                .filter(|bits| *bits <= most)
                .ok_or_else(|| format!("`/{bits}` is no prefix length between 0 and {most}"))?,
        };
        Ok(Self { address: mask(address, prefix), prefix })
    }

    /// Whether `address` lies in the network.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4() && mask(address, self.prefix) == self.address
    }

    /// Whether an address lies in both.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains(other.address) || other.contains(self.address)
    }
}

impl Display for Network {
    fn fmt(&self, out: &mut Formatter<'_>) -> core::fmt::Result {
        write!(out, "{}/{}", self.address, self.prefix)
    }
}

/// Network of addresses that count on one interface only.
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0);
/// Networks that cannot lie behind a host: link-local, loopback, multicast.
const NEVER_BEHIND: [Network; 6] = [
    Network { address: IpAddr::V6(LINK_LOCAL), prefix: 10 },
    Network { address: IpAddr::V6(Ipv6Addr::LOCALHOST), prefix: 128 },
    Network { address: IpAddr::V6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0)), prefix: 8 },
    Network { address: IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)), prefix: 16 },
    Network { address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), prefix: 8 },
    Network { address: IpAddr::V4(Ipv4Addr::new(224, 0, 0, 0)), prefix: 4 },
];

/// The addresses of all hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// This host.
    pub me: HostId,
    /// The IPv4 subnet; a prefix of at most 24 bits.
    pub v4: Network,
    /// The IPv6 subnet; a prefix of at most 112 bits.
    pub v6: Network,
}

impl Addresses {
    /// A host's fabric addresses: IPv4, IPv6.
    pub fn of(&self, host: HostId) -> [IpAddr; 2] {
        [self.of_family(host, true), self.of_family(host, false)]
    }

    /// A host's fabric address of one family.
    pub fn of_family(&self, host: HostId, v4: bool) -> IpAddr {
        match (self.v4.address, self.v6.address) {
            (IpAddr::V4(base), _) if v4 => Ipv4Addr::from(u32::from(base) | u32::from(host.0)).into(),
            (_, IpAddr::V6(base)) => Ipv6Addr::from(u128::from(base) | u128::from(host.0)).into(),
            (base, _) => base,
        }
    }

    /// The host that has this fabric address.
    pub fn host_of(&self, address: IpAddr) -> Option<HostId> {
        let rest = match (address, self.v4.address, self.v6.address) {
            (IpAddr::V4(ip), IpAddr::V4(base), _) if self.v4.contains(address) => {
                u128::from(u32::from(ip) ^ u32::from(base))
            }
            (IpAddr::V6(ip), _, IpAddr::V6(base)) if self.v6.contains(address) => {
                u128::from(ip) ^ u128::from(base)
            }
            _ => return None,
        };
        let host = u16::try_from(rest).ok()?;
        (1..=HOST_MAX).contains(&host).then_some(HostId(host))
    }

    /// A host's address on the interface alone.
    pub fn link_local(host: HostId) -> Ipv6Addr {
        Ipv6Addr::from(u128::from(LINK_LOCAL) | u128::from(host.0))
    }

    /// The host that has this address on the interface: a fabric address, or [`Self::link_local`].
    pub fn on_link(&self, address: IpAddr) -> Option<HostId> {
        self.host_of(address).or_else(|| {
            let IpAddr::V6(ip) = address else { return None };
            let host = u16::try_from(u128::from(ip) ^ u128::from(LINK_LOCAL)).ok()?;
            (1..=HOST_MAX).contains(&host).then_some(HostId(host))
        })
    }

    /// Whether every host is meant: multicast, and the broadcasts of IPv4.
    pub fn is_everybody(&self, address: IpAddr) -> bool {
        let broadcast = match (address, self.v4.address) {
            (IpAddr::V4(ip), IpAddr::V4(base)) => {
                let hosts = u32::MAX.checked_shr(self.v4.prefix.into()).unwrap_or(0);
                ip.is_broadcast() || u32::from(ip) == u32::from(base) | hosts
            }
            _ => false,
        };
        broadcast || address.is_multicast()
    }

    /// The subnet or special network that `network` may not overlap to lie behind a host, if it does.
    pub fn clash(&self, network: &Network) -> Option<Network> {
        let mut taken = [self.v4, self.v6].into_iter().chain(NEVER_BEHIND);
        taken.find(|taken| taken.overlaps(network))
    }

    /// Whether the address is this host's: its fabric addresses and loopback.
    pub fn is_mine(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.host_of(address) == Some(self.me)
    }
}

/// An IPv4-mapped IPv6 address as the IPv4 address that it means; flow label and scope dropped.
pub fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Both addresses of a connection in the form that circuits are keyed by.
pub fn plain_tuple(tuple: Tuple) -> Tuple {
    Tuple { client: plain(tuple.client), server: plain(tuple.server) }
}

fn mask(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(ip) => {
            let bits = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
            Ipv4Addr::from(u32::from(ip) & bits).into()
        }
        IpAddr::V6(ip) => {
            let bits = u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0);
            Ipv6Addr::from(u128::from(ip) & bits).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses() -> Addresses {
        Addresses {
            me: HostId(3),
            v4: Network::parse("10.86.0.0/24").unwrap(),
            v6: Network::parse("fd86::/64").unwrap(),
        }
    }

    #[test]
    fn a_host_and_its_addresses() {
        let all = addresses();
        assert_eq!(all.of(HostId(3)).map(|a| a.to_string()), ["10.86.0.3", "fd86::3"]);
        for host in [1, 10, 254] {
            assert!(all.of(HostId(host)).iter().all(|a| all.host_of(*a) == Some(HostId(host))));
        }
        for foreign in
            ["10.86.0.0", "10.86.0.255", "10.86.1.3", "fd86::", "fd86::1:3", "fd87::3", "127.0.0.1"]
        {
            assert_eq!(all.host_of(foreign.parse().unwrap()), None, "{foreign}");
        }
        for (address, everybody) in [
            ("10.86.0.255", true),
            ("255.255.255.255", true),
            ("239.1.2.3", true),
            ("ff02::1", true),
            ("10.86.1.255", false),
            ("fd86::ffff", false),
        ] {
            assert_eq!(all.is_everybody(address.parse().unwrap()), everybody, "{address}");
        }
        let local = IpAddr::from(Addresses::link_local(HostId(200)));
        assert_eq!((all.on_link(local), all.host_of(local)), (Some(HostId(200)), None));
        assert_eq!(all.on_link("fe80::1:1".parse().unwrap()), None);
        assert!(all.is_mine("127.3.2.1".parse().unwrap()) && all.is_mine("fd86::3".parse().unwrap()));
        assert!(!all.is_mine("10.86.0.4".parse().unwrap()));
    }

    #[test]
    fn mapped_addresses_are_the_same_as_plain_ones() {
        assert_eq!(plain("[::ffff:10.86.0.1]:80".parse().unwrap()), "10.86.0.1:80".parse().unwrap());
        assert_eq!(plain("[fd86::1]:80".parse().unwrap()), "[fd86::1]:80".parse().unwrap());
    }
}

//! Fabric addresses: the host id is the last part of the address.

use crosslane_fabric::HOST_MAX;
pub use crosslane_policy::tuple::plain;
use crosslane_wire::HostId;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Parses `ADDRESS/BITS`, or an address alone for a single host. Host bits are cleared.
pub fn network(text: &str) -> Result<IpNet, String> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let single: IpAddr =
        address.trim_matches(['[', ']']).parse().map_err(|_| format!("`{address}` is no IP address"))?;
    let single = IpNet::from(single);
    let Some(bits) = bits else { return Ok(single) };
    let network = bits.parse().ok().and_then(|bits| IpNet::new(single.addr(), bits).ok());
    let most = single.max_prefix_len();
    Ok(network.ok_or_else(|| format!("`/{bits}` is no prefix length between 0 and {most}"))?.trunc())
}

/// Whether two networks have an address in common.
pub fn overlap(one: &IpNet, other: &IpNet) -> bool {
    one.contains(other) || other.contains(one)
}

/// Network of the addresses that are valid on one interface only.
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0);
/// Networks that cannot lie behind a host: link-local, loopback, multicast.
const NEVER_BEHIND: [IpNet; 6] = [
    IpNet::V6(Ipv6Net::new_assert(LINK_LOCAL, 10)),
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128)),
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8)),
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 0, 0), 16)),
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8)),
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 4)),
];

/// The addresses of all hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// This host.
    pub me: HostId,
    /// The IPv4 subnet; a prefix of at most 24 bits.
    pub v4: IpNet,
    /// The IPv6 subnet; a prefix of at most 112 bits.
    pub v6: IpNet,
}

impl Addresses {
    /// A host's fabric addresses: IPv4, IPv6.
    pub fn of(&self, host: HostId) -> [IpAddr; 2] {
        [self.of_family(host, true), self.of_family(host, false)]
    }

    /// A host's fabric address of one family.
    pub fn of_family(&self, host: HostId, v4: bool) -> IpAddr {
        match (self.v4.addr(), self.v6.addr()) {
            (IpAddr::V4(base), _) if v4 => Ipv4Addr::from(u32::from(base) | u32::from(host.0)).into(),
            (_, IpAddr::V6(base)) => Ipv6Addr::from(u128::from(base) | u128::from(host.0)).into(),
            (base, _) => base,
        }
    }

    /// The host that has this fabric address.
    pub fn host_of(&self, address: IpAddr) -> Option<HostId> {
        let rest = match (address, self.v4.addr(), self.v6.addr()) {
            (IpAddr::V4(ip), IpAddr::V4(base), _) if self.v4.contains(&address) => {
                u128::from(u32::from(ip) ^ u32::from(base))
            }
            (IpAddr::V6(ip), _, IpAddr::V6(base)) if self.v6.contains(&address) => {
                u128::from(ip) ^ u128::from(base)
            }
            _ => return None,
        };
        let host = u16::try_from(rest).ok()?;
        (1..=HOST_MAX).contains(&host).then_some(HostId(host))
    }

    /// A host's link-local address on the interface.
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

    /// Whether the address is a multicast address, or an IPv4 broadcast address.
    pub fn is_everybody(&self, address: IpAddr) -> bool {
        address == IpAddr::V4(Ipv4Addr::BROADCAST) || address == self.v4.broadcast() || address.is_multicast()
    }

    /// The subnet or special network with which `network`, to lie behind a host, must not overlap; `None` if it overlaps with none.
    pub fn clash(&self, network: &IpNet) -> Option<IpNet> {
        let mut taken = [self.v4, self.v6].into_iter().chain(NEVER_BEHIND);
        taken.find(|taken| overlap(taken, network))
    }

    /// Whether the address is this host's: a fabric address of it, or loopback.
    pub fn is_mine(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.host_of(address) == Some(self.me)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses() -> Addresses {
        Addresses { me: HostId(3), v4: network("10.86.0.0/24").unwrap(), v6: network("fd86::/64").unwrap() }
    }

    #[test]
    fn addresses_belong_to_their_host() {
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

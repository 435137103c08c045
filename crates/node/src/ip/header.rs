//! The fields that are read of an IP packet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Source and destination of an IP packet; `None` if `packet` is none, or is shorter or longer than its header says.
pub(super) fn addresses(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    match packet.first()? >> 4 {
        4 => {
            let total = u16::from_be_bytes(packet.get(2..4)?.try_into().ok()?);
            let ip = |at| <[u8; 4]>::try_from(packet.get(at..at + 4)?).ok();
            let (source, destination) = (Ipv4Addr::from(ip(12)?), Ipv4Addr::from(ip(16)?));
            (usize::from(total) == packet.len()).then(|| (source.into(), destination.into()))
        }
        6 => {
            let payload = u16::from_be_bytes(packet.get(4..6)?.try_into().ok()?);
            let ip = |at| <[u8; 16]>::try_from(packet.get(at..at + 16)?).ok();
            let (source, destination) = (Ipv6Addr::from(ip(8)?), Ipv6Addr::from(ip(24)?));
            (usize::from(payload) + 40 == packet.len()).then(|| (source.into(), destination.into()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_rubbish_is_none() {
        let mut v4 = vec![0; 28];
        (v4[0], v4[3]) = (0x45, 28);
        v4[12..20].copy_from_slice(&[10, 86, 0, 1, 10, 86, 0, 2]);
        assert_eq!(addresses(&v4), Some(([10, 86, 0, 1].into(), [10, 86, 0, 2].into())));
        assert_eq!(addresses(&v4[..27]), None);
        let mut v6 = vec![0; 40];
        (v6[0], v6[23], v6[39]) = (0x60, 6, 7);
        let ip = |last| IpAddr::from(Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, last));
        assert_eq!(addresses(&v6), Some((ip(6), ip(7))));
        for len in 0..40 {
            assert_eq!(addresses(&v6[..len]), None);
        }
        assert_eq!(addresses(&[0x75; 60]), None);
    }
}

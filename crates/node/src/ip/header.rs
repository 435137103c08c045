//! What is read of an IP packet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where an IP packet wants to go; `None` if it is none, or is cut off.
pub(super) fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => {
            let total = u16::from_be_bytes(packet.get(2..4)?.try_into().ok()?);
            let ip: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
            (usize::from(total) == packet.len()).then(|| Ipv4Addr::from(ip).into())
        }
        6 => {
            let payload = u16::from_be_bytes(packet.get(4..6)?.try_into().ok()?);
            let ip: [u8; 16] = packet.get(24..40)?.try_into().ok()?;
            (usize::from(payload) + 40 == packet.len()).then(|| Ipv6Addr::from(ip).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_read_and_rubbish_is_none() {
        let mut v4 = vec![0; 28];
        (v4[0], v4[3]) = (0x45, 28);
        v4[16..20].copy_from_slice(&[10, 86, 0, 2]);
        assert_eq!(destination(&v4), Some([10, 86, 0, 2].into()));
        assert_eq!(destination(&v4[..27]), None);
        let mut v6 = vec![0; 40];
        v6[0] = 0x60;
        v6[39] = 7;
        assert_eq!(destination(&v6), Some(Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 7).into()));
        for len in 0..40 {
            assert_eq!(destination(&v6[..len]), None);
        }
        assert_eq!(destination(&[0x75; 60]), None);
    }
}

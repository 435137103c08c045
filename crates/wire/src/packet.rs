//! An IP packet on a cable: one message of the IP channel, which begins with this head.
//!
//! ```text
//!   +0   hops   u8   hosts that may still forward it
//!   +1          u8   0
//!   +2   to     u16  id of the destination host; 0: every host
//!   +4   from   u16  id of the sending host
//!   +6   work   10   offloads that the receiver must still do: `struct virtio_net_hdr`, little-endian
//!   +16  the packet
//! ```
//! Cables neither lose nor change bytes, so checksums and segmentation are left to the receiving host's kernel, as on a virtio
//! device: a packet is up to 64 KB long, and `work` says which of the two are outstanding. Hosts between change only `hops`.

use crate::{DecodeError, HostId};

/// Bytes before the packet.
pub const HEAD: usize = 16;
/// Where `work` begins, bytes: kernels read and write the message from here on.
pub const WORK: usize = 6;

/// Flag of [`Work`]: the checksum between `checksum_from` and the end is yet to be filled in.
pub const NEEDS_CHECKSUM: u8 = 1;
/// Flag of [`Work`]: the checksum was checked.
pub const CHECKED: u8 = 2;
/// Kind of [`Work`]: no segmentation.
pub const WHOLE: u8 = 0;
/// Kind of [`Work`]: TCP over IPv4, to be segmented.
pub const TCP4: u8 = 1;
/// Kind of [`Work`]: TCP over IPv6, to be segmented.
pub const TCP6: u8 = 4;
/// Kind of [`Work`]: UDP, to be split into datagrams.
pub const UDP: u8 = 5;
/// Added to the kind for TCP with congestion notification.
pub const ECN: u8 = 0x80;
/// Smallest segment size that is accepted, bytes: a smaller one would make the receiving kernel build thousands of packets from one.
const PIECE_MIN: u16 = 8;
/// Most datagrams of one packet, as in Linux.
const DATAGRAMS_MAX: usize = 128;

/// Destination of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// One host.
    Host(HostId),
    /// Every host except its sender: multicast and broadcast.
    Everybody,
}

/// The head of a message, without [`Work`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Hosts that may still forward it.
    pub hops: u8,
    /// Its destination.
    pub to: Target,
    /// The host that sent it.
    pub from: HostId,
}

impl Head {
    /// Writes the head into a message of at least [`HEAD`] bytes.
    pub fn write(self, message: &mut [u8]) {
        let to = match self.to {
            Target::Host(host) => host.0,
            Target::Everybody => 0,
        };
        let [to, from] = [to.to_le_bytes(), self.from.0.to_le_bytes()];
        message[..WORK].copy_from_slice(&[self.hops, 0, to[0], to[1], from[0], from[1]]);
    }

    /// Reads the head of a message and checks its form; whether these hosts exist is for the caller to check.
    pub fn read(message: &[u8]) -> Result<Self, DecodeError> {
        let Some(&[hops, zero, t0, t1, f0, f1]) = message.first_chunk::<WORK>() else {
            return Err(DecodeError::Range("packet length"));
        };
        if message.len() <= HEAD || zero != 0 {
            return Err(DecodeError::Range("packet head"));
        }
        let to = match u16::from_le_bytes([t0, t1]) {
            0 => Target::Everybody,
            host => Target::Host(HostId(host)),
        };
        Ok(Self { hops, to, from: HostId(u16::from_le_bytes([f0, f1])) })
    }
}

/// Offloads of a packet that are still outstanding: checksum and segmentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// [`NEEDS_CHECKSUM`], [`CHECKED`].
    pub flags: u8,
    /// [`WHOLE`], or the kind of segmentation.
    pub kind: u8,
    /// Length of all headers, bytes.
    pub headers: u16,
    /// Payload of one segment, bytes.
    pub piece: u16,
    /// Offset in the packet at which the checksummed bytes begin.
    pub checksum_from: u16,
    /// Offset of the checksum field from there, bytes.
    pub checksum_at: u16,
}

impl Work {
    /// Reads the work of a message of at least [`HEAD`] bytes.
    pub fn read(message: &[u8]) -> Result<Self, DecodeError> {
        let bytes = message.get(WORK..HEAD).and_then(|bytes| bytes.first_chunk::<{ HEAD - WORK }>());
        let Some(&[flags, kind, h0, h1, p0, p1, f0, f1, a0, a1]) = bytes else {
            return Err(DecodeError::Range("packet length"));
        };
        let [headers, piece] = [u16::from_le_bytes([h0, h1]), u16::from_le_bytes([p0, p1])];
        let [checksum_from, checksum_at] = [u16::from_le_bytes([f0, f1]), u16::from_le_bytes([a0, a1])];
        Ok(Self { flags, kind, headers, piece, checksum_from, checksum_at })
    }

    /// Whether a neighbour may request this work from this host's kernel for `packet`, whose IP header was checked.
    pub fn check(&self, packet: &[u8]) -> Result<(), DecodeError> {
        let lie = |what| Err(DecodeError::Range(what));
        if self.flags & !(NEEDS_CHECKSUM | CHECKED) != 0 {
            return lie("packet flags");
        }
        let first = packet.first().copied().unwrap_or(0);
        let v4 = first >> 4 == 4;
        let header = if v4 { usize::from(first & 0xf) * 4 } else { 40 };
        if header < 20 || header > packet.len() {
            return lie("packet header");
        }
        let needs = self.flags & NEEDS_CHECKSUM != 0;
        let end = usize::from(self.checksum_from) + usize::from(self.checksum_at) + 2;
        if needs && (usize::from(self.checksum_from) < header || end > packet.len()) {
            return lie("packet checksum");
        }
        let protocol = packet.get(if v4 { 9 } else { 6 }).copied();
        // Whether the packet is of this kind, and where its checksum lies.
        let (fits, checksum_at) = match self.kind & !ECN {
            WHOLE => return if self.kind == WHOLE { Ok(()) } else { lie("packet kind") },
            TCP4 => (v4 && protocol == Some(6), 16),
            TCP6 => (!v4, 16),
            UDP => (self.kind == UDP && (!v4 || protocol == Some(17)), 6),
            _ => (false, 0),
        };
        // A kernel segments only packets whose checksums it also fills in.
        if !fits || !needs || self.checksum_at != checksum_at {
            return lie("packet kind");
        }
        let headers = usize::from(self.checksum_from) + if self.kind == UDP { 8 } else { 20 };
        let payload = packet.len().saturating_sub(headers);
        let datagrams = payload.div_ceil(usize::from(self.piece.max(1)));
        if self.piece < PIECE_MIN || payload == 0 || (self.kind == UDP && datagrams > DATAGRAMS_MAX) {
            return lie("packet pieces");
        }
        let longest = packet.len().min(usize::from(u16::MAX));
        if usize::from(self.headers) > longest { lie("packet headers") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(len: usize) -> Vec<u8> {
        let mut packet = vec![0; len];
        (packet[0], packet[9]) = (0x45, 6);
        packet
    }

    const CUT: Work =
        Work { flags: 1, kind: TCP4, headers: 40, piece: 1460, checksum_from: 20, checksum_at: 16 };

    #[test]
    fn packet_head_encodes_and_decodes() {
        for to in [Target::Everybody, Target::Host(HostId(7))] {
            let head = Head { hops: 9, to, from: HostId(300) };
            let mut message = vec![0xff; HEAD + 20];
            head.write(&mut message);
            assert_eq!(Head::read(&message), Ok(head));
            for len in 0..=HEAD {
                assert!(Head::read(&message[..len]).is_err());
            }
        }
    }

    #[test]
    fn packet_of_linux_passes() {
        assert_eq!(CUT.check(&tcp(65_535)), Ok(()));
        assert_eq!(Work { kind: TCP4 | ECN, ..CUT }.check(&tcp(3000)), Ok(()));
        assert_eq!(Work::default().check(&tcp(20)), Ok(()));
        assert_eq!(Work { flags: CHECKED, ..Work::default() }.check(&tcp(20)), Ok(()));
        let mut v6 = vec![0; 9000];
        v6[0] = 0x60;
        assert_eq!(Work { kind: TCP6, headers: 60, checksum_from: 40, ..CUT }.check(&v6), Ok(()));
        let udp = Work { kind: UDP, headers: 48, piece: 1400, checksum_from: 40, checksum_at: 6, ..CUT };
        assert_eq!(udp.check(&v6), Ok(()));
    }

    #[test]
    fn packet_lies_are_refused() {
        let packet = tcp(9000);
        for lie in [
            Work { flags: 4, ..CUT },
            Work { flags: 0, ..CUT },
            Work { kind: 3, ..CUT },
            Work { kind: ECN, ..CUT },
            Work { kind: TCP6, ..CUT },
            Work { kind: UDP, piece: 8, ..CUT },
            Work { kind: UDP | ECN, ..CUT },
            Work { piece: 0, ..CUT },
            Work { piece: 7, ..CUT },
            Work { headers: 9001, ..CUT },
            Work { checksum_at: 6, ..CUT },
            Work { checksum_from: 19, ..CUT },
            Work { flags: 1, kind: WHOLE, checksum_from: 19, ..CUT },
            Work { checksum_from: 8990, ..CUT },
            Work { checksum_from: u16::MAX, checksum_at: u16::MAX, ..CUT },
        ] {
            assert!(lie.check(&packet).is_err(), "{lie:?}");
        }
        assert!(CUT.check(&tcp(40)).is_err(), "nothing to cut");
        for (first, what) in [(0x44, "shorter than a header"), (0x4f, "in the middle of the header")] {
            let mut packet = packet.clone();
            packet[0] = first;
            assert!(CUT.check(&packet).is_err(), "{what}");
        }
        assert!(Work::default().check(&[0x4f; 40]).is_err(), "a header longer than its packet");
        let udp = Work { kind: UDP, piece: 100, checksum_at: 6, ..CUT };
        assert!(udp.check(&packet).is_err(), "TCP is not cut into datagrams");
    }

    #[test]
    fn packet_bytes_never_panic() {
        let mut state = 1_u64;
        for round in 0..200_000 {
            let message: Vec<u8> = (0..round % 90)
                .map(|_| {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    state.to_le_bytes()[7]
                })
                .collect();
            if Head::read(&message).is_ok() {
                let work = Work::read(&message).unwrap();
                if work.check(&message[HEAD..]).is_ok() && work.flags & NEEDS_CHECKSUM != 0 {
                    let end = work.checksum_from + work.checksum_at + 2;
                    assert!(usize::from(end) <= message.len() - HEAD);
                }
            }
        }
    }
}

//! "Host unreachable": the ICMP answer of a router to a packet for which it has no route, so that `connect` fails at once.

use crosslane_wire::packet::{HEAD, WORK};
use std::time::Duration;

/// Most bytes of the packet that are quoted: all headers that a kernel looks at.
const QUOTE: usize = 512;
/// Length of the work field of a packet's head, which stays zero in an answer.
const NO_WORK: usize = HEAD - WORK;
const ICMP: u8 = 1;
const ICMP6: u8 = 58;
const HOPS: u8 = 64;

/// Rate limit of answers: one per `EVERY`, saved up to `BURST_MAX`.
#[derive(Debug, Default)]
pub(super) struct Allowance {
    /// Time, on the daemon's clock, up to which the answers that it allows have been used.
    spent: Duration,
}

impl Allowance {
    const EVERY: Duration = Duration::from_millis(1);
    const BURST_MAX: u32 = 100;

    /// Whether one more may be given now.
    pub(super) fn take(&mut self, now: Duration) -> bool {
        let oldest = now.saturating_sub(Self::EVERY * Self::BURST_MAX);
        let next = self.spent.max(oldest) + Self::EVERY;
        let may = next <= now;
        if may {
            self.spent = next;
        }
        may
    }
}

/// The answer to `packet`, starting with an empty work field; `None` where there must be none: to ICMP errors, later fragments, and packets
/// from or to an address that is not unicast.
pub(super) fn answer(packet: &[u8]) -> Option<Vec<u8>> {
    match packet.first()? >> 4 {
        4 => answer4(packet),
        6 => answer6(packet),
        _ => None,
    }
}

fn answer4(packet: &[u8]) -> Option<Vec<u8>> {
    let (source, destination) = (packet.get(12..16)?, packet.get(16..20)?);
    let header = usize::from(packet[0] & 0xf) * 4;
    let later_fragment = packet[6] & 0x1f != 0 || packet[7] != 0;
    let error = packet[9] == ICMP && !matches!(packet.get(header), Some(0 | 8 | 13..=18));
    if header < 20 || later_fragment || error || source[0] == 0 || source[0] >= 224 || destination[0] >= 224 {
        return None;
    }
    let mut icmp = vec![3, 1, 0, 0, 0, 0, 0, 0];
    icmp.extend(packet.iter().take(QUOTE));
    let check = checksum(&[&icmp]);
    icmp[2..4].copy_from_slice(&check);
    let total = u16::try_from(20 + icmp.len()).ok()?.to_be_bytes();
    let mut ip = vec![0x45, 0xc0, total[0], total[1], 0, 0, 0, 0, HOPS, ICMP, 0, 0];
    // The source is the host that cannot be reached: a kernel would ignore an answer from its own address.
    ip.extend([destination, source].concat());
    let check = checksum(&[&ip]);
    ip[10..12].copy_from_slice(&check);
    Some([&[0; NO_WORK][..], &ip, &icmp].concat())
}

fn answer6(packet: &[u8]) -> Option<Vec<u8>> {
    let (source, destination) = (packet.get(8..24)?, packet.get(24..40)?);
    let error = packet[6] == ICMP6 && packet.get(40).is_none_or(|kind| *kind < 128);
    if error || source.iter().all(|byte| *byte == 0) || source[0] == 0xff || destination[0] == 0xff {
        return None;
    }
    let mut icmp = vec![1, 3, 0, 0, 0, 0, 0, 0];
    icmp.extend(packet.iter().take(QUOTE));
    let len = u16::try_from(icmp.len()).ok()?.to_be_bytes();
    let check = checksum(&[destination, source, &[0, 0, len[0], len[1], 0, 0, 0, ICMP6], &icmp]);
    icmp[2..4].copy_from_slice(&check);
    let ip = [0x60, 0, 0, 0, len[0], len[1], ICMP6, HOPS];
    Some([&[0; NO_WORK][..], &ip, destination, source, &icmp].concat())
}

/// The Internet checksum over the parts, each but the last of even length.
fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let sum: u32 =
        words.map(|word| u32::from(word[0]) << 8 | u32::from(word.get(1).copied().unwrap_or(0))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let [_, _, high, low] = (!((folded & 0xffff) + (folded >> 16))).to_be_bytes();
    [high, low]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn syn4() -> Vec<u8> {
        let mut packet = vec![0; 60];
        (packet[0], packet[3], packet[9]) = (0x45, 60, 6);
        packet[12..20].copy_from_slice(&[10, 86, 0, 1, 10, 86, 0, 9]);
        packet
    }

    fn syn6() -> Vec<u8> {
        let mut packet = vec![0; 80];
        (packet[0], packet[5], packet[6]) = (0x60, 40, 6);
        (packet[8], packet[23], packet[24], packet[39]) = (0xfd, 1, 0xfd, 9);
        packet
    }

    #[test]
    fn unreachable_answer_comes_from_the_absent_host_and_its_sums_are_right() {
        let packet = syn4();
        let answer = answer(&packet).unwrap();
        let ip = &answer[NO_WORK..];
        assert_eq!(ip[12..20], [10, 86, 0, 9, 10, 86, 0, 1]);
        assert_eq!((checksum(&[&ip[..20]]), checksum(&[&ip[20..]])), ([0, 0], [0, 0]));
        assert_eq!((ip[20], ip[21], &ip[28..]), (3, 1, &packet[..]));
        let packet = syn6();
        let answer = super::answer(&packet).unwrap();
        let ip = &answer[NO_WORK..];
        let pseudo = [&ip[8..40], &[0, 0, ip[4], ip[5], 0, 0, 0, ICMP6]].concat();
        assert_eq!(checksum(&[&pseudo, &ip[40..]]), [0, 0]);
        assert_eq!((ip[40], ip[41], &ip[48..]), (1, 3, &packet[..]));
    }

    #[test]
    fn unreachable_is_no_answer_to_errors_fragments_groups_and_rubbish() {
        let with = |at: usize, byte: u8| {
            let mut packet = syn4();
            packet[at] = byte;
            answer(&packet)
        };
        assert!(
            with(7, 1).is_none()
                && with(16, 224).is_none()
                && with(12, 0).is_none()
                && with(0, 0x44).is_none()
        );
        let mut error = syn4();
        (error[9], error[20]) = (ICMP, 3);
        assert!(answer(&error).is_none());
        let mut error = syn6();
        (error[6], error[40]) = (ICMP6, 1);
        assert!(answer(&error).is_none());
        for len in 0..40 {
            assert!(answer(&syn6()[..len]).is_none());
        }
        assert!((0..20).all(|len| answer(&syn4()[..len]).is_none()));
    }

    #[test]
    fn answers_are_rationed() {
        let mut allowance = Allowance::default();
        let now = Duration::from_secs(9);
        assert_eq!((0..500).filter(|_| allowance.take(now)).count(), 100);
        assert!(!allowance.take(now) && allowance.take(now + Allowance::EVERY));
    }
}

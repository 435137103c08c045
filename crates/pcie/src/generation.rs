//! Generations of PCIe: signalling rate and encoding.

/// A generation of PCIe, 1 to 6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation(u8);

impl Generation {
    /// All there are.
    pub const ALL: [Self; 6] = [Self(1), Self(2), Self(3), Self(4), Self(5), Self(6)];

    /// That of this number, if it is 1 to 6.
    pub fn new(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|generation| generation.0 == number)
    }

    /// Its number.
    pub fn number(self) -> u8 {
        self.0
    }

    /// Million transfers a second and lane, a bit each (PCIe Base Specification, each generation's rate).
    fn mega_transfers(self) -> u64 {
        [2_500, 5_000, 8_000, 16_000, 32_000, 64_000][usize::from(self.0) - 1]
    }

    /// Bytes a second of one lane that packets and what belongs to the link have: what the encoding leaves. 8b/10b to generation 2, 128b/130b
    /// to 5; from 6 on the parts of a FLIT that carry packets, 236 of 256 bytes.
    pub fn lane_rate(self) -> u64 {
        let bits = self.mega_transfers() * 1_000_000;
        match self.0 {
            1 | 2 => bits / 10 * 8 / 8,
            3..=5 => bits / 130 * 128 / 8,
            _ => bits / 256 * 236 / 8,
        }
    }

    /// Bytes of a write packet beside its payload. To generation 5: framing and sequence number (4), a header with a 64-bit address (16), the
    /// link's checksum (4); in FLITs the header alone.
    pub fn overhead(self) -> u64 {
        if self.0 < 6 { 24 } else { 16 }
    }

    /// Bytes of a packet of the link itself (acknowledgement, credit): in FLITs they have a place of their own.
    pub fn link_packet(self) -> u64 {
        if self.0 < 6 { 8 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GB/s of 16 lanes in one direction: table 1 of the direct-access study, which counts generation 6 without what FLITs take.
    #[test]
    fn rates_are_those_of_the_study() {
        for (number, rate) in
            [(1, 4.0), (2, 8.0), (3, 15.75), (4, 31.51), (5, 63.01), (6, 128.0 * 236.0 / 256.0)]
        {
            let generation = Generation::new(number).unwrap();
            let ours = 16.0 * generation.lane_rate() as f64 / 1e9;
            assert!(
                (ours / rate - 1.0).abs() < 0.001,
                "generation {number}: {ours} GB/s, the study has {rate}"
            );
        }
        assert_eq!((Generation::new(0), Generation::new(7)), (None, None));
    }
}

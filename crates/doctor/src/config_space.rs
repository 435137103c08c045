//! The PCI Express capability in a function's configuration space (PCI Express Base Specification, 7.5.3).

/// Bytes of the space that everybody may read.
pub(crate) const OPEN_PART: usize = 64;
const STATUS: usize = 0x06;
const HAS_CAPABILITIES: u16 = 1 << 4;
const FIRST_CAPABILITY: usize = 0x34;
const EXPRESS: u8 = 0x10;
/// As many capabilities as fit: a list that is longer goes in a circle.
const MOST: usize = 48;

/// Sizes of packets, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Largest payload that the function could take.
    pub(crate) payload_able: u32,
    /// Largest payload that it sends.
    pub(crate) payload: u32,
    /// Largest read that it asks for.
    pub(crate) read_request: u32,
}

/// What a configuration space says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Express {
    /// Its sizes.
    Sizes(Sizes),
    /// The function has no PCI Express capability.
    Missing,
    /// Only a part of the space was read: what is wanted lies behind it.
    CutShort,
    /// It makes no sense: a circle, reserved values, or all ones, as of a device that is gone.
    Odd,
}

/// Looks for the capability in `space`.
pub(crate) fn express(space: &[u8]) -> Express {
    let Some(status) = word(space, STATUS) else { return Express::CutShort };
    if status == u16::MAX {
        return Express::Odd;
    }
    if status & HAS_CAPABILITIES == 0 {
        return Express::Missing;
    }
    let Some(first) = space.get(FIRST_CAPABILITY) else { return Express::CutShort };
    let mut at = usize::from(first & !3);
    for _ in 0..MOST {
        if at == 0 {
            return Express::Missing;
        }
        if at < OPEN_PART {
            return Express::Odd;
        }
        let (Some(&id), Some(&next)) = (space.get(at), space.get(at + 1)) else { return Express::CutShort };
        if id == EXPRESS {
            return sizes(space, at);
        }
        at = usize::from(next & !3);
    }
    Express::Odd
}

fn sizes(space: &[u8], at: usize) -> Express {
    let (Some(capability), Some(control)) = (word(space, at + 4), word(space, at + 8)) else {
        return Express::CutShort;
    };
    let payload_able = size(capability);
    match (payload_able, size(control >> 5), size(control >> 12)) {
        (Some(payload_able), Some(payload), Some(read_request)) => {
            Express::Sizes(Sizes { payload_able, payload, read_request })
        }
        _ => Express::Odd,
    }
}

/// 128 to 4096 bytes, of three bits.
fn size(code: u16) -> Option<u32> {
    let code = code & 7;
    (code <= 5).then_some(128 << code)
}

fn word(space: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes([*space.get(at)?, *space.get(at + 1)?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(capability: u16, control: u16) -> Vec<u8> {
        let mut space = vec![0; 256];
        (space[STATUS], space[FIRST_CAPABILITY]) = (0x10, 0x40);
        // Power management first, then PCI Express.
        (space[0x40], space[0x41], space[0x50]) = (1, 0x50, EXPRESS);
        space[0x54..0x56].copy_from_slice(&capability.to_le_bytes());
        space[0x58..0x5a].copy_from_slice(&control.to_le_bytes());
        space
    }

    #[test]
    fn express_capability_gives_the_sizes_of_packets() {
        let sizes = Sizes { payload_able: 512, payload: 256, read_request: 4096 };
        assert_eq!(express(&space(2, 5 << 12 | 1 << 5)), Express::Sizes(sizes));
        assert_eq!(express(&space(2, 7 << 12 | 1 << 5)), Express::Odd);
    }

    #[test]
    fn express_capability_behind_the_end_is_said() {
        let whole = space(2, 0);
        assert_eq!(express(&whole[..OPEN_PART]), Express::CutShort);
        assert_eq!(express(&whole[..0x56]), Express::CutShort);
        assert_eq!(express(&[]), Express::CutShort);
    }

    #[test]
    fn express_circle_and_a_device_that_is_gone_are_odd() {
        let mut circle = space(2, 0);
        (circle[0x50], circle[0x51]) = (5, 0x40);
        assert_eq!(express(&circle), Express::Odd);
        assert_eq!(express(&[0xff; 256]), Express::Odd);
        let mut none = space(2, 0);
        none[STATUS] = 0;
        assert_eq!(express(&none), Express::Missing);
    }
}

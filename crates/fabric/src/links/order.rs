//! Which of two records of one origin is newer.
//!
//! Incarnations are serial numbers modulo 2^64, so an origin can always go above a forged one. Three records may therefore
//! each be newer than the next; hosts forward such records no faster than [`super::pace`] allows, until their age ends them.

use core::cmp::Ordering;
use crosslane_wire::control::LinkState;

const HALF: u64 = 1 << 63;
/// Ages farther apart than this are different, s: one copy may have been held longer by a host that forwarded it.
const AGE_STEP: u16 = 120;

/// How a record that arrived compares with the known one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recency {
    /// It is newer.
    Newer,
    /// It has the same content, but its origin made it later than the known copy's age says.
    Younger,
    /// It is equal.
    Same,
    /// It is older.
    Older,
}

/// Compares two incarnations.
pub(super) fn compare_lives(one: u64, other: u64) -> Ordering {
    match one.wrapping_sub(other) {
        0 => Ordering::Equal,
        // Exactly opposite: either choice is fine, if all hosts make the same.
        HALF => one.cmp(&other),
        ahead if ahead < HALF => Ordering::Greater,
        _ => Ordering::Less,
    }
}

/// Compares `new` with `known`, whose present age is `age` seconds. Of two different records with one number all hosts
/// prefer the same one, so that a forged copy does not stay where it arrived first.
pub(super) fn compare(new: &LinkState, known: &LinkState, age: u16) -> Recency {
    let order = compare_lives(new.incarnation, known.incarnation)
        .then(new.sequence.cmp(&known.sequence))
        .then_with(|| new.neighbours.cmp(&known.neighbours))
        .then(new.seal.cmp(&known.seal));
    match order {
        Ordering::Greater => Recency::Newer,
        Ordering::Less => Recency::Older,
        Ordering::Equal if new.age.saturating_add(AGE_STEP) < age => Recency::Younger,
        Ordering::Equal => Recency::Same,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_number_next_is_always_newer() {
        for number in [0, 1, HALF - 1, HALF, u64::MAX - 1, u64::MAX] {
            let next = number.wrapping_add(1);
            assert_eq!(compare_lives(next, number), Ordering::Greater);
            assert_eq!(compare_lives(number, next), Ordering::Less);
        }
        let opposite = compare_lives(HALF, 0);
        assert_eq!(opposite, compare_lives(0, HALF).reverse());
    }
}

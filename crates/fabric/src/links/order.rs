//! Which of two records of one origin counts.
//!
//! Incarnations count in circles, so that whatever was forged, its origin can go above it. In a circle three records may
//! each be newer than the one before; hosts pass such on no faster than [`super::pace`] allows, and their age ends them.

use core::cmp::Ordering;
use crosslane_wire::control::LinkState;

const HALF: u64 = 1 << 63;
/// Ages farther apart than this are different, s: a host on the way may have held one copy longer than another.
const AGE_STEP: u16 = 120;

/// How a record that arrived stands to the one that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recency {
    /// It is newer.
    Newer,
    /// It says the same, and its origin said it later than we thought.
    Younger,
    /// It is the same.
    Same,
    /// It is older.
    Older,
}

/// Compares two incarnations.
pub(super) fn compare_lives(one: u64, other: u64) -> Ordering {
    match one.wrapping_sub(other) {
        0 => Ordering::Equal,
        // Exactly opposite: either would do, as long as all hosts choose the same.
        HALF => one.cmp(&other),
        ahead if ahead < HALF => Ordering::Greater,
        _ => Ordering::Less,
    }
}

/// How `new` stands to `known`, which is `age` seconds old by now. Of two with one number the same one counts everywhere,
/// so that a forged copy does not stay where it came first.
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
    fn whatever_a_number_is_the_next_one_is_newer() {
        for number in [0, 1, HALF - 1, HALF, u64::MAX - 1, u64::MAX] {
            let next = number.wrapping_add(1);
            assert_eq!(compare_lives(next, number), Ordering::Greater);
            assert_eq!(compare_lives(number, next), Ordering::Less);
        }
        let opposite = compare_lives(HALF, 0);
        assert_eq!(opposite, compare_lives(0, HALF).reverse());
    }
}

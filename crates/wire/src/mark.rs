//! Marks: the word in front of a record by which its reader knows that the record is there, and is not one of an earlier lap.

/// The mark of the record at `position` (bytes since the ring's start) of the ring with this `key`.
pub fn mark(key: u64, position: u64) -> u64 {
    let mut z = key.wrapping_add(position).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

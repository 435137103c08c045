//! Random numbers from the kernel, for keys that nobody may guess.

/// 32 random bits.
pub fn u32() -> u32 {
    getrandom::u32().expect("the kernel has random bits once it has started")
}

/// 64 random bits.
pub fn u64() -> u64 {
    getrandom::u64().expect("the kernel has random bits once it has started")
}

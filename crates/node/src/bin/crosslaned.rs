//! The Crosslane daemon.
fn main() {}

//! The crosslane command.
fn main() {}

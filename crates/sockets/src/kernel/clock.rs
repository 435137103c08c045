//! The time, to the tick.

pub use crosslane_client::link::clock::now_ms;

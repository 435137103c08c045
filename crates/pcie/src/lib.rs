//! A model of PCIe cables: how long a posted write is under way, and how many bytes a second go through.
//!
//! [`Cable`] says what a cable is (`"gen4 x8, mps 256, fibre 10 m"`), [`Limits`] what it can give at most, by formulas, and [`Direction`]
//! carries packets one after the other in virtual time, so that a test can compare the two. Sources, assumptions and what is left out are
//! in `docs/link-model.md`.
//!
//! Times are picoseconds in a `u64`, since a packet of 64 bytes takes 1.4 ns on the widest link; rates are bytes a second.

mod cable;
mod direction;
mod generation;
mod limits;
mod packet;
mod parse;
mod writer;

pub use cable::{Cable, Medium};
pub use direction::{Direction, Sent};
pub use generation::Generation;
pub use limits::Limits;
pub use packet::{LINE, wire_bytes};
pub use parse::BadCable;
pub use writer::Writer;

/// A second, in the unit of all times here.
pub const SECOND: u64 = 1_000_000_000_000;
/// A nanosecond, in the unit of all times here.
pub const NANOSECOND: u64 = 1000;

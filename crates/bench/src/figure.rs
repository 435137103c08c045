//! The result of a measurement: the types of [`crosslane_results`].

pub use crosslane_results::figure::{Bar, Compared, Figure, Reference};
pub use crosslane_results::machine::Machine;
pub use crosslane_results::report::Report;
pub use crosslane_results::sample::Sample;
pub use crosslane_results::unit::{Unit, bytes};

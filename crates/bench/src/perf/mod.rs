//! `crosslane perf`: the speed of a program that uses the rings directly, beside the limits of the machine.
//!
//! Two processes (a process and a copy of itself), each on a processor of its own, share two segments as two
//! neighbours do. Every case runs over Crosslane's ring and over a bare two-copy ring in the same memory, by turns,
//! so that what disturbs the machine disturbs both.

pub mod access;
pub mod bare;
mod cases;
pub mod link;
pub mod plan;
pub mod ring;
pub mod session;
pub mod transport;
mod windows;

pub use cases::{Case, Outcome, Over, PERCENTILES};
pub(crate) use plan::choose;
pub use plan::{Part, Plan, Size, cables, measure, run};

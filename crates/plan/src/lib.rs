//! What a network of hosts joined by PCIe cables gives, before anyone buys it: formulas, and a simulator in virtual time beside them.
//!
//! [`plan()`] computes all figures of a [`Topology`] of hosts with one kind of [`crosslane_pcie::Cable`]: bandwidth of neighbours, of streams
//! through hosts between, of all hosts at once, bisection, latency, window memory, and what is left when cables are lost. The formulas
//! ([`Formulas`], [`Load`]) know a cable by [`crosslane_pcie::Limits`]; the [`simulation`] moves bytes over [`crosslane_pcie::Direction`]s, in single
//! packets or in turns of pumps, with bounded rings in every host. Paths are those of the daemons (`crosslane-fabric`). What is assumed
//! is in `docs/plan.md`.
//!
//! Times are picoseconds in a `u64`, rates bytes a second; in the document of a plan times are nanoseconds.
#![forbid(unsafe_code)]

mod bisection;
mod check;
mod figure;
mod formulas;
mod load;
pub mod memory;
mod network;
mod plan;
mod routes;
pub mod simulation;
mod topology;
mod view;

pub use bisection::Bisection;
pub use figure::{Figure, Quantity, Unit};
pub use formulas::{Formulas, Forwarding};
pub use load::{Bottleneck, Load, Pattern};
pub use memory::Memory;
pub use network::{DirectionId, Network, cable_name, cable_of};
pub use plan::{Assumed, Part, Plan, Settings, VERSION, plan};
pub use routes::Routes;
pub use topology::{BadNetwork, MOST_HOSTS, MOST_PORTS, Topology};

//! The network's protocol state machines: cable set-up, neighbours, link states, routes, circuits. Pure.
//!
//! Nothing here has a clock, a thread, a socket or randomness: the caller reports events by `handle_*`, fetches actions
//! by `poll_*`, and passes time and random keys as arguments. The same code runs in the daemon and in tests with hundreds
//! of hosts. [`setup`] brings one cable up, [`damping`] says when it is trusted, [`links`] floods link states, [`route`]
//! computes paths, [`circuit`] keeps the ends of circuits.
#![forbid(unsafe_code)]

pub mod channel;
pub mod circuit;
mod claim;
pub mod damping;
pub mod end;
pub mod ending;
pub mod links;
pub mod moving;
pub mod output;
pub mod route;
pub mod setup;
mod table;
pub mod transit;

pub use circuit::Circuits;
pub use damping::Damping;
pub use links::Links;
pub use setup::CableSetup;

use crosslane_wire::HostId;

/// Largest host id, the last part of an IPv4 address, unless the configuration allows more ([`Links::allow_hosts`]).
pub const HOST_MAX: u16 = 254;

/// Whether `host` is an id that a host may have.
pub fn host_ok(host: HostId) -> bool {
    (1..=HOST_MAX).contains(&host.0)
}

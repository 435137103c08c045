//! A lab: several Crosslane hosts on one machine, each a network namespace with its own `crosslaned`.
//!
//! ```no_run
//! # fn main() -> Result<(), crosslane_lab::LabError> {
//! use crosslane_lab::{Lab, Options, Preload};
//! let lab = Lab::up(&Options { hosts: 3, ..Options::scratch("doc") })?;
//! let server = lab.command("h2", Preload::On, "redis-server")?.arg("--save").arg("").spawn();
//! let ping = lab.command("h1", Preload::On, "redis-cli")?
//!     .args(["-h", &lab.address("h2")?.to_string(), "ping"]).output();
//! # drop((server, ping));
//! // Dropping `lab` ends the daemons and every program in the namespaces, and removes the state folder.
//! # Ok(()) }
//! ```
//!
//! * [`Lab::up`] starts a *keeper* (binary `crosslane-keeper`, beside the running executable or in
//!   `$CROSSLANE_BIN`) that holds the namespaces and is the parent of the daemons, then waits until every cable
//!   is up and every host knows every other. A lab made by the library goes down with its guard, and also when
//!   the process that made it dies; [`Lab::detach`] lets it live on (`crosslane lab up`).
//! * [`Lab::command`] is a [`std::process::Command`] of a program in a host. The spawned process *is* the
//!   program: pid, standard streams, signals and exit code are its own.
//! * Hosts are `h1`, `h2`, ..; `hN` has the fabric addresses `10.86.0.N` and `fd86::N`. Beside each cable lies a
//!   veth pair for figures of the kernel's TCP, with forwarding to farther hosts: [`Lab::baseline`].
//! * [`Lab::cut`], [`Lab::mend`], [`Lab::kill_daemon`], [`Lab::kill_host`] and [`Lab::start_daemon`] make faults,
//!   [`Lab::watch_moves`] reports which streams moved; [`Lab::wait_until`] polls a daemon's status with a deadline.
//!
//! With [`Options::machines`] each host is a virtual machine with a kernel of its own, and cables are NTB bridges to it.
//!
//! As root the namespaces are plain network namespaces; an ordinary user's lab lives in a user namespace, where
//! the kernel allows that.

mod config;
mod enter;
mod error;
mod fault;
mod folder;
mod guest;
mod keeper;
mod lab;
mod machine;
mod moves;
mod namespace;
mod plan;
mod process;
mod query;
mod state;
mod trust;
mod updown;
mod waiting;
mod wiring;

pub use enter::{Entry, Place, enter, preload_list};
pub use error::LabError;
pub use fault::Noticed;
pub use folder::{Programs, default_base, list, malloc_library, socket_library};
pub use guest::machine;
pub use keeper::keep;
pub use lab::Lab;
pub use moves::{Moves, Watch};
pub use plan::{Cable, CableKind, Machines, Options, Posted, Preload, Resilience, Topology};
pub use process::Identity;
pub use query::status;
pub use state::{HostState, State};

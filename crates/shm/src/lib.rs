//! Memory shared with a peer that may lie: mappings, rings, copies, fences, waits.
//!
//! This is where all `unsafe` of the data path lives. Nothing here forms a Rust reference over shared bytes: the
//! peer may change them at any time. [`mem`] has the two views (an [`Outbound`] has no load at all: law 1), [`segment`] what a port gives out, [`ring`]
//! the byte ring of records in them, [`copy`] the ways to move bytes, [`clock`] the time of records, [`wait`]
//! spin-then-sleep, [`arm`] when one may sleep where stores are under way for a while, [`lock`] and [`state`] what the processes of one program share among themselves, [`list`] what
//! its threads read while it grows, [`status_page`] what the daemon tells them, [`shared_bytes`] memory that a program opens to others,
//! [`submission`] what a program hands to its daemon to be moved and [`remote`] its buffers
//! as the daemon reaches them by leave of its [`guard`] while the process is the one that it was ([`peer`]), [`signals`] that
//! wait meanwhile, [`account`] where the time goes, [`wake`] how programs wake each other, [`carrier`] what the kernel knows of a stream's connection, [`queue`] stores that land later.

pub mod account;
pub mod arm;
pub mod buffer;
pub mod carrier;
pub mod clock;
pub mod copy;
pub mod far;
pub mod guard;
pub mod guarded;
pub mod list;
pub mod lock;
mod mapping;
pub mod mem;
pub mod peer;
pub mod queue;
pub mod remote;
pub mod ring;
pub mod segment;
pub mod shared_bytes;
pub mod signals;
pub mod state;
pub mod status_page;
#[cfg(all(test, target_arch = "x86_64"))]
mod steps;
pub mod submission;
pub mod wait;
pub mod wake;

pub use far::FarBuffer;
pub use mem::{Inbound, Load, MapError, Outbound, Own, Store};
pub use segment::Segment;

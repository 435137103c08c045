//! Memory shared with a peer that may lie: mappings, rings, copies, fences, waits.
//!
//! All `unsafe` of the data path is in this crate. It forms no Rust reference to shared bytes, since the peer may change them
//! at any time. [`mem`] has the two views of a segment (an [`Outbound`] has no load at all: law 1), [`segment`] what a port
//! gives out, [`ring`] the byte ring of records in segments, [`copy`] the ways to move bytes, [`clock`] the time of records.
//! [`wait`] spins, then sleeps; [`arm`] says how long a thread may sleep where stores are posted. [`lock`] and [`state`] are
//! shared by the processes of one program, [`list`] is read by threads while it grows. [`status_page`] has the daemon's
//! status words, [`shared_bytes`] memory that a program opens to others. By [`submission`] a program hands transfers to its
//! daemon, which accesses the program's memory by [`remote`], with the permission of its [`guard`] and while the process is
//! still the same one ([`peer`]); [`signals`] are delayed meanwhile. [`account`] measures where time goes, [`wake`] lets
//! programs wake each other, [`carrier`] reads the kernel's connection of a stream, [`queue`] holds stores that land later.

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
pub mod slot;
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

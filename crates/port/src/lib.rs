//! One NTB endpoint behind one trait, its back ends, and the conformance suite that keeps these equal.
//!
//! [`Port`] is one end of a cable as a daemon uses it: windows, inbound memory, scratchpads, doorbells, link events. [`soft`] joins two
//! processes of one machine by a Unix socket and shared memory; [`posted`] does the same with stores that land later; [`kernel`] is a real
//! bridge; [`sim`] joins two ports inside one process under virtual time with seeded faults; [`conformance`] is the suite that every back end
//! must pass.
//!
//! The trait is usable as an object: `Box<dyn Port<Inbound = .., Outbound = ..>>`; [`Mapped`] names the object type of
//! all ports whose memory is mapped into the daemon, so that a daemon can keep soft and hardware ports in one list.
//!
//! No port offers a load from an outbound window (law 1):
//! ```compile_fail
//! use crosslane_port::Port;
//! use crosslane_shm::Load;
//! fn peek<P: Port>(window: &P::Outbound) -> u64 {
//!     window.load_u64(0)
//! }
//! ```
//! but stores are possible:
//! ```
//! use crosslane_port::Port;
//! use crosslane_shm::Store;
//! fn poke<P: Port>(window: &P::Outbound) {
//!     window.store_u64(0, 1);
//! }
//! ```
#![forbid(unsafe_code)]

pub mod conformance;
pub mod kernel;
pub mod port;
pub mod posted;
pub mod sim;
pub mod soft;

mod translation;

pub use port::{DownReason, Event, Info, Mapped, Pacing, Port, PortError};

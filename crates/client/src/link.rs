//! Operations and waits of a program: written once, for the preload library, native streams, queues and the agent of one-sided access.
//!
//! ```text
//!   operation:  Send, Receive   --try_advance-->  done, or pending on an Interest
//!                                                    |
//!   wait:       spin -> arm the far side -> look once more -> sleep -> disarm
//!                                                    |
//!   Sleeper:    how this program blocks on descriptors, what a signal does to a call, where its wake events are kept
//! ```
//! [`operation`] has sends and receives that are submitted and advanced, and never block. [`interest`] says what a caller may
//! wait for, and whether it has come; [`wait()`] waits for one end, [`Requests`] arms several ends for one sleeper; [`kernel`]
//! reads the state of the far program from the carrier connection. The part that differs by program is its [`Sleeper`].

pub mod announced;
pub mod attached;
pub mod clock;
pub mod interest;
pub mod kernel;
pub mod operation;
mod requests;
mod spin;
mod wait;
pub mod wakers;

pub use attached::{Attached, Linked};
pub use interest::WaitFor;
pub use operation::{Advance, Receive, Send};
pub use requests::Requests;
pub use spin::Spinner;
pub use wait::{BLIND, Sleeper, wait};

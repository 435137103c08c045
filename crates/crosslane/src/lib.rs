//! Crosslane for programs that are written for it: no `LD_PRELOAD`, no sockets.
//!
//! ```text
//!   fabric::Fabric  --listen, connect-->  stream::Stream    an ordered stream of bytes to another program
//!                                             |
//!                         queue::Queue --------+             bulk sends and receives, completed like work requests
//!
//!   memory::Memory  <--commands, by a stream--  peer::Peer  put, get, fetch_add, compare_swap, notify
//! ```
//! | module | what it is | an example to run |
//! |---|---|---|
//! | [`fabric`] | this host's daemon: listen and connect | `echo` |
//! | [`stream`] | sending and receiving, with and without a copy by the sender | `echo`, `zcopy` |
//! | [`memory`] | this program's memory, for other programs to access | `counter own` |
//! | [`peer`] | another program's memory, accessed by this one | `counter ask` |
//! | [`queue`] | sends and receives that are submitted, and completed later | `bulk` |
//!
//! The far end of a stream may be on this host, a neighbour, or any other host of the fabric. `docs/one-sided.md` has the
//! examples in a lab, the guarantees of each call and its costs.
//!
//! When the daemon of this host ends, so do the streams of its session ([`stream::Error::DaemonGone`]). A [`fabric::Fabric`]
//! opens a new session by itself at the next call that needs one; a [`fabric::Listener`] and a [`memory::Memory`] do the same.
//!
//! A session belongs to the process that opened it: do not `fork` and use it in the child.

mod attachment;
mod error;
pub mod fabric;
pub mod memory;
mod outbox;
pub mod peer;
pub mod queue;
pub mod stream;
mod wait;

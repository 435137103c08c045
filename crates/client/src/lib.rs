//! What programs link to: a [`session`] with this host's daemon, and the [`end`] of a stream on mapped segments.
//!
//! ```text
//!   Session --Connect / Accept--> Grant (two segments, keys) --End::new--> End: try_send, try_recv, readiness, arm
//! ```
//! The data path is [`end`] alone: after the grant neither daemon nor kernel takes part. The daemon's engine may move
//! bulk: [`offload`]. Programs written for Crosslane use the crate `crosslane`, which is built on this.

pub mod buffers;
pub mod end;
pub mod link;
pub mod offload;
pub mod preload;
pub mod segments;
pub mod session;
pub mod shared;

pub use end::apart;
pub use end::ready::{self, Ready};
pub use end::{BufferError, CircuitEnd, Daemon, End, Failure, ResumeError, Transferred, edges};
pub use session::{Grant, Session, SessionError};

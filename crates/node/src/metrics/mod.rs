//! Prometheus: the [`text`](Snapshot::metrics), and a small HTTP [server](Server) on loopback that gives it out.
//!
//! [`Snapshot::metrics`]: crate::snapshot::Snapshot::metrics

mod server;
mod text;

pub use server::{Server, Waits};

//! Prometheus: the [`text`](crate::snapshot::Snapshot::metrics), and a small HTTP [server](Server) on loopback that serves it.

mod server;
mod text;

pub use server::{Server, Waits};

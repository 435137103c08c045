//! The kernel's sockets behind streams and listeners: how they become and stay what their programs believe them to be, and how they end.

pub mod carrier;
pub mod deferral;
pub mod end_of_life;
pub mod handshake;
pub mod inq;
pub mod listener;
pub mod own_calls;
pub mod port;
pub mod short_lived_peers;

//! IP packets of hostile neighbours, and of programs, through a daemon with an interface: our kernel gets packets of the
//! hosts that they come from and no others, and goes on getting those.
//!
//! The test becomes root of a network of its own (`unshare`), and is skipped where that is not allowed.

#[path = "../fuzz/fds.rs"]
#[allow(dead_code, reason = "the other fuzz targets use the rest")]
mod fds;
mod network;
mod packets;
#[path = "../fuzz/tap.rs"]
#[allow(dead_code, reason = "as above")]
mod tap;
#[path = "../fuzz/world.rs"]
#[allow(dead_code, reason = "as above")]
mod world;

//! What the calls of programs do where a socket is a stream, or may become one.

pub mod attach;
pub mod io;
pub mod io_timeouts;
pub mod options;
pub mod sol_crosslane;

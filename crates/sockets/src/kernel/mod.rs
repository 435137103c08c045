//! This program and its kernel: real calls, the program's memory, options of sockets, signals.

pub mod address;
pub mod clock;
pub mod fault;
pub mod fd;
pub mod loaded;
pub mod polling;
pub mod program;
pub mod published;
pub mod real;
pub mod said;
pub mod scratch;
pub mod signals;
pub mod sockopt;
pub mod thread;
pub mod user;

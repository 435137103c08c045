//! `libcrosslane_sockets.so`: unmodified socket programs on streams, by `LD_PRELOAD`.
//!
//! The descriptor stays a real kernel TCP socket; [`attach`] makes it a stream when both ends are ours, [`calls::io`] moves
//! its bytes, [`waiting`] waits for it, [`end_of_life`] ends it.
//!
//! ```text
//!   hook         the C functions that programs call: a few lines each over what is below
//!   calls        send and receive, options, connect and accept, where a socket is a stream or may become one
//!   waiting      one stream, poll, epoll
//!   socket       the kernel's sockets behind streams and listeners
//!   daemon       the session, wakers, what the daemon said
//!   descriptors  what each descriptor is: the table
//!   kernel       the real calls, the program's memory, this process
//! ```
//! No module uses one of a folder above its own; calls upwards go through functions that are registered at load ([`start`]).
#![deny(unsafe_code)]
#![cfg_attr(
    test,
    allow(dead_code, reason = "nothing is exported from the unit tests, so nothing calls the hooks")
)]
#![allow(unreachable_pub, reason = "a library without a Rust interface")]
#![allow(rustdoc::private_intra_doc_links, reason = "as above")]
#![allow(clippy::missing_safety_doc, reason = "hooked functions have the C library's contracts")]

mod calls;
mod daemon;
mod descriptors;
mod forking;
#[allow(unsafe_code, reason = "what C calls, with the C library's contracts")]
mod hook;
#[allow(unsafe_code, reason = "calls of the C library, and the memory of programs")]
mod kernel;
mod renewal;
mod socket;
mod waiting;

use calls::attach;
use daemon::pool;
use descriptors::table;
use kernel::program;
use socket::{end_of_life, own_calls};

/// Called by the loader before the program's `main`.
extern "C" fn start() {
    program::name();
    table::prepare(table::Above { adopt: attach::adopt, left: end_of_life::left });
    renewal::start();
    own_calls::start();
    pool::start();
    forking::start();
    hook::exec::resume();
}

#[cfg(not(test))]
#[used]
#[allow(unsafe_code, reason = "the section of the loader's")]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

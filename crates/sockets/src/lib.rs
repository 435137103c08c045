//! `libcrosslane_sockets.so`: unmodified socket programs on streams, by `LD_PRELOAD`.
//!
//! The descriptor stays a real kernel TCP socket; [`attach`] makes it a stream when both ends are ours, [`io`] moves
//! its bytes, [`wait`], [`poll`], [`select`] and [`epoll`] wait for it, [`end_of_life`] ends it. [`table`] knows the
//! descriptors, [`process`] the daemon. The C functions that programs call are in [`hook`]: each is a few lines over
//! a function of the modules above.
#![cfg_attr(
    test,
    allow(dead_code, reason = "nothing is exported from the unit tests, so nothing calls the hooks")
)]
#![allow(unreachable_pub, reason = "a library without a Rust interface")]
#![allow(rustdoc::private_intra_doc_links, reason = "as above")]
#![allow(clippy::missing_safety_doc, reason = "hooked functions have the C library's contracts")]

mod address;
mod attach;
mod choice;
mod clock;
mod daemon_link;
mod deferral;
mod end_of_life;
mod epoll;
mod fault;
mod fd_exhausted;
mod fd_limit;
mod forking;
mod handshake;
mod hook;
mod inq;
mod internal_fds;
mod io;
mod io_timeouts;
mod limit;
mod listener;
mod namespace;
mod offload_session;
mod options;
mod own_calls;
mod pending_accepts;
mod poll;
mod pool;
mod port;
mod process;
mod program;
mod quiet;
mod real;
mod renewal;
mod rules;
mod said;
mod scratch;
mod short_lived_peers;
mod sockopt;
mod sol_crosslane;
mod table;
mod thread;
mod user;
mod wait;
mod waiters;
mod watch;

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
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

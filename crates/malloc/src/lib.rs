//! `libcrosslane_malloc.so`: large allocations of an unmodified program are buffers, which the programs at the far ends of
//! its streams can map: what is sent from there is copied once.
//!
//! A library of its own, so that programs which do not ask for it keep their `malloc` as it is. It knows nothing of
//! streams: buffers come from `libcrosslane_sockets.so` ([`pool`]), and all else from the allocator that the program would
//! have without us ([`real`]). [`size`] reads what counts as large.
#![allow(unreachable_pub, reason = "a library without a Rust interface")]
#![allow(rustdoc::private_intra_doc_links, reason = "as above")]
#![allow(clippy::missing_safety_doc, reason = "hooked functions have the C library's contracts")]
#![cfg_attr(test, allow(dead_code, reason = "nothing is exported from the unit tests"))]

mod hook;
mod pool;
mod real;
mod size;

/// Called by the loader before the program's `main`, and before it has threads.
extern "C" fn start() {
    real::prepare();
    pool::start();
}

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

//! `libcrosslane_malloc.so`: makes large allocations of an unmodified program buffers, which the programs at the far ends
//! of its streams can map: bytes sent from there are copied once.
//!
//! It is a library of its own, so that other programs keep their `malloc`. It has no knowledge of streams: buffers come
//! from `libcrosslane_sockets.so` ([`pool`]), all other memory from the allocator that the program would have without
//! this library ([`real`]). [`size`] reads from which size on an allocation is large.
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

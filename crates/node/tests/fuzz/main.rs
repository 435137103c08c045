//! Fuzz targets against whole daemons, which run as threads of the test so that what they do is counted: whatever
//! programs, neighbours and readers of the metrics send, honest users of the same daemons notice nothing.

mod fds;
mod metrics;
mod neighbour;
mod offload;
mod onesided;
mod requests;
#[path = "../support/mod.rs"]
mod support;
mod tap;
#[allow(dead_code, reason = "`fuzz_ip` uses the rest")]
mod world;

//! Native streams and one-sided access between real daemons: on one host, over one cable and over two.

#[path = "../support/mod.rs"]
mod support;

mod asking;
mod daemon;
mod death;
mod frozen;
mod hostile;
mod operations;
mod rights;
mod streams;
mod zcopy;

use crosslane::fabric::Fabric;
use crosslane::memory::Memory;
use crosslane::peer::Peer;
use std::net::SocketAddr;
use support::{Lab, port};

/// Three hosts in a chain.
fn chain() -> Lab {
    let mut lab = Lab::new();
    lab.configure(1, 1, &[port("c12", true)], "");
    lab.configure(2, 2, &[port("c12", false), port("c23", true)], "");
    lab.configure(3, 3, &[port("c23", false)], "");
    (1..=3).for_each(|number| lab.start(number));
    lab.wait_hosts(1, &[2, 3]);
    lab.wait_hosts(3, &[1, 2]);
    lab
}

fn fabric(lab: &Lab, host: usize) -> Fabric {
    Fabric::open_at(&lab.control(host)).unwrap()
}

fn address(host: usize) -> SocketAddr {
    format!("127.86.0.{host}:0").parse().unwrap()
}

/// Memory that host `host` serves.
fn serve(lab: &Lab, host: usize) -> Memory {
    Memory::serve(fabric(lab, host), address(host)).unwrap()
}

/// A requester on host `host`.
fn peer(lab: &Lab, host: usize, memory: &Memory) -> Peer {
    Peer::connect(fabric(lab, host), memory.address()).unwrap()
}

//! A program that gets a circuit in order and then writes rubbish into its slice: for tests.
//!
//! `crosslane-scribbler ADDRESS PORT KIND SEED`, KIND one of `header`, `kind`, `order`, `credit`, `noise`. Prints
//! `scribbled` and stays until it is killed.

use anyhow::{Context, Result, bail, ensure};
use crosslane_client::session::{Session, socket_path};
use crosslane_client::{Grant, SessionError};
use crosslane_e2e::payload;
use crosslane_shm::arena::Arena;
use crosslane_shm::{Load, Store};
use crosslane_wire::local::{Reply, Request};
use crosslane_wire::record::{Header, Kind, MAX_PAYLOAD, mark};
use crosslane_wire::slice::{CREDIT, LINE, PAGE, STATE, STATE_ATTACHED, WANT_DATA, WANT_ROOM};
use crosslane_wire::{PROTOCOL_VERSION, WaiterId};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Longest life if nobody kills it.
const LIFE: Duration = Duration::from_secs(60);
const HELLO: Header = Header { len: 0, kind: Kind::Hello, flags: 0, cpu: 0 };

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, port, kind, seed] = words.as_slice() else { bail!("ADDRESS PORT KIND SEED") };
    let remote = SocketAddr::new(address.parse::<IpAddr>()?, port.parse()?);
    let (session, arena) = greet()?;
    let (grant, socket) = announce(&session, &arena, remote)?;
    attach(&grant);
    // The far side looks at credits only when its ring is full, so these must be there before it begins to send.
    let early = kind == "credit";
    if early {
        scribble(&grant, kind, seed.parse()?)?;
    }
    connect(&socket, &remote)?;
    if !early {
        scribble(&grant, kind, seed.parse()?)?;
        wake(&session, &grant)?;
    }
    writeln!(std::io::stdout(), "scribbled")?;
    std::thread::sleep(LIFE);
    drop((session, socket));
    Ok(())
}

fn greet() -> Result<(Session, Arena)> {
    let session = Session::connect(&socket_path())?;
    let (arena, descriptor) = Arena::create()?;
    let hello = Request::Hello { version: PROTOCOL_VERSION, program: "scribbler".to_owned() };
    match session.request(&hello, &[descriptor.as_fd()])?.0 {
        Reply::Welcome { .. } => Ok((session, arena)),
        other => bail!("instead of a welcome: {other:?}"),
    }
}

fn announce(session: &Session, arena: &Arena, remote: SocketAddr) -> Result<(Grant, OwnedFd)> {
    ensure!(remote.is_ipv4(), "IPv4 only");
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&socket, &SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))?;
    let slot = arena.allot().context("a slot")?;
    let granted: Result<_, SessionError> =
        session.circuit(&Request::Connect { remote, slot }, socket.as_fd());
    let grant = match granted? {
        Ok(grant) => grant,
        Err(why) => bail!("no circuit: {why:?}"),
    };
    Ok((grant, socket))
}

/// The greeting, which must be there before the SYN: who accepts takes an end that is not attached for one that went
/// back to TCP.
fn attach(grant: &Grant) {
    grant.slices.outbound.store_u32(STATE, STATE_ATTACHED);
    put(grant, 0, HELLO.to_word());
    grant.slices.outbound.fence();
}

/// What no proper program writes.
fn scribble(grant: &Grant, kind: &str, seed: u64) -> Result<()> {
    let slice = &grant.slices.outbound;
    let long = Header { len: u32::try_from(MAX_PAYLOAD)? + 1, kind: Kind::Data, flags: 0, cpu: 0 };
    match kind {
        "header" => put(grant, LINE, long.to_word()),
        "kind" => put(grant, LINE, 10 | 77 << 32),
        "order" => put(grant, LINE, HELLO.to_word()),
        "credit" => {
            let data = Header { len: 5, kind: Kind::Data, flags: 0, cpu: 0 };
            slice.write(ring(LINE)? + 16, b"12345");
            slice.store_u64(CREDIT, u64::MAX);
            slice.store_u64(WANT_DATA, u64::MAX);
            slice.store_u64(WANT_ROOM, u64::MAX);
            put(grant, LINE, data.to_word());
        }
        "noise" => {
            slice.write(0, &payload::bytes(seed, slice.len()));
            put(grant, LINE, seed | 1 << 31);
            slice.store_u32(STATE, u32::MAX);
        }
        other => bail!("no kind of rubbish: {other}"),
    }
    slice.fence();
    Ok(())
}

/// Has the far side rung if it sleeps already, which on a busy machine it does: who is not rung does not look.
fn wake(session: &Session, grant: &Grant) -> Result<()> {
    for word in [WANT_DATA, WANT_ROOM] {
        // The waiter is the lower half; the upper one counts requests.
        let wanted = grant.slices.inbound.load_u64(word) & u64::from(u32::MAX);
        let waiter = WaiterId(u32::try_from(wanted)?);
        if waiter.0 != 0 {
            session.tell(&Request::Ring { circuit: grant.circuit, waiter })?;
        }
    }
    Ok(())
}

/// A record of this word at `position` of the ring, with its proper mark.
fn put(grant: &Grant, position: u64, word: u64) {
    let Ok(at) = ring(position) else { return };
    grant.slices.outbound.store_u64(at + 8, word);
    grant.slices.outbound.store_fence();
    grant.slices.outbound.store_u64(at, mark(grant.slices.tx_key, position));
}

fn ring(position: u64) -> Result<usize> {
    Ok(usize::try_from(PAGE + position)?)
}

//! Ports of connections that are over: they serve other destinations, as the kernel's own do.

use anyhow::{Result, ensure};
use crosslane_e2e::program::run;
use crosslane_e2e::python::Script;
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{WORK, package};
use std::path::Path;

/// Ports that the client's host may use: fewer than it makes connections, more than it makes to one destination.
const RANGE: &str = "40000 40255";
/// Destinations, and connections to each: a minute must not be enough for the first port to be free again.
const DESTINATIONS: u16 = 8;
const ROUNDS: u64 = 100;
/// More than what counts as short, by which connections are left to TCP.
const BYTES: u64 = 20_000;

fn set_range(rig: &Rig, host: &str) -> Result<()> {
    let line = format!("echo {RANGE} > /proc/sys/net/ipv4/ip_local_port_range");
    run(rig.plain(host, "sh")?.args(["-c", &line]), WORK)?;
    Ok(())
}

fn connect(rig: &Rig, python: &Path, address: &str, port: u16, accelerated: bool, rounds: u64) -> Result<()> {
    let words = ["client", address, &port.to_string(), &DESTINATIONS.to_string(), &rounds.to_string()];
    let mut client = if accelerated {
        Script::Short.command(rig, "h1", python)?
    } else {
        Script::Short.plain(rig, "h1", python)?
    };
    run(client.args(words).arg(BYTES.to_string()), WORK)?;
    Ok(())
}

/// More connections than there are ports, none of which is free again before the test is over.
fn serves_other_destinations(address: &str) -> Result<()> {
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let Some(python) = package::python() else { return Ok(()) };
    set_range(&rig, "h1")?;
    let port = rig.port();
    let words = ["server", "::", &port.to_string(), &DESTINATIONS.to_string()];
    let server = Script::Short.server(&rig, "h2", &python, &words, port)?;
    let measure = rig.measure(&["h1"])?;
    connect(&rig, &python, address, port, true, ROUNDS)?;
    let all = ROUNDS * u64::from(DESTINATIONS);
    // The random choice may miss the few ports that are left for a destination; those connections are plain.
    let streams = all * 9 / 10;
    measure.carried(2 * BYTES * streams, streams)?;
    // Who knows nothing of this has ports left.
    connect(&rig, &python, address, port, false, 10)?;
    // And the next program has, too.
    connect(&rig, &python, address, port, true, 10)?;
    drop(server);
    ensure!(all > 256, "more than there are ports");
    measure.gave_back()
}

#[test]
fn port_in_time_wait_serves_another_destination() -> Result<()> {
    serves_other_destinations("10.86.0.2")
}

#[test]
fn port_in_time_wait_serves_another_destination_v6() -> Result<()> {
    serves_other_destinations("fd86::2")
}

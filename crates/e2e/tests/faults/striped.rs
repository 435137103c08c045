//! Striped streams: one stream over two cables at once, of which one is lost and comes back.

use anyhow::{Result, ensure};
use crosslane_e2e::program::Program;
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{PATIENCE, WORK};
use crosslane_lab::{Options, Topology};
use crosslane_status::Status;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Bytes that are sent and compared; at least a second on software ports.
const LEN: u64 = 2 << 30;

/// Bytes that each port of the host has sent.
fn sent(status: &Status) -> Vec<u64> {
    status.ports.iter().map(|port| port.tx_bytes).collect()
}

/// Waits until both ports have sent another ten megabytes.
fn both_carry(rig: &Rig) -> Result<()> {
    let before = sent(&rig.lab.status("h1")?);
    rig.lab.wait_until("h1", PATIENCE, |status| {
        sent(status).iter().zip(&before).filter(|(now, before)| **now > **before + 10_000_000).count() == 2
    })?;
    Ok(())
}

/// Sends through `cuts` of the cable between h1 and h2; the far program compares each byte.
fn flow(options: Options) -> Result<()> {
    let Some(mut rig) = Rig::up(options)? else { return Ok(()) };
    let path = PathBuf::from(env!("CARGO_BIN_EXE_crosslane-flow"));
    let port = rig.port();
    let mut serving = rig.command("h2", &path)?;
    let mut server = Program::start(serving.args(["server", &port.to_string()]))?;
    server.listens(port)?;
    let mut sending = rig.command("h1", &path)?;
    let words = [rig.address("h2")?.to_string(), port.to_string(), "7".to_owned(), LEN.to_string()];
    let mut client = Program::start(sending.arg("client").args(words))?;
    both_carry(&rig)?;
    let status = rig.lab.status("h1")?;
    ensure!(status.open_circuits().filter(|it| it.twin_of.is_some()).count() == 1, "it is not striped");
    let until = Instant::now() + Duration::from_millis(1500);
    while Instant::now() < until && !client.is_over() {
        ensure!(rig.lab.cut("h1", "h2")?.changed);
        std::thread::sleep(Duration::from_millis(100));
        ensure!(rig.lab.mend("h1", "h2")?.changed);
        rig.lab.wait_links(PATIENCE)?;
        if !client.is_over() {
            // The second circuit goes back to a cable of its own.
            both_carry(&rig)?;
        }
    }
    let said = client.finish(WORK)?.text();
    ensure!(said.trim() == "whole", "{said}");
    let status = rig.lab.status("h1")?;
    ensure!(status.counters.streams_aborted == 0 && status.counters.moves > 0, "{}", rig.story("h1"));
    drop(server);
    Ok(())
}

#[test]
fn striped_stream_goes_on_by_one_cable_and_by_two_again() -> Result<()> {
    flow(Options { hosts: 2, topology: Topology::Pair, beside: 2, stripe: true, ..Options::scratch("e2e") })
}

#[test]
fn striped_stream_uses_both_ways_round_a_ring() -> Result<()> {
    flow(Options { all_ways: true, stripe: true, ..Options::scratch("e2e") })
}

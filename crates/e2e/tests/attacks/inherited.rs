//! A program of another user that inherited one stream gets that one.

use anyhow::{Context, Result, ensure};
use crosslane_e2e::honest::{Honest, public_copy};
use crosslane_e2e::program::Program;
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{WORK, attacks};
use std::time::Duration;

/// Whom the parent runs as; honest users are others, and theirs come and go.
const ROOT: u32 = 0;

fn inherits(way: &str) -> Result<()> {
    let Some(mut rig) = Rig::ring()? else { return Ok(()) };
    let (port, program) = (rig.port().to_string(), public_copy(&rig, "crosslane-honest")?);
    let mut server = Program::start(rig.command("h2", program)?.args(["server", &port]))?;
    server.listens(port.parse()?)?;
    let honest = Honest::start(&rig, "h1", "h2")?;
    let attacker = public_copy(&rig, "crosslane-attacker")?;
    let address = rig.address("h2")?.to_string();
    let mut parent = attacks::command_as(&rig, "root", "h1", &attacker)?;
    let words = ["inherited-parent", way, &address, &port, &attacker, "6"];
    let mut parent = Program::start(parent.args(words))?;
    parent.says("attacking")?;
    ensure!(rig.holds("h1", ROOT)?.circuits.used >= 2, "the parent has no streams");
    for _ in 0..2 {
        std::thread::sleep(Duration::from_secs(1));
        rig.lab.cut("h1", "h2")?;
        std::thread::sleep(Duration::from_secs(1));
        rig.lab.mend("h1", "h2")?;
    }
    let printed = parent.finish(WORK)?.text();
    let got = printed.lines().find(|line| line.starts_with("got ")).context("the heir came to its end")?;
    println!("{got}");
    ensure!(got.starts_with("got 0 connections 0 answers 0 memory in "), "{got}");
    ensure!(!got.contains(" in 0 rounds"), "it was not tried: {got}");
    ensure!(printed.contains("whole end"), "the parent's streams: {printed}");
    ensure!(rig.account("h1")?.violations == 0, "somebody else said that a peer broke the protocol");
    ensure!(!server.is_over(), "the server ended: {}", server.tail());
    honest.finish()
}

#[test]
fn heir_by_spawn_gets_only_the_stream_that_it_inherited() -> Result<()> {
    inherits("spawn")
}

#[test]
fn heir_by_fork_and_exec_gets_only_the_stream_that_it_inherited() -> Result<()> {
    inherits("fork")
}

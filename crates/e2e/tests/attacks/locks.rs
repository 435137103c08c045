//! Who shares the locks of an end keeps its other holders for no longer than they say, and no other stream at all.

use anyhow::{Context, Result, ensure};
use crosslane_e2e::honest::{Honest, public_copy};
use crosslane_e2e::program::Program;
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{WORK, attacks};

/// Whom the parent runs as; honest users are others.
const ROOT: u32 = 0;

#[test]
fn lock_holder_stopped_killed_or_lying_delays_others_for_their_own_time() -> Result<()> {
    let Some(rig) = Rig::ring()? else { return Ok(()) };
    let (port, program) = (rig.port().to_string(), public_copy(&rig, "crosslane-honest")?);
    let mut server = Program::start(rig.command("h2", program)?.args(["server", &port]))?;
    server.listens(port.parse()?)?;
    let mut honest = Honest::start(&rig, "h1", "h2")?;
    let attacker = public_copy(&rig, "crosslane-attacker")?;
    let address = rig.address("h2")?.to_string();
    let mut parent = attacks::command_as(&rig, "root", "h1", &attacker)?;
    let mut parent = Program::start(parent.arg("locks-parent").args([&address, &port]).arg(&attacker))?;
    parent.says("attacking")?;
    ensure!(rig.holds("h1", ROOT)?.circuits.used >= 2, "the parent has no streams");
    let printed = parent.finish(WORK)?.text();
    let refused =
        printed.lines().find_map(|line| line.strip_prefix("refused ")).context("no call was refused")?;
    println!("refused {refused}");
    ensure!(!refused.starts_with("0 "), "the locks were never held: {printed}");
    ensure!(printed.contains("all ways tried end"), "the heir: {printed}");
    ensure!(printed.contains("whole end"), "the parent's streams: {printed}");
    ensure!(rig.account("h1")?.violations == 0, "somebody else said that a peer broke the protocol");
    ensure!(!server.is_over(), "the server ended: {}", server.tail());
    honest.check()?;
    honest.finish()
}

//! A program writes rubbish into its segments: its own stream dies, with a logged reason, and nothing else.

use anyhow::{Result, ensure};
use crosslane_e2e::program::Program;
use crosslane_e2e::python::Script;
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{PATIENCE, echo, own_program, package, wait_for};

/// `fatal`: the receiver can see that the protocol was broken.
fn scribble(kind: &str, seed: u64, fatal: bool) -> Result<()> {
    println!("kind {kind}, seed {seed}");
    let Some(python) = package::python() else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let to = rig.address("h2")?.to_string();
    let port = rig.port();
    let before = rig.account("h2")?;
    let mut server = echo::server(&rig, Script::Endless, "h2", &python, port)?;
    let mut command = Script::Endless.command(&rig, "h1", &python)?;
    let mut good = Program::start(command.args(["client", &to, &port.to_string()]))?;
    good.says("flowing")?;
    let mut command = rig.plain("h1", own_program("crosslane-scribbler")?)?;
    let mut bad = Program::start(command.args([&to, &port.to_string(), kind, &seed.to_string()]))?;
    bad.says("scribbled")?;
    if fatal {
        server.says("ended ECONNRESET")?;
        wait_for("the daemon tells why", PATIENCE, || {
            let log = rig.log("h2").unwrap_or_default();
            if log.contains("stream broken off") { Ok(()) } else { Err(log) }
        })?;
        ensure!(rig.account("h2")?.violations == before.violations + 1, "it is counted once");
    }
    let flowed = rig.account("h1")?;
    wait_for("the other stream goes on", PATIENCE, || {
        let now = rig.account("h1").map_err(|error| error.to_string())?;
        if now.received > flowed.received + 1_000_000 { Ok(()) } else { Err(format!("{now:?}")) }
    })?;
    ensure!(!good.is_over() && !server.is_over(), "another program ended: {} {}", good.tail(), server.tail());
    bad.kill()?;
    drop((good, server));
    rig.holds_as("h2", &before)
}

#[test]
fn record_that_is_too_long() -> Result<()> {
    scribble("header", 1, true)
}

#[test]
fn record_of_no_kind() -> Result<()> {
    scribble("kind", 2, true)
}

#[test]
fn record_out_of_order() -> Result<()> {
    scribble("order", 3, true)
}

#[test]
fn credits_for_what_was_never_sent() -> Result<()> {
    scribble("credit", 4, true)
}

#[test]
fn noise_all_over() -> Result<()> {
    for seed in 5..8 {
        scribble("noise", seed, false)?;
    }
    Ok(())
}

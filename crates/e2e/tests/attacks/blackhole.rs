//! Listeners that have ended swallow nothing: plain servers at their ports get their connections.

use anyhow::{Result, ensure};
use crosslane_e2e::honest::{self, Honest, WINDOW, public_copy};
use crosslane_e2e::program::Program;
use crosslane_e2e::rig::{Rig, privileges};
use crosslane_e2e::{PATIENCE, attacks, wait_for};
use rustix::process::Signal;

/// Listeners of the attack that ended, each in a way of its own.
const WAYS: u16 = 6;
const FIRST: u16 = 19_000;

/// A server without the socket library.
fn plain_server(rig: &Rig, port: u16) -> Result<Program> {
    let program = public_copy(rig, "crosslane-honest")?;
    let mut command = rig.plain("h2", "setpriv")?;
    command.args(privileges(honest::USER)?).arg(program).args(["server", &port.to_string()]);
    let mut server = Program::start(&mut command)?;
    server.listens(port)?;
    Ok(server)
}

/// An accelerated client whose stream, echo and set-up all get on.
fn is_served(rig: &Rig, port: u16) -> Result<()> {
    let program = public_copy(rig, "crosslane-honest")?;
    let (address, port) = (rig.address("h2")?.to_string(), port.to_string());
    let mut command = rig.command_as(honest::USER, "h1", program)?;
    let mut client = Program::start(command.args(["client", &address, &port]))?;
    wait_for("its connections are served", PATIENCE, || {
        let said = String::from_utf8_lossy(&client.output()).into_owned();
        let setups = said.matches("\"setup\":[").count() - said.matches("\"setup\":[]").count();
        let is_over = client.is_over();
        if setups > 2 && !is_over { Ok(()) } else { Err(client.tail()) }
    })?;
    client.signal(Signal::TERM)?;
    let printed = client.finish(PATIENCE)?;
    ensure!(printed.text().ends_with("whole\n"), "port {port}: {}", printed.text());
    Ok(())
}

#[test]
fn listener_ended_leaves_its_port_to_plain_servers() -> Result<()> {
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let mut honest = Honest::start(&rig, "h1", "h2")?;
    let calm = honest.watch(WINDOW)?;
    let attack = attacks::start(&rig, "h2", "blackhole", &[&FIRST.to_string()])?;
    let said = String::from_utf8_lossy(&attack.output()).into_owned();
    ensure!(said.contains(&format!("{WAYS} listeners ended")), "{said}");
    for port in FIRST..FIRST + WAYS {
        let _server = plain_server(&rig, port)?;
        is_served(&rig, port)?;
        honest.check()?;
    }
    honest.holds_out(&calm)?;
    drop(attack);
    honest.finish()
}

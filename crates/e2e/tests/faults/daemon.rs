//! A daemon dies or does not run while programs sleep, connect or accept.

use anyhow::{Context, Result, ensure};
use crosslane_e2e::program::Program;
use crosslane_e2e::python::Script;
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{WORK, echo, package};
use rustix::process::Signal;

/// How long a `connect` that must not wait may take, milliseconds; the kernel's takes less than one, a busy machine
/// some tens.
const PROMPT: u64 = 200;

fn said(program: &Program) -> String {
    String::from_utf8_lossy(&program.output()).into_owned()
}

fn stop(rig: &Rig, host: &str) -> Result<crosslane_lab::Identity> {
    let daemon = rig.lab.daemon(host)?.context("the daemon runs")?;
    ensure!(daemon.signal(Signal::STOP), "it cannot be stopped");
    Ok(daemon)
}

/// A far daemon that does not run holds up no `connect` that must not wait, and the connection is made when it runs.
#[test]
fn a_connect_that_must_not_wait_does_not() -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let measure = rig.measure(&["h1", "h2"])?;
    let port = rig.port();
    let server = echo::server(&rig, Script::Echo, "h2", &python, port)?;
    let to = rig.address("h2")?.to_string();
    let daemon = stop(&rig, "h2")?;
    let mut command = Script::Hurry.command(&rig, "h1", &python)?;
    let mut client = Program::start(command.args([&to, &port.to_string(), "5"]))?;
    let pending = client.says("pending after");
    ensure!(daemon.signal(Signal::CONT), "it cannot go on");
    pending?;
    let text = said(&client);
    let longest = text.split("after ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let longest: u64 = longest.context("a time")?.parse()?;
    ensure!(longest < PROMPT, "a connect took {longest} ms");
    let printed = client.finish(WORK)?;
    ensure!(printed.text().contains("done"), "{}", printed.text());
    // With a daemon that answers there are streams again.
    echo::client(&rig, Script::Echo, "h1", &python, (&to, port), 100_000, 2)?;
    measure.carried(200_000, 2)?;
    drop(server);
    measure.gave_back()
}

//! Something is killed in the middle of traffic.

use anyhow::{Context, Result, ensure};
use crosslane_e2e::program::Program;
use crosslane_e2e::python::Script;
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{PATIENCE, WORK, echo, package, wait_for};
use rustix::process::Signal;
use std::path::Path;

/// Traffic without end from one host to another, for as long as it is not dropped.
struct Flow {
    server: Program,
    client: Program,
}

impl Flow {
    fn start(rig: &Rig, python: &Path, from: &str, to: &str) -> Result<Self> {
        let port = rig.port();
        let server = echo::server(rig, Script::Endless, to, python, port)?;
        let client = client(rig, python, from, to, port)?;
        let mut flow = Self { server, client };
        flow.server.says("flowing")?;
        Ok(flow)
    }

    /// Checks that bytes still flow.
    fn goes_on(&mut self, rig: &Rig, host: &str) -> Result<()> {
        ensure!(!said_end(&self.client) && !said_end(&self.server), "it ended: {}", self.client.tail());
        let before = rig.account(host)?;
        wait_for("other traffic goes on", PATIENCE, || {
            let now = rig.account(host).map_err(|error| error.to_string())?;
            if now.received > before.received + 1_000_000 { Ok(()) } else { Err(format!("{now:?}")) }
        })
    }
}

fn client(rig: &Rig, python: &Path, from: &str, to: &str, port: u16) -> Result<Program> {
    let mut command = Script::Endless.command(rig, from, python)?;
    let address = rig.address(to)?.to_string();
    let mut client = Program::start(command.args(["client", &address, &port.to_string()]))?;
    let told = || [from, to].map(|host| rig.story(host)).concat();
    client.says("flowing").with_context(told)?;
    Ok(client)
}

fn said_end(program: &Program) -> bool {
    String::from_utf8_lossy(&program.output()).contains("ended")
}

/// The far end of something that died learns of it as TCP would tell: by end of file or a reset.
fn learns(program: &mut Program) -> Result<()> {
    program.says("ended ")?;
    let text = String::from_utf8_lossy(&program.output()).into_owned();
    let word = text.split("ended ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap_or("");
    ensure!(["eof", "ECONNRESET", "EPIPE"].contains(&word), "it ended with {word}");
    Ok(())
}

#[test]
fn client_is_killed() -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let measure = rig.measure(&["h1", "h2"])?;
    let port = rig.port();
    let mut server = echo::server(&rig, Script::Endless, "h2", &python, port)?;
    let with_server = rig.account("h2")?;
    for _ in 0..3 {
        let mut killed = client(&rig, &python, "h1", "h2", port)?;
        let mut other = client(&rig, &python, "h1", "h2", port)?;
        killed.kill()?;
        learns(&mut server)?;
        let before = rig.account("h1")?;
        wait_for("the other client goes on", PATIENCE, || {
            let now = rig.account("h1").map_err(|error| error.to_string())?;
            if now.received > before.received + 1_000_000 { Ok(()) } else { Err(format!("{now:?}")) }
        })?;
        ensure!(!other.is_over() && !said_end(&other), "the other client ended: {}", other.tail());
    }
    wait_for("the server's ends are given back", PATIENCE, || {
        let now = rig.account("h2").map_err(|error| error.to_string())?;
        let held = |it: crosslane_e2e::rig::Account| (it.circuits, it.window_used);
        if held(now) == held(with_server) { Ok(()) } else { Err(format!("{now:?}")) }
    })?;
    drop(server);
    measure.gave_back()
}

#[test]
fn server_is_killed() -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let measure = rig.measure(&["h1", "h2"])?;
    let mut other = Flow::start(&rig, &python, "h1", "h2")?;
    let mut flow = Flow::start(&rig, &python, "h1", "h2")?;
    flow.server.kill()?;
    learns(&mut flow.client)?;
    other.goes_on(&rig, "h1")?;
    drop((flow, other));
    measure.gave_back()
}

#[test]
fn end_inside_one_host_is_killed() -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let measure = rig.measure(&["h1"])?;
    let mut flow = Flow::start(&rig, &python, "h1", "h1")?;
    flow.client.kill()?;
    learns(&mut flow.server)?;
    drop(flow);
    let mut flow = Flow::start(&rig, &python, "h1", "h1")?;
    flow.server.kill()?;
    learns(&mut flow.client)?;
    drop(flow);
    measure.gave_back()
}

fn daemon_dies(signal: Signal) -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let Some(mut rig) = Rig::ring()? else { return Ok(()) };
    let before = rig.account("h1")?;
    let mut other = Flow::start(&rig, &python, "h1", "h3")?;
    let with_other = rig.account("h1")?;
    let mut flow = Flow::start(&rig, &python, "h1", "h2")?;
    rig.lab.kill_daemon("h2", signal)?;
    learns(&mut flow.client).with_context(|| rig.story("h1"))?;
    other.goes_on(&rig, "h1")?;
    wait_for("the segments of the dead cable are given back", PATIENCE, || {
        let now = rig.account("h1").map_err(|error| error.to_string())?;
        if now.circuits == with_other.circuits && now.window_used <= with_other.window_used {
            Ok(())
        } else {
            Err(format!("{now:?}, was {with_other:?}"))
        }
    })?;
    rig.lab.start_daemon("h2")?;
    rig.lab.wait_links(PATIENCE)?;
    // At the latest now: the way for the kernel's FIN is there again.
    learns(&mut flow.server).with_context(|| rig.story("h2"))?;
    other.goes_on(&rig, "h1")?;
    // New programs are accelerated again, and so is the server that lived through it, soon.
    drop(flow);
    let measure = rig.measure(&["h2", "h3"])?;
    let port = rig.port();
    let server = echo::server(&rig, Script::Echo, "h2", &python, port)?;
    let to = rig.address("h2")?.to_string();
    echo::client(&rig, Script::Echo, "h3", &python, (&to, port), 1_000_000, 2)?;
    measure.carried(2_000_000, 2)?;
    drop((server, other));
    rig.holds_as("h1", &before)
}

#[test]
fn daemon_is_killed_and_comes_back() -> Result<()> {
    daemon_dies(Signal::KILL)
}

#[test]
fn daemon_stops_in_order_and_comes_back() -> Result<()> {
    daemon_dies(Signal::TERM)
}

/// A server that listened before its daemon died is known to the new one, without doing anything for it.
#[test]
fn server_outlives_its_daemon() -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let Some(mut rig) = Rig::pair()? else { return Ok(()) };
    let port = rig.port();
    let server = echo::server(&rig, Script::Echo, "h2", &python, port)?;
    rig.lab.kill_daemon("h2", Signal::KILL)?;
    rig.lab.start_daemon("h2")?;
    rig.lab.wait_links(PATIENCE)?;
    let to = rig.address("h2")?.to_string();
    let before = rig.account("h2")?;
    wait_for("connections are accelerated again", PATIENCE, || {
        echo::client(&rig, Script::Echo, "h1", &python, (&to, port), 100_000, 1)
            .map_err(|error| error.to_string())?;
        let now = rig.account("h2").map_err(|error| error.to_string())?;
        if now.opened > before.opened { Ok(()) } else { Err(format!("{now:?}")) }
    })?;
    drop(server);
    Ok(())
}

/// A daemon that does not run for a while (a busy machine, a debugger) delays; no byte is lost or goes a way that the
/// far side does not know of.
#[test]
fn daemon_hangs_for_a_while() -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let to = rig.address("h2")?.to_string();
    let port = rig.port();
    let measure = rig.measure(&["h1", "h2"])?;
    let server = echo::server(&rig, Script::Echo, "h2", &python, port)?;
    let daemon = rig.lab.daemon("h2")?.context("the daemon runs")?;
    ensure!(daemon.signal(Signal::STOP), "it cannot be stopped");
    let mut command = Script::Echo.command(&rig, "h1", &python)?;
    let client = Program::start(command.args(["client", &to, &port.to_string(), "300000", "2"]))?;
    let waited = wait_for("the client's daemon gives up", PATIENCE, || {
        let status = rig.lab.status("h1").map_err(|error| error.to_string())?;
        let late = status.counters.plain.get("Timeout") == Some(&2);
        if late { Ok(()) } else { Err(status.to_string()) }
    });
    ensure!(daemon.signal(Signal::CONT), "it cannot go on");
    waited?;
    client.finish(WORK)?;
    drop(server);
    measure.gave_back()
}

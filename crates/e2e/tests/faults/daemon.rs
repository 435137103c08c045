//! A daemon dies or does not run while programs sleep, connect or accept.

use anyhow::{Context, Result, ensure};
use crosslane_e2e::program::{Program, queued};
use crosslane_e2e::python::Script;
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{PATIENCE, WORK, echo, package, wait_for};
use rustix::process::Signal;
use std::path::Path;

/// How long a `connect` that must not wait may take, milliseconds; the kernel's takes less than one, a busy machine
/// some tens.
const PROMPT: u64 = 1000;

fn said(program: &Program) -> String {
    String::from_utf8_lossy(&program.output()).into_owned()
}

fn ask(rig: &Rig, script: Script, python: &Path, port: u16) -> Result<Program> {
    let address = rig.address("h2")?.to_string();
    Program::start(script.command(rig, "h1", python)?.args(["client", &address, &port.to_string()]))
}

fn stop(rig: &Rig, host: &str) -> Result<crosslane_lab::Identity> {
    let daemon = rig.lab.daemon(host)?.context("the daemon runs")?;
    ensure!(daemon.signal(Signal::STOP), "it cannot be stopped");
    Ok(daemon)
}

/// Whoever sleeps when the daemon of its own host is killed learns at once, whatever it sleeps in: the kernel's FIN has no
/// way any more.
#[test]
fn killed_daemon_wakes_sleepers() -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let Some(mut rig) = Rig::pair()? else { return Ok(()) };
    let port = rig.port();
    let words = ["server", "::", &port.to_string()];
    let measure = rig.measure(&["h1", "h2"])?;
    let mut server = Script::Sleepers.server(&rig, "h2", &python, &words, port)?;
    let mut client = ask(&rig, Script::Sleepers, &python, port)?;
    client.says("connected")?;
    server.says("asleep")?;
    measure.carried(10, 5)?;
    rig.lab.kill_daemon("h2", Signal::KILL)?;
    wait_for("all learn", PATIENCE, || {
        let text = said(&server);
        let ended = ["eof", "ECONNRESET"].map(|how| text.matches(&format!("ended {how}\n")).count());
        if ended.iter().sum::<usize>() == 5 { Ok(()) } else { Err(text) }
    })?;
    ensure!(server.wait(WORK)?.success(), "{}", server.tail());
    ensure!(client.wait(WORK)?.success(), "{}", client.tail());
    Ok(())
}

/// A far daemon that does not run holds up no `connect` that must not wait, and the connection is made when it runs.
#[test]
fn connect_nonblocking_does_not_wait() -> Result<()> {
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

/// A server in h2 that has not accepted yet, and a client in h1 that is connected to it and has sent something.
fn announced(rig: &Rig, python: &Path) -> Result<(Program, Program)> {
    let port = rig.port();
    let server = Script::Late.server(rig, "h2", python, &["server", "::", &port.to_string()], port)?;
    let mut client = ask(rig, Script::Late, python, port)?;
    client.says("sent")?;
    // The last segment of the kernel's handshake comes by the daemons, and may still be under way.
    wait_for("the connection is in the server's queue", PATIENCE, || {
        (queued(server.pid(), port) == Some(1)).then_some(()).ok_or_else(|| server.tail())
    })?;
    Ok((server, client))
}

/// An acceptor that cannot ask its daemon whether a connection was announced: its peer does not wait for ever.
#[test]
fn accept_without_an_answer_ends_the_connection() -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let measure = rig.measure(&["h1", "h2"])?;
    let (mut server, client) = announced(&rig, &python)?;
    let daemon = stop(&rig, "h2")?;
    server.signal(Signal::USR1)?;
    let accepted = server.says("accepted");
    ensure!(daemon.signal(Signal::CONT), "it cannot go on");
    accepted?;
    wait_for("the client learns", PATIENCE, || {
        let text = said(&client);
        let served = text.contains("answered") && said(&server).contains("got 5");
        let failed = text.contains("ended ECONNRESET") && said(&server).contains("failed ECONNRESET");
        if served || failed { Ok(()) } else { Err(text + &said(&server)) }
    })?;
    drop((server, client));
    measure.gave_back()
}

/// The same with a daemon that was killed and is another one by the time of the `accept`.
#[test]
fn accept_after_the_daemon_was_killed() -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let Some(mut rig) = Rig::pair()? else { return Ok(()) };
    let (mut server, mut client) = announced(&rig, &python)?;
    rig.lab.kill_daemon("h2", Signal::KILL)?;
    rig.lab.start_daemon("h2")?;
    rig.lab.wait_links(PATIENCE)?;
    server.signal(Signal::USR1)?;
    server.says("accepted")?;
    client.says("ended ECONNRESET")?;
    wait_for("the server learns", PATIENCE, || {
        let text = said(&server);
        if text.contains("failed") || text.contains("got 0") { Ok(()) } else { Err(text) }
    })?;
    drop((server, client));
    Ok(())
}

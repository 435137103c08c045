//! Hosts between the ends of streams die, freeze, and come back.

use super::{BOTH, Between, CALM, all_over, count, ring_of};
use anyhow::{Context, Result, ensure};
use crosslane_e2e::program::Program;
use crosslane_e2e::python::Script;
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{PATIENCE, WORK, iperf3, package};
use rustix::process::Signal;
use std::time::Duration;

/// The host through which the streams lead.
const BETWEEN: &str = "h2";

/// Starts streams from h1 to h3 while there is one way, and then opens the other one: streams stay where they are.
fn one_way<T>(rig: &mut Rig, start: impl FnOnce(&Rig) -> Result<T>) -> Result<T> {
    rig.lab.cut("h4", "h1")?;
    let started = start(rig)?;
    rig.lab.mend("h4", "h1")?;
    ensure!(count(rig, BETWEEN, |it| it.transits)? > 0, "no stream leads through {BETWEEN}");
    Ok(started)
}

/// The host between dies, and comes back.
#[test]
fn host_between_dies_and_no_stream_through_it_does() -> Result<()> {
    BOTH.into_iter().try_for_each(with_dead_host)
}

fn with_dead_host(kind: Between) -> Result<()> {
    let Some(path) = package::need("iperf3") else { return Ok(()) };
    let Some(mut rig) = ring_of(kind)? else { return Ok(()) };
    let port = rig.port();
    let _server = iperf3::server(&rig, "h3", &path, port)?;
    let client = one_way(&mut rig, |rig| {
        let client = iperf3::start(rig, "h1", &path, ("h3", port), &["-P", "2", "-t", "4"])?;
        all_over(rig, "h1", 2, 3).map(|()| client)
    })?;
    std::thread::sleep(CALM);
    rig.lab.kill_host(BETWEEN)?;
    std::thread::sleep(CALM);
    rig.lab.start_daemon(BETWEEN)?;
    rig.lab.wait_host(BETWEEN, PATIENCE)?;
    iperf3::report(&client.finish(WORK)?)?;
    ensure!(count(&rig, "h1", |it| it.moves)? >= 3, "nothing moved");
    Ok(())
}

/// The host between does not run for 10 s; the streams are long somewhere else when it goes on.
#[test]
fn host_between_frozen_is_bypassed() -> Result<()> {
    BOTH.into_iter().try_for_each(with_frozen_host)
}

fn with_frozen_host(kind: Between) -> Result<()> {
    let Some(path) = package::need("iperf3") else { return Ok(()) };
    let Some(mut rig) = ring_of(kind)? else { return Ok(()) };
    let port = rig.port();
    let _server = iperf3::server(&rig, "h3", &path, port)?;
    let client = one_way(&mut rig, |rig| {
        let client = iperf3::start(rig, "h1", &path, ("h3", port), &["-t", "12"])?;
        all_over(rig, "h1", 2, 2).map(|()| client)
    })?;
    let daemon = rig.lab.daemon(BETWEEN)?.context("it runs")?;
    ensure!(daemon.signal(Signal::STOP), "it cannot be stopped");
    let moved = rig.lab.wait_until("h1", PATIENCE, |status| status.counters.moves >= 2);
    let moved = moved.map_err(Into::into).and_then(|_| all_over(&rig, "h1", 2, 2));
    std::thread::sleep(Duration::from_secs(9));
    ensure!(daemon.signal(Signal::CONT), "it cannot go on");
    moved?;
    let report = iperf3::report(&client.finish(WORK)?)?;
    let intervals = report["intervals"].as_array().context("intervals")?;
    let idle = intervals.iter().filter(|it| it["sum"]["bytes"] == 0).count();
    ensure!(idle <= 4, "{idle} of {} seconds without a byte", intervals.len());
    Ok(())
}

/// A program sends and is gone; the host between that holds its bytes never passes them on.
#[test]
fn host_between_loses_nothing_sent_before_a_program_left() -> Result<()> {
    BOTH.into_iter().try_for_each(with_leaving_program)
}

fn with_leaving_program(kind: Between) -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let Some(mut rig) = ring_of(kind)? else { return Ok(()) };
    let (to, port) = (rig.address("h3")?.to_string(), rig.port().to_string());
    let server = Script::Leaving.server(&rig, "h3", &python, &["server", &to, &port], port.parse()?)?;
    let go = rig.file("go");
    let mut client = one_way(&mut rig, |rig| {
        let mut client = Script::Leaving.command(rig, "h1", &python)?;
        let mut client = Program::start(client.args(["client", &to, &port]).arg(&go))?;
        client.says("ready").map(|_| client)
    })?;
    let daemon = rig.lab.daemon(BETWEEN)?.context("it runs")?;
    ensure!(daemon.signal(Signal::STOP), "it cannot be stopped");
    std::fs::write(&go, "")?;
    let left = client.wait(WORK);
    let all = server.finish(WORK);
    ensure!(daemon.signal(Signal::CONT), "it cannot go on");
    ensure!(left?.success(), "{}", client.tail());
    ensure!(all?.text().contains("all"), "not all arrived");
    Ok(())
}

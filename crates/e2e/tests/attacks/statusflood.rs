//! Four hundred sessions that ask for texts without end, on a host through which others' packets and streams go.

use anyhow::{Result, ensure};
use crosslane_e2e::honest::{FACTOR, Honest, WINDOW};
use crosslane_e2e::program::run;
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{PATIENCE, attacks, package};
use crosslane_lab::{Options, Topology};
use std::path::Path;

/// Packets of one measurement, and the time between them, s.
const PINGS: usize = 200;
const EVERY: &str = "0.005";
/// A median below this is taken for this, us: what the kernel's scheduler alone makes of two busy processors.
const FLOOR: f64 = 300.0;
/// On a busy machine one measurement is no proof: so many are tried, and one must be good.
const TRIES: usize = 5;

/// The median round trip of packets, us. None may be lost.
fn ping(rig: &Rig, program: &Path, from: &str, to: &str) -> Result<f64> {
    let address = rig.address(to)?.to_string();
    let mut command = rig.plain(from, program)?;
    let count = PINGS.to_string();
    let printed = run(command.args(["-n", "-c", &count, "-i", EVERY, "-W", "5", &address]), PATIENCE)?.text();
    let times =
        printed.lines().filter_map(|line| line.split("time=").nth(1)?.split(' ').next()?.parse().ok());
    let mut times: Vec<f64> = times.collect();
    ensure!(times.len() == PINGS, "{} of {PINGS} packets came back", times.len());
    times.sort_by(f64::total_cmp);
    Ok(times[PINGS / 2] * 1000.0)
}

#[test]
fn status_flood_of_400_sessions_stops_no_packets_streams_or_status() -> Result<()> {
    let Some(program) = package::need("ping") else { return Ok(()) };
    let options = Options { hosts: 3, topology: Topology::Chain, ..Options::scratch("e2e") };
    let Some(rig) = Rig::up(options)? else { return Ok(()) };
    let mut honest = Honest::start(&rig, "h1", "h3")?;
    let calm = honest.watch(WINDOW)?;
    let calm_ping = ping(&rig, &program, "h1", "h3")?;
    let attack = attacks::start(&rig, "h2", "statusflood", &[])?;
    honest.holds_out(&calm)?;
    let most = calm_ping.max(FLOOR) * FACTOR as f64;
    let mut seen = Vec::new();
    while !seen.last().is_some_and(|last| *last <= most) {
        ensure!(seen.len() < TRIES, "packets took {calm_ping} us, under attack {seen:?}");
        seen.push(ping(&rig, &program, "h1", "h3")?);
    }
    println!("packets: calm {calm_ping} us, attacked {seen:?}");
    // An honest tool gets its answer, which tells of the attack; the metrics are read, too.
    for words in [&["status"][..], &["metrics"], &["hosts"]] {
        let answer = run(&mut rig.tool("h2", words)?, PATIENCE)?.text();
        ensure!(!answer.is_empty(), "{words:?} says nothing");
    }
    let sessions = rig.lab.status("h2")?.sessions;
    ensure!(sessions > 300, "{sessions} sessions: the attack was not there");
    drop(attack);
    honest.finish()
}

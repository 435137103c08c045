//! A neighbour that speaks in the name of others, and a raw socket that sends packets in the name of other hosts.

use anyhow::{Result, ensure};
use crosslane_e2e::attacks;
use crosslane_e2e::honest::{Honest, WINDOW};
use crosslane_e2e::program::Program;
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{PATIENCE, own_program, wait_for};
use crosslane_lab::{Options, Topology};
use crosslane_status::Counters;
use rustix::process::Signal;
use std::path::PathBuf;

/// The hosts that a host knows.
fn known(rig: &Rig, host: &str) -> Result<Vec<u16>> {
    Ok(rig.lab.status(host)?.hosts.iter().map(|host| host.id.0).collect())
}

fn counters(rig: &Rig, host: &str) -> Result<Counters> {
    Ok(rig.lab.status(host)?.counters)
}

/// The hostile program: as root, as a neighbour's daemon is.
fn attacker() -> Result<PathBuf> {
    own_program("crosslane-attacker")
}

#[test]
fn neighbour_that_forges_and_floods_disturbs_nobody() -> Result<()> {
    let options = Options { hosts: 3, topology: Topology::Chain, ..Options::scratch("e2e") };
    let Some(mut rig) = Rig::up(options)? else { return Ok(()) };
    let config = rig.lab.host("h3")?.config.display().to_string();
    rig.lab.kill_daemon("h3", Signal::KILL)?;
    let mut honest = Honest::start(&rig, "h1", "h2")?;
    let calm = honest.watch(WINDOW)?;
    let mut attack = Program::start(rig.plain("h3", attacker()?)?.args(["neighbour", &config]))?;
    attack.says("attacking")?;
    honest.holds_out(&calm)?;
    ensure!(!attack.is_over(), "the attack ended: {}", attack.tail());
    ensure!(counters(&rig, "h2")?.ip_refused_packets > 0, "nothing was refused");
    ensure!(known(&rig, "h1")?.contains(&2) && known(&rig, "h2")?.contains(&1), "honest hosts are lost");
    drop(attack);
    // What was forged is over as soon as it ends: a real host 3 is known again.
    rig.lab.start_daemon("h3")?;
    for (host, others) in [("h1", [2, 3]), ("h2", [1, 3]), ("h3", [1, 2])] {
        wait_for("all are known again, and nobody else", PATIENCE, || match known(&rig, host) {
            Ok(hosts) if hosts == others => Ok(()),
            hosts => Err(format!("{host} knows {hosts:?}")),
        })?;
    }
    let lines = rig.log("h2")?.matches("packet refused").count();
    ensure!(lines <= 12, "{lines} lines of the log for refused packets");
    honest.finish()
}

#[test]
fn raw_socket_cannot_send_in_the_name_of_another_host() -> Result<()> {
    let Some(rig) = Rig::ring()? else { return Ok(()) };
    let (port, address) = (rig.port(), rig.address("h2")?);
    let to = format!("{address}:{port}");
    let receiver = attacks::start(&rig, "h2", "receive", &[&to])?;
    for source in [rig.address("h3")?.to_string(), "8.8.8.8".to_owned(), rig.address("h1")?.to_string()] {
        let mut sender = Program::start(rig.plain("h1", attacker()?)?.args(["raw", &source, &to]))?;
        sender.says("sent")?;
    }
    let own = format!("from {}\n", rig.address("h1")?);
    wait_for("what is ours arrives", PATIENCE, || {
        let heard = String::from_utf8_lossy(&receiver.output()).into_owned();
        if heard.matches(&own).count() > 0 { Ok(()) } else { Err(heard) }
    })?;
    let heard = String::from_utf8_lossy(&receiver.output()).into_owned();
    let foreign: Vec<&str> =
        heard.lines().filter(|line| line.starts_with("from") && **line != *own.trim()).collect();
    ensure!(foreign.is_empty(), "packets in the name of others: {foreign:?}");
    wait_for("they are refused at their source, of both kinds", PATIENCE, || {
        let refused = counters(&rig, "h1").map(|it| it.ip_refused_packets);
        refused.as_ref().is_ok_and(|refused| *refused > 100).then_some(()).ok_or(format!("{refused:?}"))
    })
}

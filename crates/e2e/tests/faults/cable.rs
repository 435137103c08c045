//! Cables cut and mended, hosts killed and started, in labs of real daemons.

use anyhow::{Context, Result, ensure};
use crosslane_e2e::PATIENCE;
use crosslane_e2e::reach::cables;
use crosslane_e2e::rig::Rig;
use crosslane_lab::{Options, Topology};
use crosslane_status::{Link, Status};
use rustix::process::Signal;

fn link(status: &Status, port: &str) -> Option<Link> {
    status.port(port).map(|port| port.link)
}

#[test]
fn cut_is_seen_at_both_ends_and_outlives_the_daemon_that_made_it() -> Result<()> {
    let Some(mut rig) = Rig::ring()? else { return Ok(()) };
    let cut = rig.lab.cut("h2", "h1")?;
    ensure!(cut.changed && cut.ends.iter().all(|(_, after)| after.is_some()), "{cut:?}");
    ensure!(cut.ends[0].0 == "h2", "{cut:?}");
    rig.lies("h1", 2, Some(2))?;
    rig.lies("h2", 1, Some(2))?;
    ensure!(link(&rig.lab.status("h1")?, "right") == Some(Link::Cut));
    ensure!(
        link(&rig.lab.status("h2")?, "left") == Some(Link::Down),
        "the neighbour must find out by itself"
    );
    rig.ping("h1", "h2")?;
    for host in ["h1", "h2"] {
        rig.lab.kill_daemon(host, Signal::KILL)?;
        rig.lab.start_daemon(host)?;
        rig.lab.wait_host(host, PATIENCE)?;
    }
    rig.lab.wait_links(PATIENCE)?;
    ensure!(link(&rig.lab.status("h1")?, "right") == Some(Link::Cut));
    rig.ping("h2", "h1")?;
    ensure!(!rig.lab.cut("h1", "h2")?.changed);
    let mended = rig.lab.mend("h1", "h2")?;
    ensure!(mended.changed && mended.ends.iter().all(|(_, after)| after.is_some()), "{mended:?}");
    rig.lab.wait_links(PATIENCE)?;
    rig.lies("h1", 2, Some(1))?;
    rig.ping("h1", "h2")
}

#[test]
fn epoch_is_new_after_a_whole_host_died() -> Result<()> {
    let Some(mut rig) = Rig::ring()? else { return Ok(()) };
    let epoch =
        |rig: &Rig| -> Result<u32> { Ok(rig.lab.status("h1")?.port("right").context("no port")?.epoch.0) };
    let before = epoch(&rig)?;
    rig.lab.kill_host("h2")?;
    rig.lies("h1", 2, None)?;
    rig.ping("h1", "h3")?;
    rig.lab.start_daemon("h2")?;
    rig.lab.wait_host("h2", PATIENCE)?;
    rig.lab.wait_links(PATIENCE)?;
    ensure!(epoch(&rig)? > before, "epoch {} after {before}", epoch(&rig)?);
    rig.ping("h1", "h2")
}

#[test]
fn torus_is_a_configuration() -> Result<()> {
    let options = Options { hosts: 9, topology: Topology::Torus, ..Options::scratch("e2e") };
    let Some(mut rig) = Rig::up(options)? else { return Ok(()) };
    for host in 1..=9 {
        let status = rig.lab.status(&format!("h{host}"))?;
        let far = (1..=9).filter(|&to| to != host).map(|to| cables(&status, to)).collect::<Vec<_>>();
        ensure!(far.iter().filter(|hops| **hops == Some(1)).count() == 4, "h{host}: {far:?}");
        ensure!(far.iter().filter(|hops| **hops == Some(2)).count() == 4, "h{host}: {far:?}");
    }
    rig.ping("h1", "h9")?;
    rig.lab.cut("h1", "h2")?;
    rig.lab.cut("h1", "h3")?;
    rig.lab.cut("h4", "h1")?;
    // What is left of h1 is the cable up, to h7.
    rig.lies("h1", 5, Some(3))?;
    rig.ping("h1", "h5")
}

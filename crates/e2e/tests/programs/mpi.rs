//! MPI between two hosts: messages of 8 B to 8 MB there and back, each byte compared by both.

use anyhow::{Context, Result};
use crosslane_apps::mpi::{Hosts, Mpi, PingPong};
use crosslane_e2e::program::run;
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{WORK, apps, package};

fn ping_pong(mpi: Mpi) -> Result<()> {
    if !apps::need(mpi.needs()) {
        return Ok(());
    }
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    if !rig.lab.state().tun {
        package::skip("an MPI library is told an interface, and without /dev/net/tun the fabric has none");
        return Ok(());
    }
    let measure = rig.measure(&["h1", "h2"])?;
    let (near, far) =
        (|program: &str| rig.command("h1", program), |program: &str| rig.command("h2", program));
    let hosts = Hosts { near: ("h1", &near), far: ("h2", &far), interface: "xl0" };
    let job = PingPong::prepare(mpi, rig.folder(), &hosts)?;
    let text = run(&mut job.command(&hosts, &["check"])?, WORK)?.text();
    let bytes = text.lines().find_map(|line| line.trim().parse().ok()).with_context(|| text.clone())?;
    measure.carried(bytes, 1)?;
    measure.gave_back()
}

#[test]
fn open_mpi_over_tcp() -> Result<()> {
    ping_pong(Mpi::Open)
}

#[test]
fn mpich_over_ucx() -> Result<()> {
    ping_pong(Mpi::Mpich)
}

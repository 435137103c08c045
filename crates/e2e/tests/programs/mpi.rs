//! MPI between two hosts: messages of 8 B to 8 MB there and back, each byte compared by both.

use anyhow::{Result, ensure};
use crosslane_apps::mpi::{Hosts, Mpi, PingPong};
use crosslane_e2e::program::Program;
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{WORK, apps, package, wait_for};
use rustix::process::Signal;
use std::time::Duration;

/// How long the processes of a job that is done may take to end.
const FINALIZE: Duration = Duration::from_secs(10);

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
    let run = Program::start(&mut job.command(&hosts, &["check"])?)?;
    let bytes = wait_for("the job's bytes", WORK, || {
        let text = String::from_utf8_lossy(&run.output()).into_owned();
        text.lines().find_map(|line| line.trim().parse().ok()).ok_or_else(|| run.tail())
    })?;
    measure.carried(bytes, 1)?;
    end(mpi, run)?;
    measure.gave_back()
}

/// The job ends. MPICH's may not, also on the kernel's TCP alone: in `MPI_Finalize` one rank waits in a barrier of the process manager,
/// and serves UCX no more, while the other one waits for it in UCX (5 of 39 runs within one busy host without this library).
fn end(mpi: Mpi, mut run: Program) -> Result<()> {
    match run.wait(if mpi == Mpi::Mpich { FINALIZE } else { WORK }) {
        Ok(status) => ensure!(status.success(), "{}", run.tail()),
        Err(error) if mpi == Mpi::Open => return Err(error),
        Err(_) => {
            println!("mpirun.mpich does not end, and is ended");
            run.signal(Signal::TERM)?;
            run.wait(WORK)?;
        }
    }
    Ok(())
}

#[test]
fn open_mpi_over_tcp() -> Result<()> {
    ping_pong(Mpi::Open)
}

#[test]
fn mpich_over_ucx() -> Result<()> {
    ping_pong(Mpi::Mpich)
}

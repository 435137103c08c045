//! What no preload reaches goes by IP over the fabric.

use anyhow::{Result, ensure};
use crosslane_e2e::program::{Program, run};
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{WORK, go, package};

#[test]
fn a_go_program() -> Result<()> {
    let Some(compiler) = package::need("go") else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    if !rig.lab.state().tun {
        package::skip("this user may not use /dev/net/tun");
        return Ok(());
    }
    let program = go::compile(&rig, &compiler)?;
    let address = rig.address("h2")?.to_string();
    let measure = rig.measure(&["h1", "h2"])?;
    let port = rig.port();
    let mut command = rig.command("h2", &program)?;
    let mut server = Program::start(command.args(["server", &address, &port.to_string()]))?;
    server.listens_to_tcp(port)?;
    let mut command = rig.command("h1", &program)?;
    run(command.args(["client", &address, &port.to_string(), "20000000"]), WORK)?;
    measure.carried_by_ip(40_000_000)?;
    drop(server);
    measure.gave_back()
}

#[test]
fn ping() -> Result<()> {
    let Some(program) = package::need("ping") else { return Ok(()) };
    let Some(rig) = Rig::ring()? else { return Ok(()) };
    if !rig.lab.state().tun {
        package::skip("this user may not use /dev/net/tun");
        return Ok(());
    }
    let measure = rig.measure(&["h1", "h3"])?;
    for address in [rig.address("h3")?, rig.lab.address6("h3")?] {
        let mut command = rig.plain("h1", &program)?;
        command.args(["-c", "3", "-i", "0.2", "-s", "10000", "-W", "5", &address.to_string()]);
        let text = run(&mut command, WORK)?.text();
        ensure!(text.contains(" 0% packet loss"), "{text}");
    }
    measure.carried_by_ip(2 * 2 * 3 * 10_000)
}

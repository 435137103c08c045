//! Programs that make system calls by themselves are plain TCP, and say so; rings for files are not refused.

use anyhow::{Result, ensure};
use crosslane_e2e::program::{Program, run};
use crosslane_e2e::python::Script;
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{PATIENCE, WORK, own_calls, package, payload};
use std::path::Path;
use std::process::Command;

const URING: &str = "/usr/include/liburing.h";

#[test]
fn liburing_server() -> Result<()> {
    let (Some(_), Some(nc)) = (package::need(URING), package::need("nc")) else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let program = own_calls::echo(&rig)?;
    let (address, port) = (rig.address("h2")?.to_string(), rig.port());
    let mut server = Program::start(rig.command("h2", program)?.args([&address, &port.to_string()]))?;
    if server.listens_to_tcp(port).is_err() && server.errors().contains("io_uring") {
        package::skip(&format!("this kernel has no rings for this user: {}", server.errors()));
        return Ok(());
    }
    let measure = rig.measure(&["h1", "h2"])?;
    let sent = payload::bytes(27, 2_000_003);
    for _ in 0..2 {
        let mut command = rig.command("h1", &nc)?;
        let client = Program::start_with(command.args(["-N", &address, &port.to_string()]), &sent)?;
        payload::equal(&sent, &client.finish(WORK)?.output)?;
    }
    if rig.lab.state().tun {
        measure.carried_by_ip(2 * 2 * 2_000_003)?;
    }
    ensure!(server.errors().matches("crosslane: echo: ").count() == 1, "{}", server.errors());
    drop(server);
    measure.gave_back()
}

#[test]
fn bun() -> Result<()> {
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let Some(bun) = own_calls::bun(&rig)? else { return Ok(()) };
    let (address, port) = (rig.address("h2")?.to_string(), rig.port().to_string());
    let measure = rig.measure(&["h1", "h2"])?;
    let mut server =
        Program::start(&mut own_calls::run_bun(&rig, "h2", &bun, &["server", &address, &port])?)?;
    server.listens_to_tcp(port.parse()?)?;
    let mut command = own_calls::run_bun(&rig, "h1", &bun, &["client", &address, &port, "1000003"])?;
    let printed = run(&mut command, WORK)?;
    ensure!(printed.text().contains("same"), "{}", printed.text());
    ensure!(server.errors().contains("crosslane: bun: makes system calls of its own"), "{}", server.errors());
    drop(server);
    measure.gave_back()
}

#[test]
fn fio_with_rings_for_files() -> Result<()> {
    let Some(fio) = package::need("fio") else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let file = format!("--filename={}", rig.file("fio").display());
    let words = ["--name=rings", "--ioengine=io_uring", "--rw=randrw", "--size=4M", "--verify=crc32c", &file];
    if let Err(why) = run(rig.plain("h1", &fio)?.current_dir(rig.folder()).args(words), WORK) {
        package::skip(&format!("fio has no rings here without the library either: {why}"));
        return Ok(());
    }
    run(rig.command("h1", &fio)?.current_dir(rig.folder()).args(words), WORK)?;
    Ok(())
}

/// Its loader cannot load a library that was built for glibc.
#[test]
fn musl_program() -> Result<()> {
    let Some(compiler) = package::need("musl-gcc") else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let (source, program) = (rig.file("hello.c"), rig.file("hello"));
    std::fs::write(&source, "#include <stdio.h>\nint main(void) { puts(\"hello\"); return 0; }\n")?;
    run(Command::new(compiler).arg("-o").arg(&program).arg(&source), WORK)?;
    let path = program.display().to_string();
    let mut ways = [
        rig.command("h1", &program)?,
        rig.tool("h1", &["run", "--", &path])?,
        rig.tool("h1", &["run", "--malloc", "64K", "--", "sh", "-c", &path])?,
    ];
    for way in &mut ways {
        let printed = run(way, WORK)?;
        ensure!(printed.text() == "hello\n" && printed.errors.is_empty(), "{printed:?}");
    }
    Ok(())
}

/// A launcher copies its environment to where it starts programs: `CROSSLANE_SOCKET` names the daemon of another host.
#[test]
fn environment_that_came_from_another_host() -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    Script::Echo.command(&rig, "h2", &python)?;
    let (address, wrong) = (rig.address("h2")?.to_string(), rig.lab.host("h1")?.control.clone());
    let echoes = |socket: &Path, is_known: bool| -> Result<String> {
        let port = rig.port().to_string();
        // The lab itself sets the variable, so it is set once more in the host.
        let mut command = rig.command("h2", "env")?;
        command.arg(format!("CROSSLANE_SOCKET={}", socket.display())).arg(&python).arg(rig.file("echo.py"));
        command.args(["server", "::", &port]);
        let mut server = Program::start(&mut command)?;
        server.listens_to_tcp(port.parse()?)?;
        if is_known {
            let number: u16 = port.parse()?;
            rig.lab.wait_until("h2", PATIENCE, |status| {
                status.listeners.iter().any(|address| address.port() == number)
            })?;
        }
        let mut command = Script::Echo.command(&rig, "h1", &python)?;
        run(command.args(["client", &address, &port, "100000", "1"]), WORK)?;
        Ok(server.errors())
    };
    let measure = rig.measure(&["h1", "h2"])?;
    // The daemon of this host lies beside the one that is named.
    let said = echoes(&wrong, true)?;
    ensure!(!said.contains("crosslane: "), "{said}");
    measure.carried(200_000, 1)?;
    // Where there is no other, one line says what is wrong.
    let folder = rig.file("alone");
    std::fs::create_dir(&folder)?;
    let alone = folder.join("daemon.sock");
    std::os::unix::fs::symlink(&wrong, &alone)?;
    let said = echoes(&alone, false)?;
    ensure!(said.matches("serves another network namespace").count() == 1, "{said}");
    measure.gave_back()
}

//! HAProxy that splices between its clients and two servers, whose health it checks by connections of its own.

use anyhow::{Context, Result, ensure};
use crosslane_apps::haproxy;
use crosslane_e2e::nginx::{Setup, Web};
use crosslane_e2e::program::Program;
use crosslane_e2e::rig::{Rig, open_folder};
use crosslane_e2e::{PATIENCE, apps, package, payload, wait_for};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

const SIZE: u64 = 20_000_003;
const TIMES: u64 = 4;

/// Asks the proxy by its socket.
fn ask(socket: &Path, question: &str) -> Result<String> {
    let mut stream = UnixStream::connect(socket).with_context(|| format!("{}", socket.display()))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    writeln!(stream, "{question}")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Bytes that went by `splice`, as `show info` has them (older releases misspell the name).
fn spliced(information: &str) -> u64 {
    let line = information.lines().find(|line| line.starts_with("TotalSplic"));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

/// Waits until the proxy takes a server for well, or not.
fn until(socket: &Path, server: usize, well: bool) -> Result<()> {
    wait_for(&format!("server {server} is well: {well}"), PATIENCE, || {
        let answer = ask(socket, "show stat").map_err(|error| error.to_string())?;
        if haproxy::is_well(&answer, server) == Some(well) { Ok(()) } else { Err(answer) }
    })
}

/// Fetches the file several times, each over a connection of its own, and compares.
fn fetch(rig: &Rig, web: &Web, url: &str, file: &Path) -> Result<()> {
    for number in 0..TIMES {
        let got = rig.file(&format!("got-{number}"));
        web.get(rig, "h2", None, &[(url.to_owned(), got.clone())])?;
        ensure!(payload::same(file, &got)? == SIZE, "the file has another size");
    }
    Ok(())
}

#[test]
fn haproxy_splices_and_checks_health() -> Result<()> {
    let (Some(web), Some(_)) = (Web::find(), package::need("haproxy")) else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let root = rig.file("site");
    std::fs::create_dir(&root)?;
    open_folder(&root)?;
    let file = root.join("file");
    payload::file(&file, SIZE, SIZE)?;
    let measure = rig.measure(&["h1", "h2"])?;
    let (front, ports) = (rig.port(), [rig.port(), rig.port()]);
    let address = rig.address("h2")?;
    let setup = Setup { sendfile: true, tls: false };
    let serve = |port| web.server(&rig, "h2", &address.to_string(), port, &root, setup);
    let (one, two) = (serve(ports[0])?, serve(ports[1])?);
    let mut socket = PathBuf::new();
    let mut command = apps::command(&rig, "h1", ("h1", front), |at| {
        let (command, path) = haproxy::splicing(at, &ports.map(|port| SocketAddr::new(address, port)))?;
        socket = path;
        Ok(command)
    })?;
    let mut proxy = Program::start(&mut command)?;
    proxy.listens(front)?;
    let url = format!("http://{}/file", SocketAddr::new(rig.address("h1")?, front));
    until(&socket, 0, true)?;
    fetch(&rig, &web, &url, &file)?;
    // A server that goes is noticed, and the other one has the work.
    drop(one);
    until(&socket, 0, false)?;
    fetch(&rig, &web, &url, &file)?;
    std::fs::remove_dir_all(rig.file(&format!("nginx-{}", ports[0])))?;
    let one = serve(ports[0])?;
    until(&socket, 0, true)?;
    let spliced = spliced(&ask(&socket, "show info")?);
    ensure!(spliced >= 2 * TIMES * SIZE / 2, "{spliced} bytes were spliced");
    measure.carried(2 * 2 * TIMES * SIZE, 2 * 2 * TIMES)?;
    drop((proxy, one, two));
    measure.gave_back()
}

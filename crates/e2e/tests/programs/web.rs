//! The web: nginx with curl, Python's and Node's servers.

use anyhow::{Result, ensure};
use crosslane_apps::script::Script;
use crosslane_e2e::nginx::{self, Setup, Web};
use crosslane_e2e::program::{Program, run};
use crosslane_e2e::rig::{Rig, open_folder};
use crosslane_e2e::{WORK, apps, nodejs, package, payload};
use std::path::{Path, PathBuf};

/// Files of these sizes are fetched.
const SIZES: [u64; 6] = [0, 1, 4096, 100_000, 1_000_003, 100 << 20];

/// A folder of files, and where each is fetched to.
struct Site {
    root: PathBuf,
    got: PathBuf,
}

impl Site {
    fn new(rig: &Rig) -> Result<Self> {
        let site = Self { root: rig.file("site"), got: rig.file("got") };
        for folder in [&site.root, &site.got] {
            std::fs::create_dir(folder)?;
            open_folder(folder)?;
        }
        for size in SIZES {
            payload::file(&site.root.join(size.to_string()), size, size)?;
        }
        Ok(site)
    }

    fn urls(&self, base: &str) -> Vec<(String, PathBuf)> {
        SIZES.iter().map(|size| (format!("{base}/{size}"), self.got.join(size.to_string()))).collect()
    }

    fn check(&self) -> Result<()> {
        for size in SIZES {
            let name = size.to_string();
            let path = self.got.join(&name);
            ensure!(path.exists() || size == 0, "{name} did not come");
            if size > 0 {
                ensure!(payload::same(&self.root.join(&name), &path)? == size, "{name} has another size");
            }
        }
        Ok(())
    }

    fn bytes() -> u64 {
        SIZES.iter().sum()
    }
}

fn nginx_with(setup: Setup, v6: bool) -> Result<()> {
    let Some(web) = Web::find() else { return Ok(()) };
    if setup.tls && package::need("openssl").is_none() {
        return Ok(());
    }
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let site = Site::new(&rig)?;
    let address = if v6 { rig.lab.address6("h2")? } else { rig.address("h2")? };
    let measure = rig.measure(&["h1", "h2"])?;
    let port = rig.port();
    let server = web.server(&rig, "h2", &address.to_string(), port, &site.root, setup)?;
    let scheme = if setup.tls { "https" } else { "http" };
    let at = std::net::SocketAddr::new(address, port);
    let authority = nginx::authority(&rig, port);
    let authority: Option<&Path> = setup.tls.then_some(&authority);
    let connections = web.get(&rig, "h1", authority, &site.urls(&format!("{scheme}://{at}")))?;
    ensure!(connections == 1, "curl made {connections} connections: the server closed one");
    site.check()?;
    measure.carried(Site::bytes(), 1)?;
    drop(server);
    measure.gave_back()
}

#[test]
fn nginx_with_sendfile() -> Result<()> {
    nginx_with(Setup { sendfile: true, tls: false }, false)
}

#[test]
fn nginx_without_sendfile() -> Result<()> {
    nginx_with(Setup { sendfile: false, tls: false }, false)
}

#[test]
fn nginx_with_tls() -> Result<()> {
    nginx_with(Setup { sendfile: false, tls: true }, false)
}

#[test]
fn nginx_v6() -> Result<()> {
    nginx_with(Setup { sendfile: true, tls: false }, true)
}

#[test]
fn nginx_many_at_once() -> Result<()> {
    let (Some(web), Some(ab)) = (Web::find(), package::need("ab")) else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let site = Site::new(&rig)?;
    let address = rig.address("h2")?.to_string();
    let measure = rig.measure(&["h1", "h2"])?;
    let port = rig.port();
    let setup = Setup { sendfile: true, tls: false };
    let server = web.server(&rig, "h2", &address, port, &site.root, setup)?;
    let url = format!("http://{address}:{port}/4096");
    for keep in [true, false] {
        let mut command = rig.command("h1", &ab)?;
        command.args(["-q", "-n", "2000", "-c", "20"]).args(keep.then_some("-k"));
        let text = run(command.arg(&url), WORK)?.text();
        ensure!(text.contains("Complete requests:      2000"), "{text}");
        ensure!(text.contains("Failed requests:        0"), "{text}");
    }
    // Connections that are over at once are left to TCP after a while.
    measure.carried(2000 * 4096, 20 + 20)?;
    drop(server);
    measure.gave_back()
}

#[test]
fn python_http_server() -> Result<()> {
    let (Some(web), Some(python)) = (Web::find(), package::python()) else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let site = Site::new(&rig)?;
    let address = rig.address("h2")?.to_string();
    let measure = rig.measure(&["h1", "h2"])?;
    let port = rig.port();
    let mut command = rig.command("h2", &python)?;
    command.args(["-m", "http.server", "--bind", &address, "--directory"]).arg(&site.root);
    let mut server = Program::start(command.arg(port.to_string()))?;
    server.listens(port)?;
    web.get(&rig, "h1", None, &site.urls(&format!("http://{address}:{port}")))?;
    site.check()?;
    measure.carried(Site::bytes(), SIZES.len() as u64)?;
    drop(server);
    measure.gave_back()
}

#[test]
fn nodejs_http() -> Result<()> {
    let Some(node) = package::need("node") else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let address = rig.address("h2")?.to_string();
    let measure = rig.measure(&["h1", "h2"])?;
    let port = rig.port();
    let mut command = nodejs::command(&rig, "h2", &node, &["server", &address, &port.to_string()])?;
    let mut server = Program::start(&mut command)?;
    server.listens(port)?;
    let words = ["client", &address, &port.to_string(), "32000000", "8"];
    run(&mut nodejs::command(&rig, "h1", &node, &words)?, WORK)?;
    measure.carried(2 * 32_000_000, 4)?;
    drop(server);
    measure.gave_back()
}

/// Node's own client of another making: `fetch`, several requests at once.
#[test]
fn nodejs_fetch() -> Result<()> {
    if !apps::need(Script::Fetch.needs()) {
        return Ok(());
    }
    let Some(rig) = Rig::pair_with_room()? else { return Ok(()) };
    let measure = rig.measure(&["h1", "h2"])?;
    let port = rig.port();
    let server = apps::serve(&rig, "h2", port, |at| Script::Fetch.server(at))?;
    let bytes = apps::check(&rig, Script::Fetch, "h1", ("h2", port), WORK)?;
    measure.carried(2 * bytes, 2)?;
    drop(server);
    measure.gave_back()
}

//! Servers that treat their sockets in ways of their own: Apache (threads and processes, connections kept back until
//! their first data), HAProxy (both ends of each request), vsftpd (children by bare `clone`, in cages, that are handed
//! their data connections).

use anyhow::{Result, ensure};
use crosslane_e2e::program::{Program, run};
use crosslane_e2e::rig::{Rig, open_folder};
use crosslane_e2e::{WORK, package, payload};
use std::fs;
use std::path::{Path, PathBuf};

const SIZE: u64 = 20_000_003;

/// A folder with one file to be fetched, and where it is fetched to.
struct Site {
    root: PathBuf,
    got: PathBuf,
}

impl Site {
    fn new(rig: &Rig) -> Result<Self> {
        let root = rig.file("site");
        fs::create_dir(&root)?;
        open_folder(&root)?;
        payload::file(&root.join("file"), SIZE, SIZE)?;
        Ok(Self { root, got: rig.file("got") })
    }

    /// Fetches the file by curl and compares it.
    fn fetch(&self, rig: &Rig, host: &str, curl: &Path, url: &str, more: &[&str]) -> Result<()> {
        let _ = fs::remove_file(&self.got);
        let mut command = rig.command(host, curl)?;
        command.args(["--silent", "--show-error", "--fail", "--noproxy", "*", "--max-time", "50"]).args(more);
        run(command.arg(url).arg("--output").arg(&self.got), WORK)?;
        let size = payload::same(&self.root.join("file"), &self.got)?;
        ensure!(size == SIZE, "{size} bytes of {SIZE}");
        Ok(())
    }
}

/// Apache's threads and processes with its own defaults: `TCP_DEFER_ACCEPT` is one of them.
fn apache(rig: &Rig, host: &str, site: &Site, port: u16) -> Result<Option<Program>> {
    let modules = Path::new("/usr/lib/apache2/modules");
    let (Some(server), Some(_)) =
        (package::need("apache2"), package::need("/usr/lib/apache2/modules/mod_mpm_event.so"))
    else {
        return Ok(None);
    };
    let place = rig.file("apache");
    fs::create_dir(&place)?;
    let config = place.join("apache.conf");
    let (at, root, modules) = (place.display(), site.root.display(), modules.display());
    let address = rig.address(host)?;
    let user = if rustix::process::geteuid().is_root() { "User nobody\nGroup nogroup\n" } else { "" };
    fs::write(
        &config,
        format!(
            "ServerRoot {at}\nServerName lab\nPidFile {at}/pid\nErrorLog {at}/log\nDefaultRuntimeDir {at}\n\
             Listen {address}:{port}\n{user}LoadModule mpm_event_module {modules}/mod_mpm_event.so\n\
             LoadModule authz_core_module {modules}/mod_authz_core.so\nDocumentRoot {root}\n\
             <Directory {root}>\nRequire all granted\n</Directory>\n"
        ),
    )?;
    let mut command = rig.command(host, &server)?;
    command.arg("-DFOREGROUND").arg("-f").arg(&config);
    let mut server = Program::start(&mut command)?;
    server.listens(port)?;
    Ok(Some(server))
}

#[test]
fn apache_alone() -> Result<()> {
    let (Some(curl), Some(ab)) = (package::need("curl"), package::need("ab")) else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let site = Site::new(&rig)?;
    let measure = rig.measure(&["h1", "h2"])?;
    let port = rig.port();
    let Some(server) = apache(&rig, "h2", &site, port)? else { return Ok(()) };
    let url = format!("http://{}:{port}/file", rig.address("h2")?);
    site.fetch(&rig, "h1", &curl, &url, &[])?;
    let mut command = rig.command("h1", &ab)?;
    let text = run(command.args(["-q", "-k", "-n", "40", "-c", "8"]).arg(&url), WORK)?.text();
    ensure!(text.contains("Failed requests:        0"), "{text}");
    measure.carried(41 * SIZE, 9)?;
    drop(server);
    measure.gave_back()
}

#[test]
fn haproxy_before_apache() -> Result<()> {
    let (Some(curl), Some(haproxy)) = (package::need("curl"), package::need("haproxy")) else {
        return Ok(());
    };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let site = Site::new(&rig)?;
    let measure = rig.measure(&["h1", "h2"])?;
    let (port, front) = (rig.port(), rig.port());
    let Some(server) = apache(&rig, "h2", &site, port)? else { return Ok(()) };
    let config = rig.file("haproxy.conf");
    let (near, far) = (rig.address("h1")?, rig.address("h2")?);
    fs::write(
        &config,
        format!(
            "defaults\n mode http\n timeout connect 5s\n timeout client 20s\n timeout server 20s\n\
             frontend front\n bind {near}:{front}\n default_backend back\n\
             backend back\n server one {far}:{port}\n"
        ),
    )?;
    let mut command = rig.command("h1", &haproxy)?;
    let mut proxy = Program::start(command.arg("-db").arg("-f").arg(&config))?;
    proxy.listens(front)?;
    site.fetch(&rig, "h2", &curl, &format!("http://{near}:{front}/file"), &[])?;
    measure.carried(2 * SIZE, 2)?;
    drop((proxy, server));
    measure.gave_back()
}

/// Both kinds of data connection: the client connects, and the server does.
#[test]
fn vsftpd() -> Result<()> {
    let (Some(curl), Some(vsftpd)) = (package::need("curl"), package::need("vsftpd")) else { return Ok(()) };
    if !rustix::process::geteuid().is_root() {
        package::skip("vsftpd starts as root only");
        return Ok(());
    }
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let site = Site::new(&rig)?;
    let measure = rig.measure(&["h1", "h2"])?;
    let (port, cage, config) = (rig.port(), rig.file("cage"), rig.file("vsftpd.conf"));
    fs::create_dir(&cage)?;
    open_folder(&cage)?;
    let (address, root, cage) = (rig.address("h2")?, site.root.display(), cage.display());
    fs::write(
        &config,
        format!(
            "listen=YES\nlisten_port={port}\nlisten_address={address}\nbackground=NO\nanonymous_enable=YES\n\
             no_anon_password=YES\nanon_root={root}\nsecure_chroot_dir={cage}\nseccomp_sandbox=NO\n"
        ),
    )?;
    let mut command = rig.command("h2", &vsftpd)?;
    let mut server = Program::start(command.arg(&config))?;
    server.listens(port)?;
    let url = format!("ftp://{address}:{port}/file");
    site.fetch(&rig, "h1", &curl, &url, &[])?;
    site.fetch(&rig, "h1", &curl, &url, &["--ftp-port", "-"])?;
    measure.carried(2 * SIZE, 4)?;
    drop(server);
    measure.gave_back()
}

//! Servers, each started and listening.

use super::sides::{Sides, whole};
use crate::program::process::{Server, run};
use crate::program::web::nginx as nginx_of;
use anyhow::{Context, Result};
use crosslane_apps::script::Script;
use crosslane_apps::{
    Site, haproxy as proxy, kafka, nbd as disk, openssh as ssh, rabbitmq as broker, zookeeper as keeper,
};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long a large server may take to listen, on a busy machine.
const SLOW: Duration = Duration::from_secs(60);
/// What starts PostgreSQL's newest version on Debian, and where all versions are.
pub(super) const POSTGRES_CONTROL: &str = "/usr/lib/postgresql";
/// MiB of the disk that nbdkit has.
const DISK: u32 = 128;

pub(super) fn none(_: &Site<'_>) -> Result<Vec<Server>> {
    Ok(Vec::new())
}

pub(super) fn script(script: Script, at: &Site<'_>) -> Result<Vec<Server>> {
    Ok(vec![Server::start_within(script.server(at)?, at.port, SLOW)?])
}

pub(super) fn zookeeper(at: &Site<'_>) -> Result<Vec<Server>> {
    Ok(vec![Server::start_within(keeper::server(at)?, at.port, SLOW)?])
}

pub(super) fn kafka(at: &Site<'_>) -> Result<Vec<Server>> {
    Ok(vec![Server::start_within(kafka::server(at)?, at.port, SLOW)?])
}

pub(super) fn nbd(at: &Site<'_>) -> Result<Vec<Server>> {
    Ok(vec![Server::start(disk::server(at, DISK)?, at.port)?])
}

pub(super) fn rabbitmq(at: &Site<'_>) -> Result<Vec<Server>> {
    let (names, port) = broker::names(at)?;
    let names = Server::start(names, port)?;
    Ok(vec![names, Server::start_within(broker::broker(at)?, at.port, SLOW)?])
}

pub(super) fn redis(at: &Site<'_>) -> Result<Vec<Server>> {
    let mut command = at.command("redis-server")?;
    command.args(["--port", &at.port.to_string(), "--bind", &at.address.to_string()]);
    command
        .args(["--protected-mode", "no", "--save", "", "--appendonly", "no", "--daemonize", "no", "--dir"])
        .arg(at.folder);
    Ok(vec![Server::start(command, at.port)?])
}

pub(super) fn memcached(at: &Site<'_>) -> Result<Vec<Server>> {
    let mut command = at.command("memcached")?;
    command.args(["-l", &at.address.to_string(), "-p", &at.port.to_string(), "-U", "0", "-t", "2"]);
    // An ordinary user is root in its lab, and nobody else is known there.
    command.args(["-u", if is_root() { "nobody" } else { "root" }]);
    Ok(vec![Server::start(command, at.port)?])
}

pub(super) fn nginx(at: &Site<'_>) -> Result<Vec<Server>> {
    let folder = at.own_folder("nginx")?;
    let files = at.folder.join("files");
    fs::create_dir_all(&files)?;
    fs::write(files.join("small"), vec![b'x'; 4096])?;
    fs::write(files.join("middle"), vec![b'x'; 256 << 10])?;
    let command = nginx_of(at.command("nginx")?, &folder, &files, &at.socket().to_string())?;
    Ok(vec![Server::start(command, at.port)?])
}

pub(super) fn openssh(at: &Site<'_>) -> Result<Vec<Server>> {
    anyhow::ensure!(
        is_root(),
        "sshd in an ordinary user's lab takes itself for root and finds /run/sshd not its own"
    );
    let separation = ssh::Separation::ready()?;
    Ok(vec![Server::start(ssh::server(at)?, at.port)?.with(separation)])
}

/// The proxy has the port; nginx has a nearby one.
pub(super) fn haproxy(at: &Site<'_>) -> Result<Vec<Server>> {
    let behind = Site { port: at.port + 400, ..*at };
    let mut servers = nginx(&behind)?;
    let (command, _) = proxy::splicing(at, &[behind.socket()])?;
    servers.push(Server::start(command, at.port)?);
    Ok(servers)
}

/// A database of a server that runs as another user, since it refuses to be root; filled for pgbench.
pub(super) fn postgres(at: &Site<'_>) -> Result<Vec<Server>> {
    anyhow::ensure!(
        is_root(),
        "PostgreSQL in an ordinary user's lab takes itself for root, which it refuses to be"
    );
    let bin = postgres_folder()?;
    let folder = at.own_folder("postgres")?;
    let data = folder.join("data");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777))?;
    let mut initdb = Command::new("setpriv");
    initdb.args(AS_POSTGRES).arg(bin.join("initdb")).current_dir(&folder);
    initdb.args(["--auth=trust", "-U", "bench", "-E", "UTF8", "--no-locale", "--no-sync", "-D"]).arg(&data);
    run(initdb, SLOW).context("initdb")?;
    fs::write(data.join("pg_hba.conf"), "host all all 0.0.0.0/0 trust\nhost all all ::/0 trust\n")?;
    // The library may lie where that user cannot read it: a copy goes with the server.
    let mut command = at.command("sh")?;
    command.current_dir(&folder).args(["-c", AS_ANOTHER, "sh"]).arg(folder.join("preload.so"));
    command.args(AS_POSTGRES).arg("--").arg(bin.join("postgres")).arg("-D").arg(&data);
    command.args(["-p", &at.port.to_string(), "-c", &format!("listen_addresses={}", at.address)]);
    command.args(["-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "autovacuum=off"]);
    let server = Server::start_within(command, at.port, SLOW)?;
    let mut fill = client(at)?;
    fill.args(["-i", "-q", "-s", "2", "postgres"]);
    run(fill, SLOW).context("pgbench -i")?;
    Ok(vec![server])
}

/// The user of PostgreSQL's server.
const AS_POSTGRES: [&str; 3] = ["--reuid=postgres", "--regid=postgres", "--clear-groups"];
/// COPY WORD..: becomes the words behind `setpriv` with the preloaded library, if there is one, taken from a copy. Its path may
/// begin with `/$LIB/../..`, which only the loader knows.
const AS_ANOTHER: &str = "copy=$1; shift; \
     if [ -n \"$LD_PRELOAD\" ]; then library=\"/${LD_PRELOAD##*/../}\"; \
     LD_PRELOAD= cp \"$library\" \"$copy\" && chmod 755 \"$copy\" || exit 1; \
     export LD_PRELOAD=\"$copy\"; fi; exec setpriv \"$@\"";

/// `pgbench -S` of four clients.
pub(super) fn pgbench(sides: &Sides<'_>, seconds: f64) -> Result<Command> {
    let mut command = client(&sides.client)?;
    command.args(["-S", "-n", "-c", "4", "-j", "1", "-T", &whole(seconds).to_string(), "postgres"]);
    Ok(command)
}

fn client(at: &Site<'_>) -> Result<Command> {
    let program = postgres_folder()?.join("pgbench");
    let mut command = at.command(&program.to_string_lossy())?;
    command.args(["-h", &at.address.to_string(), "-p", &at.port.to_string(), "-U", "bench"]);
    Ok(command)
}

/// The folder of the newest version's programs.
fn postgres_folder() -> Result<PathBuf> {
    let versions = fs::read_dir(Path::new(POSTGRES_CONTROL)).context("PostgreSQL's versions")?.flatten();
    let folders = versions.map(|version| version.path().join("bin"));
    let newest = folders.filter(|bin| bin.join("pgbench").is_file()).max();
    newest.context("PostgreSQL has no pgbench")
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

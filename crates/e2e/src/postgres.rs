//! PostgreSQL: a server that forks for each connection, `psql` and `pgbench`.

use crate::program::{Printed, Program, run};
use crate::rig::{Rig, privileges};
use crate::{WORK, package};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A server.
#[derive(Debug)]
pub struct Postgres {
    /// The server.
    pub server: Program,
    bin: PathBuf,
    address: String,
    port: u16,
}

impl Postgres {
    /// Makes a database and starts a server; `None`, loudly, if it is not installed.
    ///
    /// # Errors
    /// It does not listen.
    pub fn start(rig: &Rig, host: &str, port: u16) -> Result<Option<Self>> {
        let Some(bin) = folder() else {
            package::skip("postgres is not installed; scripts/install-packages.sh test installs it");
            return Ok(None);
        };
        let Some(user) = user() else {
            package::skip("postgres in an ordinary user's lab takes itself for root, which it refuses to be");
            return Ok(None);
        };
        let data = rig.file("postgres");
        set_up(&data, &bin, user)?;
        let address = rig.address(host)?.to_string();
        let mut command = rig.command_as(user, host, bin.join("postgres"))?;
        let mut server = Program::start(serving(command.current_dir(rig.folder()), &data, &address, port))?;
        server.listens(port)?;
        server.says("ready to accept connections")?;
        Ok(Some(Self { server, bin, address, port }))
    }

    /// Runs `pgbench` with `more` arguments.
    ///
    /// # Errors
    /// It fails.
    pub fn bench(&self, rig: &Rig, host: &str, more: &[&str]) -> Result<Printed> {
        let mut command = self.client(rig, host, "pgbench")?;
        command.args(more).arg("postgres");
        run(&mut command, WORK)
    }

    /// `pgbench` for this server, without arguments of its own.
    ///
    /// # Errors
    /// There is no such host.
    pub fn benching(&self, rig: &Rig, host: &str) -> Result<Command> {
        self.client(rig, host, "pgbench")
    }

    /// Runs SQL with `input` (for `COPY .. FROM STDIN`), and returns what it prints, unaligned.
    ///
    /// # Errors
    /// It fails.
    pub fn sql(&self, rig: &Rig, host: &str, sql: &str, input: &[u8]) -> Result<Vec<u8>> {
        let mut command = self.client(rig, host, "psql")?;
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", "postgres", "-c", sql]);
        Ok(Program::start_with(&mut command, input)?.finish(WORK)?.output)
    }

    fn client(&self, rig: &Rig, host: &str, program: &str) -> Result<Command> {
        let mut command = rig.command(host, self.bin.join(program))?;
        command.args(["-h", &self.address, "-p", &self.port.to_string(), "-U", "bench"]);
        Ok(command)
    }
}

/// Makes the folder `data` of a database that trusts everybody.
///
/// # Errors
/// `initdb` fails.
pub fn set_up(data: &Path, bin: &Path, user: &str) -> Result<()> {
    fs::create_dir(data)?;
    run(Command::new("chown").arg(user).arg(data), WORK)?;
    let mut initdb = Command::new("setpriv");
    initdb.args(privileges(user)?).arg(bin.join("initdb")).current_dir(data);
    initdb.args(["--auth=trust", "-U", "bench", "-E", "UTF8", "--no-locale", "--no-sync", "-D"]);
    run(initdb.arg(data), WORK).context("initdb")?;
    fs::write(data.join("pg_hba.conf"), "host all all 0.0.0.0/0 trust\nhost all all ::/0 trust\n")?;
    Ok(())
}

/// Tells the command of a server where its data are and where it is to listen.
pub fn serving<'a>(command: &'a mut Command, data: &Path, address: &str, port: u16) -> &'a mut Command {
    command.arg("-D").arg(data).args(["-p", &port.to_string()]);
    command.args(["-c", &format!("listen_addresses={address}"), "-c", "unix_socket_directories="]);
    command.args(["-c", "fsync=off", "-c", "autovacuum=off"])
}

/// The user that a server of root's must run as: it refuses to be root.
pub fn user() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let known = users.lines().any(|line| line.starts_with("postgres:"));
    Some(if known { "postgres" } else { "nobody" })
}

/// The folder of the newest version's programs.
pub fn folder() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let mut found: Vec<PathBuf> = versions
        .map(|version| version.path().join("bin"))
        .filter(|bin| ["initdb", "postgres", "pgbench", "psql"].iter().all(|p| bin.join(p).is_file()))
        .collect();
    found.sort();
    found.pop().or_else(|| package::find("postgres").and_then(|path| path.parent().map(Path::to_owned)))
}

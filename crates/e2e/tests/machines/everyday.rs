//! Everyday programs between machines: scp, nginx with curl, and PostgreSQL with pgbench, while a cable is pulled and the machine
//! between is reset. What arrives is compared.

use crate::{BEGUN, PATIENCE, TRIES, moved, output, program, sent};
use anyhow::{Context, Result, bail, ensure};
use crosslane_e2e::postgres;
use crosslane_e2e::program::{Program, run};
use crosslane_e2e::rig::{open_folder, privileges};
use crosslane_e2e::{WORK, package, payload, wait_for};
use crosslane_lab::{Lab, Preload};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Bytes of the file that is copied.
const FILE: u64 = 100 << 20;
/// Ports of the servers.
const SSH: u16 = 2200;
const WEB: u16 = 8200;
const SQL: u16 = 5400;
/// How often a client's transactions are done by each of pgbench's clients.
const TRANSACTIONS: u64 = 150;
const CLIENTS: u64 = 4;

/// Files that all machines see, as they were before the machines read them.
pub(crate) struct Place {
    folder: TempDir,
    sum: String,
}

impl Place {
    /// A file to copy, and keys, made on the machine that all others share the root of.
    pub(crate) fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("crosslane-machines.").tempdir()?;
        open_folder(folder.path())?;
        let place = Self { folder, sum: String::new() };
        payload::file(&place.path("file"), 5, FILE)?;
        let sum = run(Command::new("sha256sum").arg(place.path("file")), WORK)?.text();
        for name in ["host", "user"] {
            let mut keygen = Command::new("ssh-keygen");
            run(keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(place.path(name)), WORK)?;
        }
        Ok(Self { sum: sum.split(' ').next().unwrap_or_default().to_owned(), ..place })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) -> Result<String> {
        fs::write(self.path(name), text)?;
        Ok(self.text(name))
    }
}

/// Waits until a daemon knows a server of its host on this port.
fn listens(lab: &Lab, host: &str, port: u16, server: &Program) -> Result<()> {
    wait_for(&format!("a server listens on port {port}"), PATIENCE, || {
        let status = lab.status(host).map_err(|error| error.to_string())?;
        let is_known = status.listeners.iter().any(|address| address.port() == port);
        if is_known { Ok(()) } else { Err(server.tail()) }
    })
}

/// Starts a client until its bytes go by a stream: `host` has sent a part of them.
fn begun(lab: &Lab, host: &str, words: &[&str]) -> Result<Program> {
    for _ in 0..TRIES {
        let before = sent(lab, host)?;
        let mut client = Program::start(&mut program(lab, "h1", words)?)?;
        let begun = wait_for("the client has begun", BEGUN, || {
            let now = sent(lab, host).map_err(|error| error.to_string())? - before;
            if now > FILE / 16 || client.is_over() { Ok(now) } else { Err(format!("{now} bytes")) }
        });
        if begun.is_ok_and(|bytes| bytes > FILE / 16) {
            return Ok(client);
        }
        client.end();
    }
    bail!("no connection of {TRIES} became a stream")
}

/// A file is copied while its cable is pulled; the cable stays so.
pub(crate) fn scp_goes_on_through_a_cut(lab: &mut Lab, place: &Place) -> Result<()> {
    let address = lab.address("h2")?.to_string();
    let keys = place.folder.path().display();
    fs::copy(place.path("user.pub"), place.path("authorized"))?;
    let config = place.write(
        "sshd.conf",
        &format!(
            "ListenAddress {address}\nPort {SSH}\nHostKey {keys}/host\nAuthorizedKeysFile {keys}/authorized\nPidFile none\n\
             StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\nSubsystem sftp internal-sftp\n"
        ),
    )?;
    let script = format!("mkdir -p /run/sshd && exec /usr/sbin/sshd -D -e -f {config}");
    let mut server = Program::start(&mut program(lab, "h2", &["sh", "-c", &script])?)?;
    listens(lab, "h2", SSH, &server)?;
    let (key, file, port) = (place.text("user"), place.text("file"), SSH.to_string());
    let to = format!("{address}:/tmp/there");
    let options =
        ["BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR"];
    let mut words = vec!["scp", "-i", &key, "-F", "none", "-P", &port];
    words.extend(options.iter().flat_map(|option| ["-o", option]));
    words.extend([file.as_str(), &to]);
    let before = moved(lab)?;
    let client = begun(lab, "h1", &words)?;
    ensure!(lab.cut("h1", "h2")?.changed, "the cable was cut already");
    client.finish(PATIENCE)?;
    let there = output(lab, "h2", &["sha256sum", "/tmp/there"])?.text();
    ensure!(there.starts_with(&place.sum), "another file arrived: {there}, not {}", place.sum);
    ensure!(moved(lab)? > before, "no stream has moved");
    server.end();
    Ok(())
}

/// A file is fetched past the third machine, which is reset meanwhile.
pub(crate) fn curl_goes_on_through_a_reset(lab: &mut Lab, place: &Place) -> Result<()> {
    let (address, root) = (lab.address("h2")?.to_string(), place.folder.path().display());
    let config = place.write(
        "nginx.conf",
        &format!(
            "user root root;\nworker_processes 1;\ndaemon off;\npid /tmp/nginx.pid;\nevents {{ worker_connections 64; }}\n\
             http {{ access_log off; server {{ listen {address}:{WEB}; root {root}; }} }}\n"
        ),
    )?;
    let words = ["nginx", "-e", "stderr", "-c", &config];
    let mut server = Program::start(&mut program(lab, "h2", &words)?)?;
    listens(lab, "h2", WEB, &server)?;
    let script =
        format!("curl -sS --fail --noproxy '*' --limit-rate 4M http://{address}:{WEB}/file | sha256sum");
    let before = moved(lab)?;
    let client = begun(lab, "h2", &["sh", "-c", &script])?;
    lab.mend("h1", "h2")?;
    lab.wait_links(PATIENCE)?;
    lab.kill_host("h3")?;
    let got = client.finish(PATIENCE)?;
    ensure!(got.text().starts_with(&place.sum), "other bytes came: {}, {}", got.text(), got.errors);
    ensure!(moved(lab)? > before, "no stream has moved");
    server.end();
    lab.start_daemon("h3")?;
    lab.wait_host("h3", PATIENCE)?;
    Ok(lab.wait_links(PATIENCE)?)
}

/// Transactions are done, each once, while a cable is pulled.
pub(crate) fn pgbench_goes_on_through_a_cut(lab: &mut Lab, place: &Place) -> Result<()> {
    let (Some(bin), Some(user)) = (postgres::folder(), postgres::user()) else {
        package::skip("postgres is not installed, or this is no root");
        return Ok(());
    };
    let address = lab.address("h2")?.to_string();
    let mut server = database(lab, place, (&bin, user), &address)?;
    listens(lab, "h2", SQL, &server)?;
    server.says("ready to accept connections")?;
    let (pgbench, psql, port) =
        (bin.join("pgbench").display().to_string(), bin.join("psql").display().to_string(), SQL.to_string());
    let at = ["-h", &address, "-p", &port, "-U", "bench"];
    output(lab, "h1", &[&[pgbench.as_str()], &at[..], &["-i", "-q", "-s", "1", "postgres"]].concat())?;
    let (clients, each) = (CLIENTS.to_string(), TRANSACTIONS.to_string());
    let words =
        [&[pgbench.as_str()], &at[..], &["-P", "1", "-c", &clients, "-j", "2", "-t", &each, "postgres"]]
            .concat();
    let mut bench = Program::start(&mut program(lab, "h1", &words)?)?;
    bench.says("progress: ")?;
    ensure!(lab.cut("h1", "h2")?.changed, "the cable was cut already");
    let text = bench.finish(PATIENCE)?.text();
    let all = CLIENTS * TRANSACTIONS;
    ensure!(text.contains(&format!("actually processed: {all}/{all}")), "{text}");
    let sums = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history), \
                (SELECT count(*) FROM pgbench_history)";
    let query = [&[psql.as_str()], &at[..], &["-X", "-A", "-t", "-d", "postgres", "-c", sums]].concat();
    let got = output(lab, "h1", &query)?.text();
    ensure!(got.trim() == format!("t|{all}"), "other sums: {got}");
    server.end();
    lab.mend("h1", "h2")?;
    Ok(lab.wait_links(PATIENCE)?)
}

/// A database server in the second machine, whose data were made on the shared root.
fn database(lab: &Lab, place: &Place, (bin, user): (&Path, &str), address: &str) -> Result<Program> {
    let data = place.path("postgres");
    fs::create_dir(&data)?;
    run(Command::new("chown").arg(user).arg(&data), WORK)?;
    let mut initdb = Command::new("setpriv");
    initdb.args(privileges(user)?).arg(bin.join("initdb")).current_dir(place.folder.path());
    initdb.args(["--auth=trust", "-U", "bench", "-E", "UTF8", "--no-locale", "--no-sync", "-D"]);
    run(initdb.arg(&data), WORK).context("initdb")?;
    fs::write(data.join("pg_hba.conf"), "host all all 0.0.0.0/0 trust\n")?;
    let library = lab.state().sockets.clone().context("the socket library was not built")?;
    let copy = place.path("libcrosslane_sockets.so");
    fs::copy(&library, &copy)?;
    let mut server = lab.command("h2", Preload::Off, "setpriv")?;
    server.args(privileges(user)?).arg("env").arg(format!("LD_PRELOAD={}", copy.display()));
    server.arg(bin.join("postgres")).arg("-D").arg(&data).args(["-p", &SQL.to_string()]);
    for setting in
        [&format!("listen_addresses={address}"), "unix_socket_directories=", "fsync=off", "autovacuum=off"]
    {
        server.args(["-c", setting]);
    }
    Program::start(server.current_dir("/"))
}

//! Everyday programs between machines: scp, nginx with curl, and PostgreSQL with pgbench, while a cable is pulled and the machine
//! between is reset. What arrives is compared.

use crate::{PATIENCE, begun, moved, output, program};
use anyhow::{Context, Result, bail, ensure};
use crosslane_e2e::program::{Program, run};
use crosslane_e2e::rig::{open_folder, privileges};
use crosslane_e2e::{WORK, nginx, openssh, package, payload, postgres, wait_for};
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
    /// A file to copy, made on the machine that all others share the root of.
    pub(crate) fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("crosslane-machines.").tempdir()?;
        open_folder(folder.path())?;
        let place = Self { folder, sum: String::new() };
        payload::file(&place.path("file"), 5, FILE)?;
        let sum = run(Command::new("sha256sum").arg(place.path("file")), WORK)?.text();
        Ok(Self { sum: sum.split(' ').next().unwrap_or_default().to_owned(), ..place })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
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

/// A file is copied while its cable is pulled; the cable stays so.
pub(crate) fn scp_goes_on_through_a_cut(lab: &mut Lab, place: &Place) -> Result<()> {
    let address = lab.address("h2")?.to_string();
    let keys = place.path("ssh");
    openssh::set_up(&keys, &address, SSH)?;
    let script = format!("mkdir -p /run/sshd && exec /usr/sbin/sshd -D -e -f {}/config", keys.display());
    let mut server = Program::start(&mut program(lab, "h2", &["sh", "-c", &script])?)?;
    listens(lab, "h2", SSH, &server)?;
    let mut scp = Command::new("scp");
    openssh::identify(&keys, &mut scp);
    scp.args(["-P", &SSH.to_string()]).arg(place.path("file")).arg(format!("{address}:/tmp/there"));
    let words: Vec<&str> =
        [scp.get_program()].into_iter().chain(scp.get_args()).filter_map(|word| word.to_str()).collect();
    let before = moved(lab)?;
    let client = begun(lab, "h1", &words, FILE / 16)?;
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
    let (address, at) = (lab.address("h2")?.to_string(), place.path("nginx"));
    let setup = nginx::Setup { sendfile: true, tls: false };
    let config = nginx::set_up(&at, &address, WEB, place.folder.path(), setup)?.display().to_string();
    let mut server = Program::start(&mut program(lab, "h2", &["nginx", "-e", "stderr", "-c", &config])?)?;
    listens(lab, "h2", WEB, &server)?;
    let file = place.path("file").display().to_string();
    let fetch =
        format!("curl -sS --fail --noproxy '*' --limit-rate 4M -o /tmp/got http://{address}:{WEB}/file");
    let script = format!("{fetch} && sha256sum /tmp/got");
    let before = moved(lab)?;
    let client = begun(lab, "h2", &["sh", "-c", &script], FILE / 16)?;
    lab.mend("h1", "h2")?;
    lab.wait_links(PATIENCE)?;
    lab.kill_host("h3")?;
    let got = client.finish(PATIENCE)?;
    if !got.text().starts_with(&place.sum) {
        // Where they differ: how long it is, how many bytes do, and the first.
        let differ =
            format!("wc -c /tmp/got; cmp -l /tmp/got {file} | wc -l; cmp -l /tmp/got {file} | head -n 3");
        bail!("other bytes came: {}", output(lab, "h1", &["sh", "-c", &differ])?.text());
    }
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
    postgres::set_up(&data, bin, user)?;
    let library = lab.state().sockets.clone().context("the socket library was not built")?;
    let copy = place.path("libcrosslane_sockets.so");
    fs::copy(&library, &copy)?;
    let mut server = lab.command("h2", Preload::Off, "setpriv")?;
    server.args(privileges(user)?).arg("env").arg(format!("LD_PRELOAD={}", copy.display()));
    server.arg(bin.join("postgres")).current_dir("/");
    Program::start(postgres::serving(&mut server, &data, address, SQL))
}

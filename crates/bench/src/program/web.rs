//! nginx: requests by wrk or ab, connections by ab.

use super::process::{Server, find, run};
use super::{LIMIT, Metric, Program};
use crate::figure::Unit;
use crate::place::Place;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes of the small file.
const SMALL: usize = 4096;
/// Bytes of the large file. Sparse, so that the disk does not matter.
pub(super) const LARGE: u64 = 256 << 20;

/// Keep-alive requests for 4 KB over 16 connections.
pub(super) fn requests() -> Program {
    Program {
        name: "nginx",
        needs: if find("wrk").is_some() { &["nginx", "wrk"] } else { &["nginx", "ab"] },
        metrics: const { &[Metric::new("4 KB, 16 connections", Unit::PerSecond)] },
        serve,
        measure: |place, port, effort| {
            if find("wrk").is_none() {
                let requests = (40_000 * effort.seconds()).to_string();
                return ab(place, port, &["-q", "-k", "-c", "16", "-n", &requests]);
            }
            let mut command = place.client("wrk")?;
            command.args(["-t1", "-c16", &format!("-d{}s", effort.seconds()), &url(place, port, "small")]);
            Ok(vec![number(&run(command, LIMIT)?, "Requests/sec:")?])
        },
    }
}

/// A connection for each request.
pub(super) const CONNECTIONS: Program = Program {
    name: "ab",
    needs: &["nginx", "ab"],
    metrics: &[Metric::new("a connection a request", Unit::PerSecond).bar(0.5, Some(1.0))],
    serve,
    measure: |place, port, effort| {
        ab(place, port, &["-q", "-c", "1", "-n", &(1000 * effort.seconds()).to_string()])
    },
};

fn ab(place: &dyn Place, port: u16, words: &[&str]) -> Result<Vec<f64>> {
    let mut command = place.client("ab")?;
    command.args(words).arg(url(place, port, "small"));
    Ok(vec![number(&run(command, LIMIT)?, "Requests per second:")?])
}

/// Starts nginx in the foreground, with everything that it writes in the place's folder.
pub(super) fn serve(place: &dyn Place, port: u16) -> Result<Server> {
    let folder = place.folder().join(format!("nginx-{port}"));
    fs::create_dir_all(&folder).context("cannot make a folder for nginx")?;
    let files = files(place.folder())?;
    Server::start(nginx(place.server("nginx")?, &folder, &files, &port.to_string())?, port)
}

/// nginx, which writes all that it writes in `folder`, and serves `files` at `listen`.
pub(crate) fn nginx(mut nginx: Command, folder: &Path, files: &Path, listen: &str) -> Result<Command> {
    let settings = folder.join("nginx.conf");
    fs::write(&settings, configuration(folder, files, listen))?;
    nginx.arg("-c").arg(settings).args(["-e", "stderr"]);
    Ok(nginx)
}

/// The folder of the files that are served, all read once, so that no run meets a cold cache.
fn files(folder: &Path) -> Result<PathBuf> {
    let files = folder.join("files");
    fs::create_dir_all(&files)?;
    fs::write(files.join("small"), vec![b'x'; SMALL])?;
    if !files.join("large").exists() {
        fs::File::create(files.join("large"))?.set_len(LARGE)?;
    }
    std::io::copy(&mut fs::File::open(files.join("large"))?, &mut std::io::sink())?;
    Ok(files)
}

fn configuration(folder: &Path, files: &Path, listen: &str) -> String {
    let (folder, files) = (folder.display(), files.display());
    let user = if rustix::process::getuid().is_root() { "user root;" } else { "" };
    format!(
        "{user} daemon off; worker_processes 1; pid {folder}/pid; error_log stderr crit;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; keepalive_requests 10000000; sendfile on;\n\
         client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;\n\
         fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;\n\
         server {{ listen {listen}; root {files}; }} }}\n"
    )
}

pub(super) fn url(place: &dyn Place, port: u16, file: &str) -> String {
    format!("http://{}/{file}", std::net::SocketAddr::new(place.address(), port))
}

/// The number that stands behind `label`.
fn number(out: &str, label: &str) -> Result<f64> {
    let rest = out.split_once(label).with_context(|| format!("no {label:?} was printed"))?.1;
    rest.split_whitespace().next().unwrap_or_default().parse().context("no number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrk_and_ab_rates_are_parsed() {
        assert_eq!(number(include_str!("../captured/wrk.txt"), "Requests/sec:").unwrap(), 57405.59);
        assert_eq!(number(include_str!("../captured/ab.txt"), "Requests per second:").unwrap(), 15540.98);
        assert!(number("", "Requests/sec:").is_err());
    }
}

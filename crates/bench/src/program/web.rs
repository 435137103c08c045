//! nginx: requests by wrk or ab, connections by ab.

use super::process::{Server, find, run};
use super::{Effort, LIMIT, Metric, Program};
use crate::figure::Unit;
use crate::place::Place;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of the small file.
const SMALL: usize = 4096;
/// Bytes of the large file. Sparse, so that the disk does not matter.
pub(super) const LARGE: u64 = 256 << 20;

/// Keep-alive requests for 4 KB over 16 connections.
#[derive(Debug)]
pub(super) struct Requests;

/// A connection for each request.
#[derive(Debug)]
pub(super) struct Connections;

impl Program for Requests {
    fn name(&self) -> &'static str {
        "nginx"
    }

    fn needs(&self) -> &'static [&'static str] {
        if find("wrk").is_some() { &["nginx", "wrk"] } else { &["nginx", "ab"] }
    }

    fn metrics(&self) -> Vec<Metric> {
        vec![Metric::new("4 KB, 16 connections", Unit::PerSecond)]
    }

    fn serve(&self, place: &dyn Place, port: u16) -> Result<Server> {
        serve(place, port)
    }

    fn measure(&self, place: &dyn Place, port: u16, effort: Effort) -> Result<Vec<f64>> {
        let url = url(place, port, "small");
        if find("wrk").is_some() {
            let mut command = place.client("wrk")?;
            command.args(["-t1", "-c16", &format!("-d{}s", effort.seconds()), &url]);
            return Ok(vec![number(&run(command, LIMIT)?, "Requests/sec:")?]);
        }
        let mut command = place.client("ab")?;
        let requests = 40_000 * effort.seconds();
        command.args(["-q", "-k", "-c", "16", "-n", &requests.to_string(), &url]);
        Ok(vec![number(&run(command, LIMIT)?, "Requests per second:")?])
    }
}

impl Program for Connections {
    fn name(&self) -> &'static str {
        "ab"
    }

    fn needs(&self) -> &'static [&'static str] {
        &["nginx", "ab"]
    }

    fn metrics(&self) -> Vec<Metric> {
        vec![Metric::new("a connection a request", Unit::PerSecond).bar(0.5, Some(1.0))]
    }

    fn serve(&self, place: &dyn Place, port: u16) -> Result<Server> {
        serve(place, port)
    }

    fn measure(&self, place: &dyn Place, port: u16, effort: Effort) -> Result<Vec<f64>> {
        let mut command = place.client("ab")?;
        let requests = 1000 * effort.seconds();
        command.args(["-q", "-c", "1", "-n", &requests.to_string(), &url(place, port, "small")]);
        Ok(vec![number(&run(command, LIMIT)?, "Requests per second:")?])
    }
}

/// Starts nginx in the foreground, with everything that it writes in the place's folder.
pub(super) fn serve(place: &dyn Place, port: u16) -> Result<Server> {
    let folder = place.folder().join(format!("nginx-{port}"));
    fs::create_dir_all(&folder).context("cannot make a folder for nginx")?;
    let files = files(place.folder())?;
    let file = folder.join("nginx.conf");
    fs::write(&file, configuration(&folder, &files, port))?;
    let mut command = place.server("nginx")?;
    command.arg("-c").arg(&file).args(["-e", "stderr"]);
    Server::start(command, port)
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

fn configuration(folder: &Path, files: &Path, port: u16) -> String {
    let (folder, files) = (folder.display(), files.display());
    let user = if rustix::process::getuid().is_root() { "user root;" } else { "" };
    format!(
        "{user} daemon off; worker_processes 1; pid {folder}/pid; error_log stderr crit;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; keepalive_requests 10000000; sendfile on;\n\
         client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;\n\
         fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;\n\
         server {{ listen {port}; root {files}; }} }}\n"
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
    fn rates_of_wrk_and_ab_are_read() {
        assert_eq!(number(include_str!("../captured/wrk.txt"), "Requests/sec:").unwrap(), 57405.59);
        assert_eq!(number(include_str!("../captured/ab.txt"), "Requests per second:").unwrap(), 15540.98);
        assert!(number("", "Requests/sec:").is_err());
    }
}

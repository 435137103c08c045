//! A remote block device: nbdkit's memory, and fio as its user. Both are unmodified programs.

use crate::place::Place;
use crate::program::process::{Server, run};
use anyhow::{Context, Result, ensure};
use crosslane_apps::need::Need;
use crosslane_client::session::{FILES, OWN_CALLS_VARIABLE};
use serde_json::Value;
use std::time::Duration;

/// What must be installed.
pub(super) const NEEDS: &[Need] = &[Need::new("nbdkit", "nbdkit"), Need::new("fio", "fio")];
/// Bytes of the device.
const SIZE: &str = "256M";
/// How long fio may take in addition to the time that it measures.
const BESIDE: Duration = Duration::from_secs(20);

/// How the device is used, as IOzone's tests do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    /// Its name.
    pub name: &'static str,
    /// As fio calls it.
    way: &'static str,
    /// Bytes of a request, as fio takes them.
    size: &'static str,
    /// Requests at a time.
    depth: &'static str,
}

/// Those that are measured.
pub(super) const PATTERNS: [Pattern; 6] = [
    Pattern { name: "write, 1 MB", way: "write", size: "1m", depth: "4" },
    Pattern { name: "read, 1 MB", way: "read", size: "1m", depth: "4" },
    Pattern { name: "write, 64 KB", way: "write", size: "64k", depth: "4" },
    Pattern { name: "read, 64 KB", way: "read", size: "64k", depth: "4" },
    Pattern { name: "random write, 4 KB", way: "randwrite", size: "4k", depth: "16" },
    Pattern { name: "random read, 4 KB", way: "randread", size: "4k", depth: "16" },
];

/// A device that is served at a place.
#[derive(Debug)]
pub(super) struct Device {
    port: u16,
    _server: Server,
}

impl Device {
    /// Serves it.
    ///
    /// # Errors
    /// nbdkit does not listen.
    pub(super) fn serve(place: &dyn Place) -> Result<Self> {
        let (port, mut server) = (place.port()?, place.server("nbdkit")?);
        server.args(["-f", "-p", &port.to_string(), "memory", SIZE]);
        Ok(Self { port, _server: Server::start(server, port)? })
    }

    /// MB (10^6) a second by a pattern, in so much time.
    ///
    /// # Errors
    /// fio fails, or no stream carried it where there are streams.
    pub(super) fn rate(&self, place: &dyn Place, pattern: &Pattern, time: Duration) -> Result<f64> {
        let mut client = place.client("fio")?;
        // It has system calls of its own for files, and says nothing of sockets by them.
        client.env(OWN_CALLS_VARIABLE, FILES);
        let uri = format!("--uri=nbd://{}:{}/", place.address(), self.port);
        client.args(["--name=crosslane", "--ioengine=nbd", "--thread", "--time_based", &uri]);
        client.arg(format!("--rw={}", pattern.way)).arg(format!("--bs={}", pattern.size));
        client.arg(format!("--iodepth={}", pattern.depth)).arg(format!("--size={SIZE}"));
        client.arg(format!("--runtime={}ms", time.as_millis())).arg("--output-format=json");
        let before = place.carried();
        let said = run(client, BESIDE + time)?;
        ensure!(before.is_none() || place.carried() > before, "no stream carried it");
        rate_of(&said)
    }
}

/// The rate in fio's report, which lines of its engine precede.
fn rate_of(said: &str) -> Result<f64> {
    let begin = said.find('{').context("fio reports nothing")?;
    let report: Value = serde_json::from_str(&said[begin..]).context("fio's report")?;
    let job = &report["jobs"][0];
    ensure!(job["error"] == 0, "fio: error {}", job["error"]);
    let rate = |way: &str| job[way]["bw_bytes"].as_f64().unwrap_or(0.0);
    let rate = rate("read") + rate("write");
    ensure!(rate > 0.0, "nothing was read or written");
    Ok(rate / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_rate_is_read_behind_the_engines_words() {
        let said = r#"fio: connected to NBD server
{"fio version": "fio-3.33", "jobs": [{"error": 0, "read": {"bw_bytes": 0}, "write": {"bw_bytes": 250000000}}]}"#;
        assert_eq!(rate_of(said).unwrap(), 250.0);
        assert!(rate_of("nothing").is_err());
        assert!(rate_of(r#"{"jobs": [{"error": 5, "read": {"bw_bytes": 1}}]}"#).is_err());
    }
}

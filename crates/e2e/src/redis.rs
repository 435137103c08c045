//! Redis: its server, its benchmark, and values of any size.

use crate::payload;
use crate::program::{Printed, Program, run};
use crate::rig::Rig;
use crate::{WORK, package};
use anyhow::{Result, ensure};
use std::path::PathBuf;

/// Redis's programs.
#[derive(Clone, Debug)]
pub struct Redis {
    server: PathBuf,
    benchmark: PathBuf,
    cli: PathBuf,
}

impl Redis {
    /// Finds them; `None`, loudly, if one is missing.
    pub fn find() -> Option<Self> {
        Some(Self {
            server: package::need("redis-server")?,
            benchmark: package::need("redis-benchmark")?,
            cli: package::need("redis-cli")?,
        })
    }

    /// Starts a server without persistence on all addresses of a host.
    ///
    /// # Errors
    /// It does not listen.
    pub fn server(&self, rig: &Rig, host: &str, port: u16) -> Result<Program> {
        let mut command = rig.command(host, &self.server)?;
        command.args(["--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
        command.args(["--protected-mode", "no", "--dir"]).arg(rig.folder());
        let mut server = Program::start(&mut command)?;
        server.listens(port)?;
        Ok(server)
    }

    /// Runs `requests` SET and as many GET from `clients` connections.
    ///
    /// # Errors
    /// It fails, or prints no rate for one of the two.
    pub fn benchmark(
        &self,
        rig: &Rig,
        host: &str,
        to: &str,
        port: u16,
        clients: u32,
        requests: u32,
    ) -> Result<()> {
        let mut command = rig.command(host, &self.benchmark)?;
        command.args(["-h", to, "-p", &port.to_string(), "-t", "set,get", "-d", "64", "-q"]);
        command.args(["-c", &clients.to_string(), "-n", &requests.to_string()]);
        let text = run(&mut command, WORK)?.text();
        for test in ["SET: ", "GET: "] {
            let rate = text
                .split(['\r', '\n'])
                .any(|line| line.starts_with(test) && line.contains("requests per second"));
            ensure!(rate, "redis-benchmark has no rate for {test}: {text}");
        }
        Ok(())
    }

    /// Runs one command, whose last argument is `input` if that is given.
    ///
    /// # Errors
    /// It fails.
    pub fn command(
        &self,
        rig: &Rig,
        host: &str,
        to: &str,
        port: u16,
        words: &[&str],
        input: Option<&[u8]>,
    ) -> Result<Printed> {
        let mut command = rig.command(host, &self.cli)?;
        command.args(["-h", to, "-p", &port.to_string(), "--raw"]);
        if input.is_some() {
            command.arg("-x");
        }
        Program::start_with(command.args(words), input.unwrap_or_default())?.finish(WORK)
    }

    /// Sets a value of `len` bytes, and gets it back.
    ///
    /// # Errors
    /// What comes back is another.
    pub fn big_value(&self, rig: &Rig, host: &str, to: &str, port: u16, len: usize) -> Result<()> {
        let value = payload::bytes(len as u64, len);
        let set = self.command(rig, host, to, port, &["SET", "big"], Some(&value))?;
        ensure!(set.text().trim() == "OK", "SET says {}", set.text());
        let mut got = self.command(rig, host, to, port, &["GET", "big"], None)?.output;
        // redis-cli ends what it prints with a line end.
        ensure!(got.pop() == Some(b'\n'), "GET printed nothing");
        payload::equal(&value, &got)
    }
}

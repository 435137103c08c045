//! OpenSSH: a server with keys and configuration of its own, and `scp`.

use crate::program::{Program, run};
use crate::rig::Rig;
use crate::{WORK, package};
use anyhow::Result;
use crosslane_apps::openssh::Separation;
pub use crosslane_apps::openssh::{identify, set_up};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long a copy of 1 GB may take.
const COPY: Duration = Duration::from_secs(120);

/// How a program is started in a host.
type By = fn(&Rig, &str, PathBuf) -> Result<Command>;

/// A server, and the keys and options of its client.
#[derive(Debug)]
pub struct Sshd {
    /// The server.
    pub server: Program,
    scp: PathBuf,
    ssh: PathBuf,
    keys: PathBuf,
    port: u16,
    address: String,
    _separation: Separation,
}

impl Sshd {
    /// Starts a server; `None`, loudly, if a program is missing.
    ///
    /// # Errors
    /// It does not listen.
    pub fn start(rig: &Rig, host: &str, port: u16) -> Result<Option<Self>> {
        Self::start_by(Rig::command, rig, host, port)
    }

    /// As [`Self::start`], without acceleration.
    ///
    /// # Errors
    /// It does not listen.
    pub fn start_plain(rig: &Rig, host: &str, port: u16) -> Result<Option<Self>> {
        Self::start_by(Rig::plain, rig, host, port)
    }

    fn start_by(by: By, rig: &Rig, host: &str, port: u16) -> Result<Option<Self>> {
        let (Some(sshd), Some(scp), Some(ssh)) =
            (package::need("sshd"), package::need("scp"), package::need("ssh"))
        else {
            return Ok(None);
        };
        if !rustix::process::geteuid().is_root() {
            package::skip(
                "sshd in an ordinary user's lab takes itself for root and finds /run/sshd not its own",
            );
            return Ok(None);
        }
        let (keys, address) = (rig.file("ssh"), rig.address(host)?.to_string());
        set_up(&keys, &address, port)?;
        let separation = Separation::ready()?;
        let mut command = by(rig, host, sshd)?;
        let mut server = Program::start(command.args(["-D", "-e", "-f"]).arg(keys.join("config")))?;
        server.listens(port)?;
        Ok(Some(Self { server, scp, ssh, keys, port, address, _separation: separation }))
    }

    /// Copies a file to the server; `legacy` uses the old protocol of `scp` rather than SFTP.
    ///
    /// # Errors
    /// It fails.
    pub fn send(&self, rig: &Rig, host: &str, file: &Path, to: &Path, legacy: bool) -> Result<()> {
        let mut command = rig.command(host, &self.scp)?;
        self.identify(&mut command);
        if legacy {
            command.arg("-O");
        }
        command.arg("-P").arg(self.port.to_string()).arg(file);
        run(command.arg(format!("{}:{}", self.address, to.display())), COPY)?;
        Ok(())
    }

    /// The command that copies a file to the server, at so many kbit/s at most.
    ///
    /// # Errors
    /// There is no such host.
    pub fn sending(&self, rig: &Rig, host: &str, [file, to]: [&Path; 2], kilobits: u32) -> Result<Command> {
        let mut command = rig.command(host, &self.scp)?;
        self.identify(&mut command);
        command.args(["-P", &self.port.to_string(), "-l", &kilobits.to_string()]).arg(file);
        command.arg(format!("{}:{}", self.address, to.display()));
        Ok(command)
    }

    /// Copies a file from the server.
    ///
    /// # Errors
    /// It fails.
    pub fn fetch(&self, rig: &Rig, host: &str, from: &Path, file: &Path) -> Result<()> {
        let mut command = rig.command(host, &self.scp)?;
        self.identify(&mut command);
        command.arg("-P").arg(self.port.to_string());
        run(command.arg(format!("{}:{}", self.address, from.display())).arg(file), COPY)?;
        Ok(())
    }

    /// Runs a command on the server with `input`, and returns what it prints.
    ///
    /// # Errors
    /// It fails.
    pub fn execute(&self, rig: &Rig, host: &str, words: &str, input: &[u8]) -> Result<Vec<u8>> {
        let mut command = rig.command(host, &self.ssh)?;
        self.identify(&mut command);
        command.arg("-p").arg(self.port.to_string()).arg(&self.address).arg(words);
        Ok(Program::start_with(&mut command, input)?.finish(WORK)?.output)
    }

    fn identify(&self, command: &mut Command) {
        identify(&self.keys, command);
    }
}

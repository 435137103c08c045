//! OpenSSH: a server with keys and configuration of its own, and its clients.

use crate::Site;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

/// OpenSSH's server, which only runs by its whole path.
pub const SSHD: &str = "/usr/sbin/sshd";
/// Where the unprivileged part of a server of root's runs.
const SEPARATE: &str = "/run/sshd";
/// MB (10^6) of a file that is copied.
const FILE: u64 = 64;
/// Such files that a second is enough for.
const FILES_PER_SECOND: f64 = 4.0;
/// FILE TO COPIES MB SCP..: copies a file so many times by one `scp`, and prints the work that this was. The time includes that of connecting.
const TIMED: &str = "file=$1 to=$2 copies=$3 mb=$4; shift 4; for copy in $(seq \"$copies\"); do set -- \"$@\" \"$file\"; done; \
     begin=$(date +%s%N); \"$@\" \"$to\" || exit; end=$(date +%s%N); \
     echo \"{\\\"count\\\": $((copies * mb)), \\\"seconds\\\": $((end - begin))e-9}\"";

/// The folder that a server of root's needs, if it had to be made: removed with this.
#[derive(Debug)]
pub struct Separation(Option<PathBuf>);

impl Separation {
    /// Makes the folder, if it is missing.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn ready() -> Result<Self> {
        match fs::create_dir(SEPARATE) {
            Ok(()) => Ok(Self(Some(SEPARATE.into()))),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Self(None)),
            Err(error) => Err(error).with_context(|| format!("create {SEPARATE}")),
        }
    }
}

impl Drop for Separation {
    fn drop(&mut self) {
        let _ = self.0.take().map(fs::remove_dir);
    }
}

/// A server, whose keys lie in a folder of its own.
///
/// # Errors
/// As [`set_up`].
pub fn server(at: &Site<'_>) -> Result<Command> {
    let keys = keys(at);
    set_up(&keys, &at.address.to_string(), at.port)?;
    let mut command = at.command(SSHD)?;
    command.args(["-D", "-e", "-f"]).arg(keys.join("config"));
    Ok(command)
}

/// A client that copies files to that server for about so many seconds, and prints the megabytes (10^6) and the time
/// ([`crate::work::Work::json`]).
///
/// # Errors
/// The file cannot be written, or the place is gone.
pub fn rate(at: &Site<'_>, seconds: f64) -> Result<Command> {
    let (file, keys) = (at.folder.join("scp-file"), keys(at));
    fs::File::create(&file)?.set_len(FILE * 1_000_000)?;
    let to = format!("{}:{}", at.address, keys.join("copied").display());
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
    let copies = (seconds * FILES_PER_SECOND).ceil().max(1.0) as u32;
    fs::create_dir_all(keys.join("copied"))?;
    let mut command = at.command("sh")?;
    command.args(["-c", TIMED, "sh"]).arg(&file).args([&to, &copies.to_string(), &FILE.to_string(), "scp"]);
    identify(&keys, &mut command);
    command.args(["-q", "-P", &at.port.to_string()]);
    Ok(command)
}

fn keys(at: &Site<'_>) -> PathBuf {
    at.folder.join(format!("ssh-{}", at.port))
}

/// Makes the folder `keys`, with keys for a server and its user, and the server's `config`.
///
/// # Errors
/// A file cannot be written, or `ssh-keygen` fails.
pub fn set_up(keys: &Path, address: &str, port: u16) -> Result<()> {
    fs::create_dir(keys)?;
    for name in ["host", "user"] {
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(keys.join(name)).stdin(Stdio::null());
        let made = keygen.output().context("ssh-keygen")?;
        ensure!(made.status.success(), "ssh-keygen: {}", String::from_utf8_lossy(&made.stderr));
    }
    fs::copy(keys.join("user.pub"), keys.join("authorized"))?;
    fs::write(keys.join("config"), config(keys, address, port))?;
    Ok(())
}

/// Tells a client which key to use of those that [`set_up`] has made, and to ask nobody.
pub fn identify(keys: &Path, command: &mut Command) {
    command.arg("-i").arg(keys.join("user")).args(["-F", "none", "-o", "BatchMode=yes"]);
    command.args(["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]);
    command.args(["-o", "IdentitiesOnly=yes", "-o", "LogLevel=ERROR"]);
}

fn config(keys: &Path, address: &str, port: u16) -> String {
    let at = keys.display();
    format!(
        "ListenAddress {address}\nPort {port}\nHostKey {at}/host\nAuthorizedKeysFile {at}/authorized\n\
         PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n\
         PrintMotd no\nSubsystem sftp internal-sftp\n"
    )
}

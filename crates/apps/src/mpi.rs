//! MPI between two hosts: Open MPI over its TCP transport, MPICH over UCX's. No ssh: processes are started by an agent.

use crate::need::{Need, of};
use crate::{Start, file};
use anyhow::{Context, Result, ensure};
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mpi {
    /// Open MPI.
    Open,
    /// MPICH.
    Mpich,
}

/// The files of a ping-pong between two hosts.
#[derive(Clone, Debug)]
pub struct PingPong {
    mpi: Mpi,
    program: PathBuf,
    agent: PathBuf,
}

/// The two hosts, and the network between them.
#[derive(Clone, Copy)]
pub struct Hosts<'a> {
    /// Name of the first, and how programs are started there.
    pub near: (&'a str, Start<'a>),
    /// Name of the second, and how programs are started there.
    pub far: (&'a str, Start<'a>),
    /// Name of the interface that both use.
    pub interface: &'a str,
}

impl std::fmt::Debug for Hosts<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} and {} by {}", self.near.0, self.far.0, self.interface)
    }
}

impl Mpi {
    /// What must be installed.
    pub const fn needs(self) -> &'static [Need] {
        match self {
            Self::Open => of::OPEN_MPI,
            Self::Mpich => of::MPICH,
        }
    }

    fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Open => ("openmpi", "mpicc.openmpi", "mpirun.openmpi"),
            Self::Mpich => ("mpich", "mpicc.mpich", "mpirun.mpich"),
        }
    }
}

impl PingPong {
    /// Compiles the program and writes the agent.
    ///
    /// # Errors
    /// The compiler fails, or a file cannot be written.
    pub fn prepare(mpi: Mpi, folder: &Path, hosts: &Hosts<'_>) -> Result<Self> {
        let (name, compiler, _) = mpi.words();
        let (source, program) = (
            file(folder, "pingpong.c", include_str!("mpi/pingpong.c"))?,
            folder.join(format!("pingpong-{name}")),
        );
        if !program.exists() {
            let made = Command::new(compiler).args(["-O2", "-o"]).arg(&program).arg(source).output();
            let made = made.with_context(|| format!("start {compiler}"))?;
            ensure!(made.status.success(), "{compiler}: {}", String::from_utf8_lossy(&made.stderr));
        }
        // Both hosts may have one file system, and one name to the kernel: they would write to the same files of Open MPI's.
        let own = folder.join("far");
        fs::create_dir_all(&own)?;
        let agent = file(folder, &format!("agent-{name}-{}", hosts.interface), &agent(hosts, &own)?)?;
        fs::set_permissions(&agent, fs::Permissions::from_mode(0o755))?;
        Ok(Self { mpi, program, agent })
    }

    /// Two processes, one on each host; `words` are for the program: `check`, or `rate BYTES SECONDS`.
    ///
    /// # Errors
    /// The near host is gone.
    pub fn command(&self, hosts: &Hosts<'_>, words: &[&str]) -> Result<Command> {
        let (_, _, run) = self.mpi.words();
        let both = format!("{},{}", hosts.near.0, hosts.far.0);
        let interface = hosts.interface;
        let mut command = (hosts.near.1)("env")?;
        match self.mpi {
            Mpi::Open => {
                // Two that spin on two processors would keep daemons and each other from running.
                command.args([
                    "OMPI_ALLOW_RUN_AS_ROOT=1",
                    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                    run,
                    "--host",
                    &both,
                ]);
                command.args(["-np", "2", "--map-by", "node", "--bind-to", "none"]);
                for (name, value) in [
                    ("plm_rsh_agent", &*self.agent.display().to_string()),
                    ("pml", "ob1"),
                    ("btl", "tcp,self"),
                    ("btl_tcp_if_include", interface),
                    ("oob_tcp_if_include", interface),
                    ("mpi_yield_when_idle", "1"),
                ] {
                    command.args(["--mca", name, value]);
                }
            }
            Mpi::Mpich => {
                // Only named variables travel: each host knows where its own daemon is.
                command.args([
                    run,
                    "-genvnone",
                    "-genv",
                    "UCX_TLS",
                    "tcp,self",
                    "-genv",
                    "UCX_NET_DEVICES",
                    interface,
                ]);
                command.args(["-hosts", &both, "-np", "2", "-ppn", "1", "-iface", interface]);
                command.args(["-launcher", "ssh", "-launcher-exec"]);
                command.arg(&self.agent);
            }
        }
        command.arg(&self.program).args(words);
        Ok(command)
    }
}

/// A script that is called like ssh, with the host and the shell command to run there; `own` is the far host's `TMPDIR`.
fn agent(hosts: &Hosts<'_>, own: &Path) -> Result<String> {
    let mut text = "#!/bin/sh\n# [-x] HOST WORD..: the words for a shell on that host, as ssh has it.\n\
         if [ \"$1\" = -x ]; then shift; fi\nhost=$1\nshift\ncase $host in\n"
        .to_owned();
    let own = format!("export TMPDIR={}; ", own.display());
    for ((name, start), set) in [(hosts.near, ""), (hosts.far, &*own)] {
        // UCX looks for interfaces in /sys, which must show the host's own network.
        let shell = start("unshare")?;
        let words = std::iter::once(shell.get_program()).chain(shell.get_args());
        let words: Vec<String> = words.map(|word| quoted(&word.to_string_lossy())).collect();
        writeln!(
            text,
            "{name}) exec {} --mount /bin/sh -c \"mount -t sysfs sysfs /sys; {set}$*\" ;;",
            words.join(" ")
        )?;
    }
    text.push_str("*) echo \"no host $host\" >&2; exit 1 ;;\nesac\n");
    Ok(text)
}

/// A word for a shell.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mpi_agent_starts_the_given_command_on_the_given_host() {
        let folder = std::env::temp_dir().join(format!("crosslane-agent-{}", std::process::id()));
        let start = |program: &str| {
            let mut command = Command::new("echo");
            command.args(["it's", program]);
            Ok(command)
        };
        let hosts = Hosts { near: ("h1", &start), far: ("h2", &start), interface: "lo" };
        fs::create_dir_all(&folder).unwrap();
        let path = file(&folder, "agent", &agent(&hosts, Path::new("/far")).unwrap()).unwrap();
        let run = |words: &[&str]| Command::new("sh").arg(&path).args(words).output().unwrap();
        let said = String::from_utf8(run(&["-x", "h2", "a", "b"]).stdout).unwrap();
        assert_eq!(
            said.trim(),
            "it's unshare --mount /bin/sh -c mount -t sysfs sysfs /sys; export TMPDIR=/far; a b"
        );
        assert!(!run(&["h3", "a"]).status.success());
        fs::remove_dir_all(&folder).unwrap();
    }
}

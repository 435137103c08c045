//! Containers by podman, as `dist/containers` has them: a daemon in each, no network but the cable. In place of an image they have this
//! machine's `/usr`, read-only, and the programs of this build.

use crate::package;
use crate::program::run;
use crate::{PATIENCE, WORK, wait_for};
use anyhow::{Context, Result};
use crosslane_lab::Programs;
use crosslane_status::Status;
use rustix::process::{Resource, getrlimit};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Descriptors and processes of a container.
const ENOUGH: u64 = 4096;
/// Where a container finds the programs of this build.
const PROGRAMS: &str = "/opt/crosslane";
/// Where it has `dist/containers`.
const CONFIG: &str = "/etc/crosslane";

/// What podman needs of its own, and the containers of one test; all are gone when it is dropped.
#[derive(Debug)]
pub struct Podman {
    podman: PathBuf,
    folder: TempDir,
    names: Vec<&'static str>,
}

impl Podman {
    /// `None`, loudly, where podman is missing or cannot run a container: control groups and mounts that it needs are not everywhere.
    ///
    /// # Errors
    /// There is no folder for its files.
    pub fn new() -> Result<Option<Self>> {
        if !rustix::process::geteuid().is_root() {
            package::skip("containers with a network namespace of their own need root");
            return Ok(None);
        }
        let Some(podman) = package::need("podman") else { return Ok(None) };
        let folder = tempfile::Builder::new().prefix("crosslane-podman").tempdir()?;
        let this = Self { podman, folder, names: Vec::new() };
        fs::create_dir(this.cables())?;
        let mut probe = this.container("probe", &[])?;
        match run(probe.arg("/usr/bin/true"), WORK) {
            Ok(_) => Ok(Some(this)),
            Err(why) => {
                println!("SKIPPED: podman cannot run a container here: {why:#}");
                Ok(None)
            }
        }
    }

    /// The folder that is `/cables` in all of them.
    pub fn cables(&self) -> PathBuf {
        self.folder.path().join("cables")
    }

    /// A file or folder of the test's own.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A program of this build.
    ///
    /// # Errors
    /// The workspace was not built.
    pub fn program(&self, name: &str) -> Result<PathBuf> {
        Ok(Programs::find(None)?.daemon.with_file_name(name))
    }

    fn podman(&self) -> Command {
        let mut command = Command::new(&self.podman);
        for (option, folder) in [("--root", "images"), ("--runroot", "run"), ("--tmpdir", "tmp")] {
            command.arg(option).arg(self.folder.path().join(folder));
        }
        command.args(["--storage-driver", "vfs", "--runtime", "runc", "--cgroup-manager", "cgroupfs"]);
        command.args(["--events-backend", "none"]);
        command
    }

    /// `podman run` with the options of `dist/containers/pair.yaml`, but for its init, and some more; the command is to follow.
    fn container(&self, name: &str, more: &[&str]) -> Result<Command> {
        let mut command = self.podman();
        command.arg("run").args(more).args([
            "--rm",
            "--name",
            name,
            "--network",
            "none",
            "--log-driver",
            "none",
        ]);
        command.args(["--device", "/dev/net/tun", "--cap-add", "NET_ADMIN"]);
        // Podman asks for more than a machine may allow that is a container itself.
        for (limit, resource) in [("nofile", Resource::Nofile), ("nproc", Resource::Nproc)] {
            let most = getrlimit(resource).maximum.unwrap_or(u64::MAX).min(ENOUGH);
            command.arg("--ulimit").arg(format!("{limit}={most}:{most}"));
        }
        let programs = self.program("crosslaned")?.parent().context("a program in no folder")?.to_owned();
        let configuration = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/containers");
        for (from, to) in [
            (PathBuf::from("/usr"), "/usr:ro".to_owned()),
            (programs, format!("{PROGRAMS}:ro")),
            (configuration.canonicalize()?, format!("{CONFIG}:ro")),
            (self.cables(), "/cables".to_owned()),
        ] {
            command.arg("-v").arg(format!("{}:{to}", from.to_str().context("a path that is no text")?));
        }
        command.arg("--rootfs").arg(self.root(name)?);
        Ok(command)
    }

    /// A container's root: folders to mount on, and links into `/usr`.
    fn root(&self, name: &str) -> Result<PathBuf> {
        let root = self.folder.path().join(format!("root-{name}"));
        if root.exists() {
            return Ok(root);
        }
        for folder in
            ["dev", "etc/crosslane", "proc", "sys", "run", "tmp", "usr", "var", "cables", "opt/crosslane"]
        {
            fs::create_dir_all(root.join(folder))?;
        }
        for link in ["bin", "sbin", "lib", "lib32", "lib64", "libx32"] {
            if Path::new("/").join(link).is_symlink() {
                symlink(Path::new("usr").join(link), root.join(link))?;
            }
        }
        fs::write(root.join("etc/passwd"), "root:x:0:0:root:/:/bin/sh\n")?;
        Ok(root)
    }

    /// Starts a container whose daemon has this configuration of `dist/containers`.
    ///
    /// # Errors
    /// Podman's.
    pub fn start(&mut self, name: &'static str, configuration: &str) -> Result<()> {
        let mut command = self.container(name, &["-d"])?;
        command
            .arg(format!("{PROGRAMS}/crosslaned"))
            .arg("--config")
            .arg(format!("{CONFIG}/{configuration}"));
        if !self.names.contains(&name) {
            self.names.push(name);
        }
        run(&mut command, WORK).map(drop)
    }

    /// A program inside a container, under the library.
    pub fn exec(&self, name: &str, program: &str) -> Command {
        let mut command = self.podman();
        let crosslane = format!("{PROGRAMS}/crosslane");
        command.args(["exec", name, &crosslane, "run", "--", program]);
        command
    }

    /// Kills all of a container, which is removed then.
    ///
    /// # Errors
    /// Podman's; it is not gone in time.
    pub fn kill(&self, name: &str) -> Result<()> {
        run(self.podman().args(["kill", "-s", "KILL", name]), WORK)?;
        let gone = || {
            let there = run(self.podman().args(["container", "exists", name]), WORK).is_ok();
            (!there).then_some(()).ok_or_else(|| name.to_owned())
        };
        wait_for("the end of the container", PATIENCE, gone)
    }

    /// What a container's daemon says.
    ///
    /// # Errors
    /// It does not answer.
    pub fn status(&self, name: &str) -> Result<Status> {
        let crosslane = format!("{PROGRAMS}/crosslane");
        let said = run(self.podman().args(["exec", name, &crosslane, "status", "--json"]), WORK)?;
        Ok(Status::parse(&said.text())?)
    }

    /// Waits until a container's daemon reaches so many other hosts.
    ///
    /// # Errors
    /// It does not in time.
    pub fn reaches(&self, name: &str, others: usize) -> Result<()> {
        let reached = || {
            let status = self.status(name).map_err(|why| format!("{why:#}"))?;
            let count = status.hosts.len();
            if count == others { Ok(()) } else { Err(format!("{name} reaches {count} hosts")) }
        };
        wait_for("the hosts of a container", PATIENCE, reached)
    }
}

impl Podman {
    /// Whether a process has its folder among its words.
    fn is_used(&self) -> bool {
        let folder = self.folder.path().as_os_str().as_encoded_bytes();
        let words = |entry: fs::DirEntry| fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let names = |words: Vec<u8>| words.windows(folder.len()).any(|part| part == folder);
        fs::read_dir("/proc").into_iter().flatten().flatten().map(words).any(names)
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        for name in &self.names {
            // One that was killed is gone.
            let _ = run(self.podman().args(["rm", "-f", "-t", "0", name]), WORK);
        }
        // Each container's monitor cleans up by a podman of its own, which makes files.
        let _ = wait_for("the end of podman", PATIENCE, || {
            if self.is_used() { Err(self.folder.path().display().to_string()) } else { Ok(()) }
        });
    }
}

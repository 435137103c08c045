//! What tests of unmodified programs share: the build, the C compiler, and a daemon with rules by which connections inside this
//! machine are streams.

#![allow(unreachable_pub, reason = "a module of tests")]

use crosslane_client::Session;
use crosslane_wire::local::Request;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for the daemon's first answer.
const LIMIT: Duration = Duration::from_secs(50);

/// What one program needs: its own daemon, in its own folder. All ends when it is dropped.
pub struct Daemon {
    /// Goes with the daemon; a place for files of the test.
    pub folder: tempfile::TempDir,
    child: Child,
}

/// Where the build puts things.
pub struct Built {
    /// The library to preload.
    pub library: PathBuf,
    /// The allocator of `--malloc`.
    #[allow(dead_code, reason = "not every test uses it")]
    pub malloc: PathBuf,
    /// `crosslaned`.
    pub daemon: PathBuf,
}

/// Builds the library and the daemon, with the profile and in the folder of this test.
pub fn build() -> Built {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let target = profile.parent().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args([
            "build",
            "--quiet",
            "-p",
            "crosslane-sockets",
            "-p",
            "crosslane-malloc",
            "-p",
            "crosslane-node",
            // Nothing of it is built; dependencies have the features then that they have in a build of all, and are not built once more.
            "-p",
            "crosslane-cli",
            "--lib",
            "--bin",
            "crosslaned",
        ])
        .arg("--target-dir")
        .arg(target);
    if profile.file_name().is_some_and(|name| name == "release") {
        cargo.arg("--release");
    }
    assert!(cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success(), "cargo build");
    let [library, malloc, daemon] =
        ["libcrosslane_sockets.so", "libcrosslane_malloc.so", "crosslaned"].map(|name| profile.join(name));
    Built { library, malloc, daemon }
}

/// Compiles one C file into `folder`, with all warnings; the program, or what the compiler said.
pub fn compile(source: &Path, folder: &Path) -> Result<PathBuf, String> {
    let program = folder.join(source.file_stem().unwrap());
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let output = Command::new(compiler)
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(&program)
        .arg(source)
        .output()
        .map_err(|error| format!("cc: {error}"))?;
    if output.status.success() {
        Ok(program)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// How many microseconds later stores inside the host land, as `10` or `0-1000`.
pub const DELAY: &str = "CROSSLANE_QUIRKS_DELAY_US";

/// Whether each stream inside the host uses two circuits.
pub const STRIPE: &str = "CROSSLANE_QUIRKS_STRIPE";

fn inside() -> String {
    let mut text = String::new();
    if std::env::var_os(STRIPE).is_some() {
        text += "stripe = true\n[inside]\nstripe = true\n";
    }
    if let Ok(delay) = std::env::var(DELAY) {
        let (least, most) = delay.split_once('-').unwrap_or((&delay, &delay));
        if text.is_empty() {
            text += "[inside]\n";
        }
        text += &format!("kind = \"posted\"\ndelay_us = [{least}, {most}]\n");
    }
    text
}

impl Daemon {
    /// Starts it with the program of the build, and waits for its first answer.
    pub fn start(program: &Path) -> Result<Self, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        let control = folder.path().join("daemon.sock");
        let text = format!(
            "host = 1\nsubnet = \"127.86.0.0/24\"\ncontrol = \"{}\"\ninterface = \"\"\n\
             rules = [\"use both server * 127.0.0.0/8:*\", \"use both client * 127.0.0.0/8:*\",\n\
             \"transfer read-zcopy client ruled *:*\", \"transfer bcopy server ruled *:*\",\n\
             \"offload on server ruled *:*\"]\n{}",
            control.display(),
            inside()
        );
        fs::write(&file, text).unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let child = Command::new(program)
            .arg("--config")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let daemon = Self { folder, child };
        let end = Instant::now() + LIMIT;
        while Session::connect(&control).is_err() {
            if Instant::now() >= end {
                return Err(format!("the daemon does not answer\n{}", daemon.log()));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(daemon)
    }

    /// Its process.
    #[allow(dead_code, reason = "not every test uses it")]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Path of its control socket.
    pub fn control(&self) -> PathBuf {
        self.folder.path().join("daemon.sock")
    }

    /// What it logged.
    pub fn log(&self) -> String {
        let mut text = String::new();
        let _ =
            File::open(self.folder.path().join("log")).and_then(|mut file| file.read_to_string(&mut text));
        text
    }

    /// What the daemon counted since it began: ends of streams that programs got, and payload that they sent.
    pub fn streams(&self) -> Result<[f64; 2], String> {
        let session =
            Session::connect(&self.control()).map_err(|error| format!("{error}\n{}", self.log()))?;
        session.hello("quirks").map_err(|error| error.to_string())?;
        let metrics = session.text(&Request::Metrics).map_err(|error| error.to_string())?;
        let value = |name: &str| {
            let line = metrics.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_whitespace().last()).and_then(|value| value.parse().ok())
        };
        value("crosslane_streams_opened_total")
            .zip(value("crosslane_stream_tx_bytes_total"))
            .map(|(opened, bytes)| [opened, bytes])
            .ok_or_else(|| format!("no counters of streams in\n{metrics}"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! Each `tests/c/NAME.c` shows one behaviour of sockets that programs rely on. It has to pass twice: on the kernel's
//! TCP, and on streams under the library, where the daemon's counters must show that streams carried its bytes.
//!
//! Exit code 0 is a pass, 77 is "cannot be shown here". A program that makes no stream, or whose
//! streams carry nothing, says `no stream` or `no byte` in its first comment; one that ends its daemon (process
//! `QUIRK_DAEMON`) says `Ends its daemon`, and must show by itself that it had streams; one that says
//! `Large allocations are buffers` runs as under `crosslane run --malloc 64K`. `QUIRK=NAME` in the environment runs that one
//! alone.

use crosslane_client::Session;
use crosslane_wire::local::Request;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Longest run of one program.
const LIMIT: Duration = Duration::from_secs(50);
/// Exit code of a program that cannot show what it is to show.
const SKIPPED: i32 = 77;
/// Programs that run at a time.
const AT_A_TIME: usize = 4;
const ADDRESS: &str = "127.0.0.1";

/// What one program needs: its own daemon, in its own folder. All ends when it is dropped.
struct Daemon {
    folder: tempfile::TempDir,
    child: Child,
}

/// Where the build puts things.
struct Built {
    library: PathBuf,
    malloc: PathBuf,
    daemon: PathBuf,
}

#[test]
fn quirks() {
    let built = build();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
    let mut programs: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    programs.retain(|path| path.extension().is_some_and(|extension| extension == "c"));
    if let Some(only) = std::env::var_os("QUIRK") {
        programs.retain(|path| path.file_stem() == Some(&only));
    }
    programs.sort();
    assert!(!programs.is_empty(), "no programs");
    let (queue, failures) = (Mutex::new(programs.iter()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let Some(source) = queue.lock().unwrap().next() else { return };
                    if let Err(why) = try_program(source, &built) {
                        failures.lock().unwrap().push(format!("{}: {why}", source.display()));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} of {} failed\n{}", failures.len(), programs.len(), failures.join("\n"));
}

/// Builds the library and the daemon, with the profile and in the folder of this test.
fn build() -> Built {
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

fn try_program(source: &Path, built: &Built) -> Result<(), String> {
    let daemon = Daemon::start(&built.daemon)?;
    let program = compile(source, daemon.folder.path())?;
    let plain = run(Command::new(&program).env("QUIRK_ADDRESS", ADDRESS), daemon.folder.path())
        .map_err(|why| format!("on the kernel's TCP: {why}"))?;
    let mut command = Command::new(&program);
    command.env("QUIRK_ADDRESS", ADDRESS).env("LD_PRELOAD", &built.library);
    command.env("CROSSLANE_SOCKET", daemon.control()).env("QUIRK_DAEMON", daemon.child.id().to_string());
    let comment = first_comment(source);
    if comment.contains("Large allocations are buffers") {
        let both = format!("{}:{}", built.library.display(), built.malloc.display());
        command.env("LD_PRELOAD", both).env("CROSSLANE_MALLOC", "64K");
    }
    let ours = run(&mut command, daemon.folder.path()).map_err(|why| format!("on streams: {why}"))?;
    if ours == SKIPPED {
        println!("skipped: {}", source.display());
        return Ok(());
    }
    if comment.contains("Ends its daemon") {
        return Ok(());
    }
    let [opened, bytes] = daemon.streams()?;
    if opened == 0.0 && !comment.contains("no stream") {
        return Err(format!("passes, but made no stream (alone it ended with {plain})"));
    }
    if bytes == 0.0 && !comment.contains("no byte") && !comment.contains("no stream") {
        return Err(format!("passes, but no stream carried a byte (alone it ended with {plain})"));
    }
    Ok(())
}

fn first_comment(source: &Path) -> String {
    let text = fs::read_to_string(source).unwrap();
    text.split("*/").next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

fn compile(source: &Path, folder: &Path) -> Result<PathBuf, String> {
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

/// Runs a program to its end, which is 0 or [`SKIPPED`]; kills it when its time is over.
fn run(command: &mut Command, folder: &Path) -> Result<i32, String> {
    let log = folder.join("output");
    let file = File::create(&log).unwrap();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(file.try_clone().unwrap())
        .stderr(file)
        .spawn()
        .map_err(|error| error.to_string())?;
    let ended = wait(&mut child);
    let said = fs::read_to_string(&log).unwrap_or_default();
    match ended {
        Some(status) if status.success() => Ok(0),
        Some(status) if status.code() == Some(SKIPPED) => Ok(SKIPPED),
        Some(status) => Err(format!("{status}\n{said}")),
        None => Err(format!("not done after {LIMIT:?}\n{said}")),
    }
}

fn wait(child: &mut Child) -> Option<ExitStatus> {
    let end = Instant::now() + LIMIT;
    while Instant::now() < end {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

impl Daemon {
    fn start(program: &Path) -> Result<Self, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        let control = folder.path().join("daemon.sock");
        let text = format!(
            "host = 1\nsubnet = \"127.86.0.0/24\"\ncontrol = \"{}\"\ninterface = \"\"\n\
             rules = [\"use both server * 127.0.0.0/8:*\", \"use both client * 127.0.0.0/8:*\",\n\
             \"transfer read-zcopy client ruled *:*\", \"transfer bcopy server ruled *:*\",\n\
             \"offload on server ruled *:*\"]\n",
            control.display()
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

    fn control(&self) -> PathBuf {
        self.folder.path().join("daemon.sock")
    }

    fn log(&self) -> String {
        let mut text = String::new();
        let _ =
            File::open(self.folder.path().join("log")).and_then(|mut file| file.read_to_string(&mut text));
        text
    }

    /// What the daemon counted since it began: ends of streams that programs got, and payload that they sent.
    fn streams(&self) -> Result<[f64; 2], String> {
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

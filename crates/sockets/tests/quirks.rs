//! Each `tests/c/NAME.c` shows one behaviour of sockets that programs rely on. It has to pass twice: on the kernel's
//! TCP, and on streams under the library, where the daemon's counters must show that streams carried its bytes.
//!
//! Exit code 0 is a pass, 77 is "cannot be shown here". A program that makes no stream, or whose
//! streams carry nothing, says `no stream` or `no byte` in its first comment; one that ends its daemon (process
//! `QUIRK_DAEMON`) says `Ends its daemon`, and must show by itself that it had streams; one that says
//! `Large allocations are buffers` runs as under `crosslane run --malloc 64K`. Each is a test by its name:
//! `cargo test -p crosslane-sockets --test quirks -- NAME`. With `CROSSLANE_QUIRKS_DELAY_US=0-1000` what one end stores lands so much later
//! at the other; programs that say `Not on posted stores` are left out then: they want to read at once what was sent, or zero copy, or the
//! offload engine. With `CROSSLANE_QUIRKS_STRIPE` each stream uses two circuits (`stripe`), and the same ones are left out.

mod common;

use common::{Built, DELAY, Daemon, STRIPE, build, compile};
use libtest_mimic::{Arguments, Failed, Trial};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Longest run of one program.
const LIMIT: Duration = Duration::from_secs(50);
/// Exit code of a program that cannot show what it is to show.
const SKIPPED: i32 = 77;
/// Programs that run at a time, if the command line does not say: most of them wait.
const AT_A_TIME: usize = 4;
const ADDRESS: &str = "127.0.0.1";

/// A test for each program, by its name.
fn main() -> ExitCode {
    static BUILT: OnceLock<Built> = OnceLock::new();
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_A_TIME);
    let trials = programs().into_iter().map(|source| {
        let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let left_out = goes_by_rings_only() && first_comment(&source).contains("Not on posted stores");
        Trial::test(name, move || try_program(&source, BUILT.get_or_init(build)).map_err(Failed::from))
            .with_ignored_flag(left_out)
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

/// Whether neither memory of programs is mapped nor the engine copies: on posted stores, and where streams are striped.
fn goes_by_rings_only() -> bool {
    [DELAY, STRIPE].iter().any(|name| std::env::var_os(name).is_some())
}

/// The programs, in the order of their names.
fn programs() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
    let mut programs: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    programs.retain(|path| path.extension().is_some_and(|extension| extension == "c"));
    programs.sort();
    programs
}

fn try_program(source: &Path, built: &Built) -> Result<(), String> {
    let daemon = Daemon::start(&built.daemon)?;
    let program = compile(source, daemon.folder.path())?;
    let plain = run(Command::new(&program).env("QUIRK_ADDRESS", ADDRESS), daemon.folder.path())
        .map_err(|why| format!("on the kernel's TCP: {why}"))?;
    let mut command = Command::new(&program);
    command.env("QUIRK_ADDRESS", ADDRESS).env("LD_PRELOAD", &built.library);
    command.env("CROSSLANE_SOCKET", daemon.control()).env("QUIRK_DAEMON", daemon.pid().to_string());
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

//! The page in a real browser: no message on its console, no request, nothing that axe finds serious; as phones, dark screens and
//! paper show it.

mod results;

use crosslane_report::page::{Section, page};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

/// Where browsers are.
const BROWSERS: [&str; 3] = ["/usr/bin/chromium", "/usr/bin/google-chrome", "/usr/bin/chromium-browser"];

static INSTALLING: Mutex<()> = Mutex::new(());

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser")
}

/// The browser, and the folder of the libraries that drive it and look for findings; or what cannot be had.
fn tools() -> Result<(PathBuf, PathBuf), String> {
    let browser = BROWSERS.map(PathBuf::from).into_iter().find(|path| path.exists());
    let browser = browser.ok_or("no chromium (Debian: chromium)")?;
    let libraries = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser-libraries");
    let _one_at_a_time = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    if !libraries.exists() {
        // Whole or not at all: it may be interrupted.
        let part = libraries.with_extension("part");
        let mut pip = Command::new("python3");
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--root-user-action=ignore",
        ]);
        pip.args(["--upgrade", "--only-binary=:all:", "--require-hashes", "--target"]).arg(&part);
        run(pip.arg("-r").arg(folder().join("requirements.txt")))?;
        std::fs::rename(&part, &libraries).map_err(|error| error.to_string())?;
    }
    Ok((browser, libraries))
}

/// Runs a command to its end; what it said if it fails.
fn run(command: &mut Command) -> Result<Output, String> {
    let output = command.output().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    let said = || [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    if output.status.success() { Ok(output) } else { Err(said()) }
}

/// What the checker says of a page, and whether it finds nothing wrong; `None` if it cannot run, which is said loudly. Its pictures go to `shots`.
fn check(html: &str, shots: &Path) -> Option<(String, bool)> {
    let (browser, libraries) = tools().map_err(|why| println!("SKIPPED: {why}")).ok()?;
    let temporary = tempfile::tempdir().unwrap();
    let file = temporary.path().join("report.html");
    std::fs::write(&file, html).unwrap();
    let mut check = Command::new("python3");
    check.env("PYTHONPATH", libraries).env("HOME", temporary.path()).arg(folder().join("check.py"));
    let outcome = run(check.args([&*file, shots, &*browser]));
    let is_good = outcome.is_ok();
    let said =
        outcome.map_or_else(|said| said, |output| String::from_utf8_lossy(&output.stdout).into_owned());
    println!("{said}");
    assert!(said.contains("checked: wide, phone, dark, print"), "{said}");
    Some((said, is_good))
}

#[test]
fn browser_shows_the_page_without_messages_requests_or_findings() {
    let (one, other) = (results::all(), results::hostile("<script>alert(1)</script>\"'"));
    let html = page(&[Section::new(&one), Section::new(&other)]).unwrap();
    let temporary = tempfile::tempdir().unwrap();
    let kept = std::env::var_os("CROSSLANE_SHOTS").map_or_else(|| temporary.path().to_owned(), PathBuf::from);
    if let Some((said, is_good)) = check(&html, &kept) {
        assert!(is_good, "{said}");
    }
}

/// What is wrong with this page is what the test above must see in ours.
#[test]
fn browser_check_finds_messages_requests_width_and_faint_text() {
    let html = r#"<!doctype html><html lang="en"><title>Wrong</title><main><h1>Wrong</h1><p style="color: #eee">faint</p>
        <img src="http://127.0.0.1:9/picture.png" alt=""><div style="width: 3000px">wide</div><script>console.log("said")</script></main>"#;
    let temporary = tempfile::tempdir().unwrap();
    if let Some((said, is_good)) = check(html, temporary.path()) {
        for wrong in [
            "console: said",
            "request: http://127.0.0.1:9/",
            "wider than the screen",
            "axe: serious: color-contrast",
        ] {
            assert!(!is_good && said.contains(wrong), "{wrong}: {said}");
        }
    }
}

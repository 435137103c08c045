//! The page in a real browser: no message on its console, no request, nothing that axe finds serious; as phones, dark screens and
//! paper show it.

mod results;

use crosslane_report::page::{Section, page};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where node finds `puppeteer-core` and `axe-core`.
const MODULES: &str = "CROSSLANE_NODE_MODULES";

/// Chromium, and the folder of modules; or what is not there.
fn tools() -> Result<(PathBuf, PathBuf), &'static str> {
    let chromium = ["/usr/bin/chromium", "/usr/bin/google-chrome"].map(PathBuf::from);
    let chromium = chromium.into_iter().find(|path| path.exists()).ok_or("no chromium (Debian: chromium)")?;
    let modules = std::env::var_os(MODULES).map(PathBuf::from);
    let modules =
        modules.filter(|path| path.join("axe-core").exists() && path.join("puppeteer-core").exists());
    let why = "CROSSLANE_NODE_MODULES names no folder with puppeteer-core and axe-core (`npm install puppeteer-core axe-core`)";
    Ok((chromium, modules.ok_or(why)?))
}

#[test]
fn browser_shows_the_page_without_messages_requests_or_findings() {
    let (chromium, modules) = match tools() {
        Ok(tools) => tools,
        Err(why) => return println!("SKIPPED: {why}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.html");
    let (one, other) = (results::all(), results::hostile("<script>alert(1)</script>\"'"));
    std::fs::write(&file, page(&[Section::new(&one), Section::new(&other)]).unwrap()).unwrap();
    let kept = std::env::var_os("CROSSLANE_SHOTS").map_or_else(|| folder.path().to_owned(), PathBuf::from);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser/check.mjs");
    let output =
        Command::new("node").arg(script).args([&file, &kept, &chromium, &modules]).output().expect("node");
    let (said, failed) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{said}");
    assert!(output.status.success(), "{said}{failed}");
    assert!(said.contains("checked: wide, phone, dark, print"), "{said}");
}

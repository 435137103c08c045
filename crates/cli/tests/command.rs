//! The command as its users meet it: words and exit codes.

use std::process::{Command, Output};

fn crosslane(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_crosslane"))
        .args(args)
        .env_remove("CROSSLANE_SOCKET")
        .env("CROSSLANE_BIN", "/no/such/folder")
        .output()
        .expect("runs")
}

fn fails(args: &[&str], code: i32, words: &str) {
    let output = crosslane(args);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
    assert!(text.contains(words), "{args:?}: {text}");
    assert!(!text.contains("panicked"), "{text}");
}

#[test]
fn daemon_missing_message_says_what_to_do() {
    for command in [
        ["status"].as_slice(),
        &["ping", "h2"],
        &["hosts"],
        &["metrics"],
        &["top", "-n", "1"],
        &["explain", "1"],
    ] {
        let args = [command, &["--socket", "/no/such/socket"]].concat();
        fails(&args, 3, "start `crosslaned --config FILE`");
    }
}

#[test]
fn lab_missing_message_says_what_to_do() {
    let name = format!("no-such-{}", std::process::id());
    fails(&["lab", "status", "--name", &name], 4, "crosslane lab up");
    fails(&["lab", "exec", "--name", &name, "h1", "--", "true"], 4, "crosslane lab up");
    for fault in [&["cut", "h1", "h2"][..], &["mend", "h1", "h2"], &["kill", "h1"], &["start", "h1"]] {
        fails(&[&["lab"], fault, &["--name", &name]].concat(), 4, "crosslane lab up");
    }
    let down = crosslane(&["lab", "down", "--name", &name]);
    assert!(down.status.success(), "down is idempotent");
}

#[test]
fn args_that_make_no_sense_are_refused() {
    fails(&["lab", "up", "--hosts", "3", "--topology", "pair"], 2, "a pair has 2 hosts");
    fails(&["lab", "up", "--hosts", "2", "--one-way"], 2, "a ring of 3 hosts or more");
    fails(&["lab", "up", "--resilience", "x"], 2, "keep, reset");
    fails(&["lab", "up", "--name", "a/b"], 2, "no name for a lab");
    fails(&["bench", "quick", "--only", "x"], 2, "transit, safety, loss");
    fails(&["bench", "stack", "--sizes", "1400,9M"], 2, "8 bytes to 8M");
    fails(&["bench", "stack", "--runs", "0"], 2, "--runs");
    fails(&["explain", "me"], 2, "PID:FD");
    fails(&["run", "--malloc", "1K", "--", "true"], 2, "16K or more");
    fails(&["run", "--malloc", "64KB", "--", "true"], 2, "16K or more");
    fails(&["nonsense"], 2, "Usage");
}

#[test]
fn plan_that_cannot_be_is_refused() {
    let plan = |args: &[&str], words: &str| {
        fails(&[&["plan", "--cable", "gen4 x8, mps 256, fibre 10 m"], args].concat(), 2, words);
    };
    plan(&["--hosts", "1"], "a plan has 2 to 512");
    plan(&["--hosts", "513"], "a plan has 2 to 512");
    plan(&[], "say how many hosts");
    plan(&["--hosts", "2"], "2 hosts are a pair");
    plan(&["--hosts", "12", "--topology", "star"], "no topology");
    plan(&["--hosts", "10", "--topology", "torus-3x4"], "not of 10 hosts");
    plan(&["--hosts", "7", "--topology", "torus"], "rows and columns");
    plan(&["--hosts", "20", "--topology", "mesh"], "use a torus");
    plan(&["--hosts", "4", "--lost-cables", "h1-h3"], "h1 has cables to h2, h4");
    plan(&["--hosts", "4", "--lost-cables", "h1"], "as h1-h2");
    plan(&["--hosts", "4", "--forward-rate", "0"], "give GB/s");
    plan(&["--hosts", "4", "--seed", "1"], "--simulate");
    fails(&["plan", "--hosts", "4"], 2, "--cable");
    fails(&["plan", "--hosts", "4", "--cable", "gen4"], 2, "first its generation and lanes");
    fails(&["plan", "--hosts", "4", "--cable", "gen4 x8", "--out", "/no/such/file"], 1, "cannot write");
}

#[test]
fn plan_is_printed_and_written() {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("plan.json");
    let path = file.to_str().expect("a path");
    let args =
        ["plan", "--topology", "torus-2x3", "--cable", "gen3 x4", "--simulate", "--json", "--out", path];
    let output = crosslane(&args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&printed["version"], &printed["hosts"]), (&1.into(), &6.into()));
    let figures = printed["whole"]["figures"].as_array().expect("figures");
    assert!(
        figures.iter().all(|figure| figure["simulated"].is_f64() && figure["difference_percent"].is_f64())
    );
    let written = std::fs::read_to_string(&file).expect("written");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&written).expect("JSON"), printed);
    let table = crosslane(&args[..6]);
    let text = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(text.contains("SIMULATED") && text.contains("6 hosts, torus-2x3, 9 cables"), "{text}");
}

#[test]
fn help_of_a_bench_explains_its_columns_and_nothing_internal() {
    let output = crosslane(&["bench", "stack", "--help"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success());
    for words in ["--runs", "--sizes", "--json", "--out", "--check", "loopback TCP", "linux-perf", "1.8 GHz"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains("--receive") && !text.contains("--send"), "{text}");
}

#[test]
fn programs_missing_are_named() {
    fails(&["lab", "up", "--name", "never"], 1, "make build");
    fails(&["run", "--", "true"], 125, "libcrosslane_sockets.so");
}

#[test]
fn completions_and_man_pages_exist_for_every_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let output = crosslane(&["completions", shell]);
        assert!(output.status.success());
        let script = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(script.contains("crosslane") && script.contains("metrics"), "{shell}");
    }
    let page = crosslane(&["man"]);
    assert!(String::from_utf8_lossy(&page.stdout).contains("Exit codes"));
}

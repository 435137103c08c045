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

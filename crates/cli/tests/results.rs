//! `compare` and `report` as their users meet them: words, files and exit codes.

use crosslane_results::export;
use crosslane_results::figure::Figure;
use crosslane_results::report::Report;
use crosslane_results::sample::Sample;
use crosslane_results::unit::Unit;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs the command in `folder`: exit code, and what it printed and complained of.
fn crosslane(folder: &Path, args: &[&str]) -> (i32, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_crosslane")).args(args).current_dir(folder).output().expect("runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().expect("a code"), String::from_utf8(text).expect("text"))
}

/// A result of one metric whose runs lie around `value`, in `folder`.
fn result(folder: &Path, name: &str, value: f64, runs: u32) -> PathBuf {
    let mut report = Report::new(name).ended();
    let runs = (0..runs).map(|run| value * (1.0 + f64::from(run % 3) / 1000.0)).collect();
    report.figures = vec![Figure::new("stream", "64 KB", Unit::GigabitsPerSecond, Sample::new(runs))];
    let path = folder.join(name);
    std::fs::write(&path, export::json(&report).expect("JSON")).expect("written");
    path
}

#[test]
fn compare_exit_code_says_what_it_found() {
    let folder = tempfile::tempdir().expect("folder");
    let compare = |args: &[&str]| crosslane(folder.path(), &[&["compare"], args].concat());
    for (name, value, runs) in [("a", 100.0, 9), ("same", 100.0, 9), ("slow", 90.0, 9), ("one", 90.0, 1)] {
        result(folder.path(), name, value, runs);
    }
    std::fs::write(folder.path().join("none"), "{}").expect("written");
    for (args, code, words) in [
        (&["a", "same"][..], 0, "no difference ("),
        (&["a", "slow"], 1, "slower by 10.0 % ("),
        (&["slow", "a"], 0, "faster by 11.1 % ("),
        (&["slow", "a", "--fail-on", "any"], 1, "1 better"),
        (&["a", "slow", "--fail-on", "never"], 0, "1 worse"),
        (&["a", "slow", "--min", "20"], 0, "no difference that counts"),
        (&["a", "one"], 2, "too few runs to tell (9 and 1)"),
        (&["a", "none"], 2, "measure again"),
        (&["a", "absent"], 2, "absent: No such file"),
        (&["a", "slow", "--confidence", "100"], 2, "from 50 to 99.99"),
        (&["a", "slow", "--min=-1"], 2, "from 0 to 1000"),
    ] {
        let (found, text) = compare(args);
        assert!(found == code && text.contains(words), "{args:?}: {found}: {text}");
    }
}

#[test]
fn compare_of_several_says_how_far_ratios_move() {
    let folder = tempfile::tempdir().expect("folder");
    let compare = |args: &[&str]| crosslane(folder.path(), &[&["compare"], args].concat());
    for (name, value) in [("a", 100.0), ("b", 104.0), ("c", 70.0)] {
        let path = result(folder.path(), name, value, 3);
        let mut report = Report::read(&path).expect("a result");
        let reference = Sample::new(vec![50.0; 3]);
        report.figures =
            report.figures.into_iter().map(|it| it.against("veth TCP", reference.clone())).collect();
        std::fs::write(path, export::json(&report).expect("JSON")).expect("written");
    }
    for (args, code, words) in [
        (&["a", "b", "c"][..], 0, "0 of 1 ratios moved by less than 15 % in 3 results"),
        (&["a", "b", "c", "--limit", "31"], 0, "1 of 1 ratios"),
        (&["a", "b", "c", "--fail-on", "any"], 1, "30 %"),
        (&["a", "b", "c", "--limit=-1"], 2, "from 0 to 1000"),
        (&["a", "b", "absent"], 2, "absent: No such file"),
    ] {
        let (found, text) = compare(args);
        assert!(found == code && text.contains(words), "{args:?}: {found}: {text}");
    }
    let (_, text) = compare(&["a", "b", "c", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(value["ratios"][0]["medians"].as_array().map(Vec::len), Some(3));
}

#[test]
fn compare_json_says_the_same() {
    let folder = tempfile::tempdir().expect("folder");
    result(folder.path(), "a", 100.0, 9);
    result(folder.path(), "b", 90.0, 9);
    let (code, text) = crosslane(folder.path(), &["compare", "a", "b", "--json", "--out", "c.json"]);
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((code, &value["metrics"][0]["verdict"]), (1, &"worse".into()));
    let percent = value["metrics"][0]["change"]["percent"].as_f64().expect("a number");
    assert!((percent + 10.0).abs() < 0.01, "{percent}");
    let kept = std::fs::read_to_string(folder.path().join("c.json")).expect("written");
    assert_eq!(kept.trim(), text.trim());
}

#[test]
fn report_is_one_page_and_its_plots_if_asked_for() {
    let folder = tempfile::tempdir().expect("folder");
    result(folder.path(), "a", 100.0, 9);
    result(folder.path(), "b", 90.0, 40);
    let (code, text) = crosslane(folder.path(), &["report", "a", "b", "--plots", "plots"]);
    assert_eq!((code, text.trim()), (0, "report.html"));
    let page = std::fs::read_to_string(folder.path().join("report.html")).expect("a page");
    assert!(page.contains("2 results of Crosslane"));
    let plot = std::fs::read_to_string(folder.path().join("plots/2-1.svg")).expect("a plot");
    assert!(plot.starts_with("<svg") && plot.contains("all runs"));
    std::fs::write(folder.path().join("none"), "{}").expect("written");
    let (code, text) = crosslane(folder.path(), &["report", "none"]);
    assert!(code == 2 && text.contains("none: has no `version`"), "{code}: {text}");
}

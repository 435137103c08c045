//! Text and JSON, for those who read no screen.

use crate::daemon::{Pair, until};
use crate::terminal::{CROSSLANE, Terminal, of};
use serde_json::Value;
use std::process::Command;

fn printed(pair: &Pair, more: &[&str]) -> String {
    let output = Command::new(CROSSLANE).args(of(pair)).args(more).output().expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

pub(crate) fn is_text_or_json() {
    let pair = Pair::start();
    let _stream = pair.stream("piped");
    let text = printed(&pair, &["-n", "2"]);
    assert!(!text.contains('\x1b') && text.matches("host 1  streams").count() == 2, "{text}");
    assert!(text.contains("[h1]") && text.contains("piped"), "{text}");
    let looks: Vec<Value> = printed(&pair, &["-n", "3", "--json"])
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(looks.len(), 3);
    let last = &looks[2];
    assert_eq!((&last["ports"][0]["name"], &last["ports"][0]["link"]), (&"right".into(), &"up".into()));
    assert_eq!(last["circuits"][0]["program"], "piped");
    assert!(last["counters_per_s"]["wakes"].is_number() && last["events"].is_array(), "{last}");
    until("a round trip was measured", || {
        let text = printed(&pair, &["-n", "3", "--json"]);
        let last: Value = serde_json::from_str(text.lines().last()?).ok()?;
        last["round_trips_us"][0]["p50"].as_f64().filter(|us| *us > 0.0)
    });
    let unprobed = printed(&pair, &["-n", "2", "--json", "--no-probes"]);
    assert!(unprobed.lines().all(|line| line.contains("\"round_trips_us\":[]")), "{unprobed}");
}

pub(crate) fn plain_draws_nothing() {
    let pair = Pair::start();
    let args = [of(&pair), ["--plain", "-n", "1"].map(str::to_owned).to_vec()].concat();
    let mut top = Terminal::start(&args);
    top.ends(0);
    let raw = String::from_utf8_lossy(&top.raw).into_owned();
    assert!(!raw.contains('\x1b') && raw.contains("host 1  streams"), "{raw}");
    assert!(top.is_given_back());
}

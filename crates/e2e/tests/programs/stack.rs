//! `crosslane bench stack`: cycles by function.

use anyhow::{Context, Result, ensure};
use crosslane_e2e::program::Program;
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{PATIENCE, package, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;

/// Unmodified programs count our functions, and the kernel's are beside them, or it is said why not.
#[test]
fn bench_stack_gives_cycles_of_each_function() -> Result<()> {
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let words = ["bench", "stack", "--runs", "1", "--sizes", "14000", "--json"];
    let text = Program::start(&mut rig.tool("h1", &words)?)?.finish(PATIENCE)?.text();
    let report: Value = serde_json::from_str(&text).context(text)?;
    let figures = report["figures"].as_array().context("no figures")?;
    let find = |group: &str, case: &str| {
        figures
            .iter()
            .find(|figure| figure["group"] == group && figure["case"] == case)
            .unwrap_or(&Value::Null)
    };
    let ours = |case: &str| find("14 KB, direct", case)["sample"]["median"].as_f64();
    for case in [
        "send: buffer allot",
        "send: copy in",
        "receive: header check",
        "receive: copy out",
        "receive: buffer free",
    ] {
        ensure!(ours(case).is_some_and(|cycles| cycles > 0.0), "{case}: {:?}", ours(case));
    }
    ensure!(ours("send: IP").is_none(), "ours has no IP");
    let copied = ours("send: copy in").unwrap_or(0.0) + ours("receive: copy out").unwrap_or(0.0);
    ensure!(
        copied > 2.0 * 14_000.0 / 128.0,
        "{copied} cycles: no processor copies more than 128 bytes in one"
    );
    ensure!(find("14 KB, study", "send: copy in")["sample"]["median"] == 46.0, "the study's own");

    let references = find("14 KB, direct", "send: copy in")["references"].as_array().map_or(0, Vec::len);
    let notes = report["warnings"].to_string();
    ensure!(
        references == 2 || notes.contains("the kernel's functions are missing: "),
        "{references}: {notes}"
    );
    Ok(())
}

/// Killed in the middle: labs, programs and the sampler end.
#[test]
fn bench_stack_killed_leaves_nothing() -> Result<()> {
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let words = ["bench", "stack", "--runs", "500", "--sizes", "1400"];
    let mut program = Program::start(&mut rig.tool("h1", &words)?)?;
    let labs = format!("stack-{}-", program.pid());
    // Where `perf` is not installed, the labs are the middle.
    let middle =
        if package::want("perf", "only the labs are looked at").is_some() { "stack.perf" } else { "" };
    wait_for("it measures", PATIENCE, || {
        let names = crosslane_lab::list(&crosslane_lab::default_base()).map_err(|error| error.to_string())?;
        let up = names.iter().filter(|name| name.starts_with(&labs)).count();
        if up == 5 && !arguments_with(&labs, middle).is_empty() {
            Ok(())
        } else {
            Err(format!("{up}; {}", program.tail()))
        }
    })?;
    kill_process(Pid::from_raw(program.pid()).context("its id")?, Signal::KILL)?;
    program.wait(PATIENCE)?;
    wait_for("nothing is left", PATIENCE, || {
        let names = crosslane_lab::list(&crosslane_lab::default_base()).map_err(|error| error.to_string())?;
        let (up, left) = (names.iter().any(|name| name.starts_with(&labs)), arguments_with(&labs, ""));
        if !up && left.is_empty() { Ok(()) } else { Err(format!("{names:?}, {left:?}")) }
    })
}

/// Command lines that hold both words: those of keepers, daemons and `perf` name the lab's folder.
fn arguments_with(one: &str, other: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let texts = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    texts.filter(|text| text.contains(one) && text.contains(other)).collect()
}

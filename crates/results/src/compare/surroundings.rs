//! What two results differ by beside their figures.

use crate::report::Report;
use crate::steal;
use std::collections::BTreeSet;

/// Options that change nothing of what is measured.
const WHERE_TO: [&str; 2] = ["--out", "--markdown"];

/// Factor by which distances of processors differ if they tell.
const APART: f64 = 1.6;

/// How many more of the turns of one result than of another were on slowed processors, percent, if that tells.
const MORE_SLOWED: f64 = 30.0;

/// A result, and what it is called.
pub(super) type Named<'a> = (&'a str, &'a Report);

/// A note for each thing in which the surroundings of a result differ from the first one's, and for each result that was disturbed.
pub(super) fn notes(results: &[Named<'_>]) -> Vec<String> {
    let Some((&first, others)) = results.split_first() else { return Vec::new() };
    let differ = others.iter().flat_map(|&other| difference(first, other));
    differ.chain(results.iter().flat_map(|&one| disturbed(one))).collect()
}

/// A note for each thing in which the surroundings of two results differ.
fn difference((name_a, a): Named<'_>, (name_b, b): Named<'_>) -> Vec<String> {
    let of_machines = [
        ("processor", a.machine.processor.clone(), b.machine.processor.clone()),
        ("processors", a.machine.processors.to_string(), b.machine.processors.to_string()),
        ("idle processors", a.machine.idle().to_owned(), b.machine.idle().to_owned()),
        ("kernel", a.machine.kernel.clone(), b.machine.kernel.clone()),
        ("crosslane", a.crosslane.clone(), b.crosslane.clone()),
        ("command", command(a), command(b)),
    ];
    let names: BTreeSet<&String> = a.programs.keys().chain(b.programs.keys()).collect();
    let version = |of: &Report, name| of.programs.get(name).cloned().unwrap_or_default();
    let of_programs = names.into_iter().map(|name| (name.as_str(), version(a, name), version(b, name)));
    let differ = of_machines.into_iter().chain(of_programs).filter(|(_, one, other)| one != other);
    let note = |what: &str, one: &str, other: &str| {
        format!("{what}: {name_a} has {}, {name_b} has {}", or_none(one), or_none(other))
    };
    let apart = apart(a, b).map(|(one, other)| note("a cache line between two processors", &one, &other));
    let slowed = slowed(a, b).map(|(one, other)| note("turns on slowed processors", &one, &other));
    differ.map(|(what, one, other)| note(what, &one, &other)).chain(apart).chain(slowed).collect()
}

/// How far the processors of both were from each other, if that differs by much.
fn apart(a: &Report, b: &Report) -> Option<(String, String)> {
    let (one, other) = a.machine.distance_ns.zip(b.machine.distance_ns)?;
    let differ = one.max(other) > APART * one.min(other);
    differ.then(|| (format!("{one:.0} ns"), format!("{other:.0} ns")))
}

/// How many turns of both were on slowed processors, if that differs by much.
fn slowed(a: &Report, b: &Report) -> Option<(String, String)> {
    let (one, other) = a.machine.slowed_percent.zip(b.machine.slowed_percent)?;
    let differ = (one - other).abs() > MORE_SLOWED;
    differ.then(|| (format!("{one:.0} %"), format!("{other:.0} %")))
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "none noted" } else { text }
}

/// The command but for its program's folder and where its results went.
fn command(report: &Report) -> String {
    let mut words = report.command.iter().skip(1);
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        let is = |option: &str| word == option || word.starts_with(&format!("{option}="));
        match WHERE_TO.into_iter().find(|option| is(option)) {
            Some(option) if word == option => {
                words.next();
            }
            Some(_) => {}
            None if word == "--json" => {}
            None => kept.push(word.as_str()),
        }
    }
    kept.join(" ")
}

#[expect(clippy::cast_precision_loss, reason = "a number of processors")]
fn disturbed((name, report): Named<'_>) -> Vec<String> {
    let machine = &report.machine;
    let busy = (machine.load > machine.processors as f64 / 2.0)
        .then(|| format!("{name} began on a busy machine (load {:.1})", machine.load));
    let stolen = (machine.steal_percent > steal::MOST).then(|| {
        format!("{name} was disturbed ({:.0} % of the processors' time stolen)", machine.steal_percent)
    });
    busy.into_iter().chain(stolen).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surroundings_that_differ_are_named_and_where_results_go_is_not() {
        let mut a = Report::new("x").ended();
        (a.machine.load, a.machine.steal_percent) = (0.0, 0.0);
        a.command =
            ["/x/crosslane", "perf", "--quick", "--json", "--out", "a.json"].map(str::to_owned).to_vec();
        let mut b = a.clone();
        b.command = ["crosslane", "perf", "--out=b.json", "--quick"].map(str::to_owned).to_vec();
        assert_eq!(notes(&[("A", &a), ("B", &b)]), Vec::<String>::new());
        b.machine.kernel = "6.1".to_owned();
        b.machine.steal_percent = 9.0;
        b.machine.awake = true;
        (a.machine.distance_ns, b.machine.distance_ns) = (Some(42.0), Some(260.0));
        (a.machine.slowed_percent, b.machine.slowed_percent) = (Some(12.0), Some(70.0));
        b.command.push("--runs=3".to_owned());
        b.programs.insert("iperf3".to_owned(), "3.12".to_owned());
        let all = notes(&[("1", &a), ("2", &a), ("3", &b)]).join("\n");
        let notes = notes(&[("A", &a), ("B", &b)]).join("\n");
        for words in [
            "kernel: A has",
            "B has 6.1",
            "perf --quick --runs=3",
            "iperf3: A has none noted, B has 3.12",
            "B was disturbed (9 %",
            "idle processors: A has allowed to sleep, B has kept awake",
            "A has 42 ns, B has 260 ns",
            "turns on slowed processors: A has 12 %, B has 70 %",
        ] {
            assert!(notes.contains(words), "{words}: {notes}");
        }
        for words in ["kernel: 1 has", "3 has 260 ns", "3 was disturbed"] {
            assert!(all.contains(words), "{words}: {all}");
        }
        assert!(!all.contains("2 has") && !all.contains("2 was"), "{all}");
    }
}

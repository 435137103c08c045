//! Tests that the documents name: each must exist, so that a reader can run it. And names of tests begin with what they test.

use crate::sources::{entries, read, rust_files, shown};
use anyhow::{Result, ensure};
use std::collections::BTreeSet;
use std::path::Path;

/// Documents that name others' tests and terms, not ours.
const OTHERS: &[&str] = &["suites.md", "glossary.md"];
/// Folders of behaviours in C and of scripts of the differential tester, one to a file, whose name is the test's.
const BEHAVIOURS: &[&str] = &["crates/sockets/tests/c", "crates/sockets/tests/differ/kept"];
/// A name with as many underscores as this, or one that is cut short by `..`, is taken for a test's.
const UNDERSCORES: usize = 3;

/// A test whose name begins so is not found by what it tests (docs/testing.md, "Names").
const FILLERS: &[&str] = &[
    "a", "an", "the", "what", "whatever", "who", "whoever", "one", "nobody", "nothing", "of", "it", "no",
    "every",
];

/// Fails on a name of a test in `docs/*.md` that no Rust source and no behaviour in C has, and on a test with a name that begins
/// with a filler.
pub(crate) fn check(root: &Path) -> Result<()> {
    let mut fillers = Vec::new();
    for file in rust_files(root)? {
        fillers.extend(unfindable(&read(&file)?).map(|name| format!("{}: {name}", shown(root, &file))));
    }
    ensure!(
        fillers.is_empty(),
        "names of tests begin with what they test, these do not:\n  {}",
        fillers.join("\n  ")
    );
    let known = known(root)?;
    let (mut missing, mut found) = (Vec::new(), 0);
    for file in documents(root)? {
        for name in quoted(&read(&file)?).filter(|name| is_test(name)) {
            if exists(&known, name) {
                found += 1
            } else {
                missing.push(format!("{}: {name}", shown(root, &file)))
            }
        }
    }
    ensure!(missing.is_empty(), "documents name tests that do not exist:\n  {}", missing.join("\n  "));
    ensure!(found > 0, "no name of a test was found at all: this check looks at the wrong place");
    println!("names: {found} names in documents, all of which exist");
    Ok(())
}

/// Names of functions behind `#[test]` that begin with a filler.
fn unfindable(source: &str) -> impl Iterator<Item = &str> {
    let tests =
        source.split("#[test]\n").skip(1).filter_map(|rest| rest.split_once("fn ")?.1.split('(').next());
    tests.filter(|name| name.split('_').next().is_some_and(|first| FILLERS.contains(&first)))
}

fn documents(root: &Path) -> Result<Vec<std::path::PathBuf>> {
    let mut files = entries(&root.join("docs"))?;
    files.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(".md") && !OTHERS.contains(&name.as_ref())
    });
    Ok(files)
}

/// All words of the Rust sources that could be a function's name, and the behaviours in C.
fn known(root: &Path) -> Result<BTreeSet<String>> {
    let mut known = BTreeSet::new();
    for file in rust_files(root)? {
        known.extend(words(&read(&file)?).filter(|word| word.contains('_')).map(str::to_owned));
    }
    for folder in BEHAVIOURS {
        let files = entries(&root.join(folder))?;
        known.extend(
            files.iter().map(|file| file.file_stem().unwrap_or_default().to_string_lossy().into_owned()),
        );
    }
    Ok(known)
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

/// What stands in backticks, without a module's name before it.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    let inside = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    inside.map(|name| name.rsplit("::").next().unwrap_or(name))
}

fn is_test(name: &str) -> bool {
    let whole = name.strip_suffix("..");
    let word = whole.unwrap_or(name);
    let is_name = word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let underscores = word.matches('_').count();
    is_name && (underscores >= UNDERSCORES || whole.is_some() && underscores > 0)
}

fn exists(known: &BTreeSet<String>, name: &str) -> bool {
    match name.strip_suffix("..") {
        None => known.contains(name),
        Some(begin) => known.range(begin.to_owned()..).next().is_some_and(|word| word.starts_with(begin)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tests_differ_from_other_words() {
        let text = "see `pair`: `wake_for_data_is_not_lost` and `lock::lock_of_a..`, `io_uring`, `--no_such_flag_at_all`";
        let names: Vec<_> = quoted(text).filter(|name| is_test(name)).collect();
        assert_eq!(names, ["wake_for_data_is_not_lost", "lock_of_a.."]);
    }

    #[test]
    fn names_that_begin_with_a_filler_are_found() {
        let mark = "#[test]";
        let source = format!(
            "fn a_helper() {{}}\n{mark}\n#[should_panic]\nfn the_ring() {{}}\n{mark}\nfn thering() {{}}\n"
        );
        assert_eq!(unfindable(&source).collect::<Vec<_>>(), ["the_ring"]);
    }

    #[test]
    fn names_cut_short_match_by_prefix() {
        let known = words("fn lock_of_a_killed_process() {}").map(str::to_owned).collect();
        assert!(exists(&known, "lock_of_a..") && exists(&known, "lock_of_a_killed_process"));
        assert!(!exists(&known, "lock_of_a") && !exists(&known, "lock_of_the.."));
    }
}

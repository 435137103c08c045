//! `docs/doctor.md` against the checks, the severities and the document.

use crate::machines::Machine;
use crosslane_doctor::{Check, Severity, VERSION};
use std::collections::BTreeSet;

const DOCUMENTATION: &str = include_str!("../../../../docs/doctor.md");

/// The first cells of the tables in a part of the documentation.
fn cells(part: &str) -> BTreeSet<&str> {
    let rows = part.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    rows.collect()
}

#[test]
fn docs_name_each_check_and_no_other() {
    let (_, part) = DOCUMENTATION.split_once("\n## The checks").expect("the part");
    let names: BTreeSet<&str> = Check::ALL.iter().map(|check| check.name()).collect();
    assert_eq!(names.len(), Check::ALL.len());
    assert_eq!(cells(part), names);
}

#[test]
fn docs_have_the_fields_severities_and_version_of_the_document() {
    let (_, part) = DOCUMENTATION.split_once("\n## The document").expect("the part");
    let (part, _) = part.split_once("\n## The checks").expect("the part");
    let document = serde_json::to_value(Machine::new(false).report()).expect("JSON");
    let mut names: BTreeSet<String> = document.as_object().expect("object").keys().cloned().collect();
    let finding = document["findings"][0].as_object().expect("object");
    names.extend(finding.keys().map(|name| format!("findings[].{name}")));
    let severities = [Severity::Error, Severity::Warning, Severity::Info, Severity::Ok];
    names.extend(severities.map(|severity| severity.name().to_owned()));
    for severity in severities {
        assert_eq!(serde_json::to_value(severity).expect("JSON"), severity.name());
    }
    assert_eq!(cells(part), names.iter().map(String::as_str).collect());
    assert!(part.contains(&format!("This is version {VERSION}.")));
}

//! The direction of dependencies: each crate, and all that it may use.

use crate::sources::cargo;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::Path;

/// Lowest first; a crate may use what its line names, in tests too what `TESTS` names, and nothing else.
const MAY_USE: &[(&str, &[&str])] = &[
    ("malloc", &[]),
    ("wire", &[]),
    ("pcie", &[]),
    ("status", &["wire"]),
    ("doctor", &["status"]),
    ("passing", &[]),
    ("shm", &["wire"]),
    ("ntb", &[]),
    ("port", &["shm", "passing", "ntb", "pcie", "wire"]),
    ("fabric", &["wire"]),
    ("policy", &["fabric", "wire"]),
    ("plan", &["fabric", "pcie", "wire"]),
    ("stream", &["wire"]),
    ("node", &["policy", "fabric", "stream", "port", "shm", "passing", "status", "wire"]),
    ("client", &["stream", "shm", "passing", "wire"]),
    ("crosslane", &["client", "stream", "shm", "wire"]),
    ("sockets", &["client", "stream", "shm", "wire"]),
    ("lab", &["client", "pcie", "status", "wire"]),
    ("apps", &[]),
    ("results", &[]),
    ("report", &["results"]),
    (
        "bench",
        &[
            "plan",
            "results",
            "apps",
            "lab",
            "node",
            "crosslane",
            "client",
            "port",
            "ntb",
            "pcie",
            "shm",
            "passing",
            "status",
            "wire",
        ],
    ),
    (
        "cli",
        &["plan", "report", "results", "bench", "lab", "node", "client", "doctor", "pcie", "status", "wire"],
    ),
    ("e2e", &["apps", "lab", "node", "client", "shm", "status", "wire"]),
];

/// What tests may use besides: both ends of a conversation.
const TESTS: &[(&str, &str)] = &[
    ("node", "client"),
    ("node", "crosslane"),
    ("node", "lab"),
    ("client", "port"),
    ("client", "node"),
    ("fabric", "port"),
];

const PREFIX: &str = "crosslane-";
/// The one without it: what programs are written against.
const PUBLIC: &str = "crosslane";

/// An edge of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Edge {
    from: String,
    to: String,
    test: bool,
}

/// Checks the dependencies of the workspace that lies in `root`.
pub(crate) fn check(root: &Path) -> Result<()> {
    let mut cargo = cargo();
    cargo.args(["metadata", "--format-version", "1", "--no-deps"]).current_dir(root);
    let output = cargo.output().context("run cargo metadata")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo metadata: {}", said.trim());
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata is not JSON")?;
    let (crates, edges) = graph(&metadata);
    let wrong = wrong(&crates, &edges);
    ensure!(wrong.is_empty(), "dependencies that the picture does not have:\n  {}", wrong.join("\n  "));
    println!("deps: {} crates, {} dependencies, none points up", crates.len(), edges.len());
    Ok(())
}

fn graph(metadata: &Value) -> (Vec<String>, Vec<Edge>) {
    let short = |name: &Value| {
        let name = name.as_str()?;
        name.strip_prefix(PREFIX).or((name == PUBLIC).then_some(PUBLIC)).map(str::to_owned)
    };
    let (mut crates, mut edges) = (Vec::new(), Vec::new());
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let Some(from) = short(&package["name"]) else { continue };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            if let Some(to) = short(&dependency["name"]) {
                edges.push(Edge { from: from.clone(), to, test: dependency["kind"] == "dev" });
            }
        }
        crates.push(from);
    }
    (crates, edges)
}

fn wrong(crates: &[String], edges: &[Edge]) -> Vec<String> {
    let mut wrong = Vec::new();
    if edges.is_empty() {
        wrong.push("nothing was found at all: this check looks at the wrong place".to_owned());
    }
    for name in crates {
        if !MAY_USE.iter().any(|(known, _)| known == name) {
            wrong.push(format!("{name}: not in the picture; add it to xtask and ARCHITECTURE.md"));
        }
    }
    for (known, _) in MAY_USE {
        if !crates.iter().any(|name| name == known) {
            wrong.push(format!("{known}: in the picture, but there is no such crate"));
        }
    }
    for Edge { from, to, test } in edges {
        let allowed = MAY_USE.iter().any(|(name, may)| name == from && may.contains(&to.as_str()));
        let in_tests = *test && TESTS.contains(&(from.as_str(), to.as_str()));
        if !allowed && !in_tests {
            wrong.push(format!("{from} -> {to}{}", if *test { " (in tests)" } else { "" }));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn all() -> Vec<String> {
        MAY_USE.iter().map(|(name, _)| (*name).to_owned()).collect()
    }

    fn edge(from: &str, to: &str, test: bool) -> Edge {
        Edge { from: from.to_owned(), to: to.to_owned(), test }
    }

    #[test]
    fn deps_picture_points_down() {
        for (at, (name, may)) in MAY_USE.iter().enumerate() {
            for lower in *may {
                assert!(MAY_USE[..at].iter().any(|(below, _)| below == lower), "{name} -> {lower}");
            }
        }
    }

    #[test]
    fn deps_upward_and_unknown_edges_are_found() {
        assert!(wrong(&all(), &[edge("port", "shm", false)]).is_empty());
        assert_eq!(wrong(&all(), &[edge("shm", "port", false)]), ["shm -> port"]);
        assert_eq!(wrong(&all(), &[edge("fabric", "stream", false)]).len(), 1);
        assert!(wrong(&all(), &[edge("node", "client", true)]).is_empty());
        assert_eq!(wrong(&all(), &[edge("node", "client", false)]).len(), 1);
        let mut more = all();
        more.push("helper".to_owned());
        assert_eq!(wrong(&more, &[edge("port", "shm", false)]).len(), 1);
    }

    #[test]
    fn deps_empty_graph_is_an_error() {
        assert!(!wrong(&all(), &[]).is_empty());
        assert!(!wrong(&[], &[edge("port", "shm", false)]).is_empty());
    }

    #[test]
    fn deps_graph_is_read_from_metadata() {
        let metadata = json!({"packages": [
            {"name": "crosslane-shm", "dependencies": [{"name": "libc", "kind": null}, {"name": "crosslane-wire", "kind": null}]},
            {"name": "xtask", "dependencies": []}]});
        assert_eq!(graph(&metadata), (vec!["shm".to_owned()], vec![edge("shm", "wire", false)]));
    }
}

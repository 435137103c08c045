//! The fuzz targets: one list, and the check that it is whole.

use crate::sources;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{ItemFn, Macro};

/// A function with a `bolero::check!()`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// Source file, from the root of the repository: `crates/CRATE/tests/..`.
    pub(crate) source: &'static str,
    /// The test function in that file.
    pub(crate) function: &'static str,
    /// Longest input, bytes.
    pub(crate) max_len: u32,
    /// Inputs after which the program is started anew, since each leaves something behind; 0: never.
    pub(crate) fresh: u32,
}

const fn target(name: &'static str, source: &'static str, function: &'static str, max_len: u32) -> Target {
    Target { name, source, function, max_len, fresh: 0 }
}

const RING: &str = "crates/shm/tests/ring_hostile.rs";

/// All of them.
pub(crate) const TARGETS: &[Target] = &[
    target("ring_words", RING, "hostile_words_that_change_do_not_harm_a_consumer", 4096),
    target("ring_bytes", RING, "hostile_bytes_make_a_consumer_wait_or_refuse", 4096),
    target("ring_credit", RING, "hostile_credit_does_not_harm_a_producer", 4096),
    target("ring_state", RING, "hostile_state_is_refused_or_harms_its_own_ring_only", 4096),
    target("messages", "crates/wire/tests/hostile.rs", "hostile_bytes_as_a_message", 1024),
    target("ip_heads", "crates/wire/tests/hostile.rs", "hostile_bytes_as_an_ip_packet", 2048),
    target(
        "scratchpads",
        "crates/fabric/tests/setup_hostile.rs",
        "scratchpads_hostile_words_do_no_harm",
        1024,
    ),
    target("soft_frames", "crates/port/tests/soft_frames.rs", "hostile_frames_and_registers", 2048),
    target("requests", "crates/node/tests/fuzz/requests.rs", "any_requests_of_programs", 2048),
    target(
        "neighbour",
        "crates/node/tests/fuzz/neighbour.rs",
        "anything_that_a_neighbour_says_and_stores",
        2048,
    ),
    target("ip_packets", "crates/node/tests/fuzz_ip/packets.rs", "any_packets_of_neighbours", 4096),
    target("submission_queue", "crates/node/tests/fuzz/offload.rs", "anything_on_a_submission_queue", 2048),
    target(
        "one_sided",
        "crates/node/tests/fuzz/onesided.rs",
        "anything_of_requesters_and_owners_of_memory",
        2048,
    ),
    target("far_side", "crates/client/tests/moving/words.rs", "anything_from_the_far_side_of_an_end", 2048)
        .fresh(3000),
    target(
        "shared_state",
        "crates/client/tests/moving/sharer.rs",
        "anything_in_the_state_that_an_end_shares",
        2048,
    )
    .fresh(3000),
    target("metrics_port", "crates/node/tests/fuzz/metrics.rs", "anything_at_the_metrics_port", 1024),
];

impl Target {
    const fn fresh(self, inputs: u32) -> Self {
        Self { fresh: inputs, ..self }
    }

    /// The package that it belongs to.
    pub(crate) fn package(&self) -> String {
        format!("crosslane-{}", self.parts().first().copied().unwrap_or_default())
    }

    /// The test program that it is in.
    pub(crate) fn test(&self) -> &'static str {
        self.parts().get(2).copied().unwrap_or_default()
    }

    /// The function with its modules, as the test program names it.
    pub(crate) fn path(&self) -> String {
        let parts = self.parts();
        let modules = parts.get(3..).unwrap_or_default().iter().filter(|module| **module != "main");
        modules.copied().chain([self.function]).collect::<Vec<_>>().join("::")
    }

    /// The folder where bolero looks for its inputs: `corpus` and `crashes` in it are tried first, by `cargo test` too.
    pub(crate) fn folder(&self) -> PathBuf {
        let beside = Path::new(self.source).parent().unwrap_or(Path::new(""));
        beside.join("__fuzz__").join(self.path().replace("::", "__"))
    }

    /// The crate, `tests`, the test program, and modules in it.
    fn parts(&self) -> Vec<&'static str> {
        let path = self.source.strip_prefix("crates/").and_then(|path| path.strip_suffix(".rs"));
        path.unwrap_or_default().split('/').collect()
    }
}

/// Fails if the repository has a fuzz target that [`TARGETS`] does not name, or the other way round.
pub(crate) fn check(root: &Path) -> Result<()> {
    let listed: BTreeSet<(String, String)> =
        TARGETS.iter().map(|target| (target.source.to_owned(), target.function.to_owned())).collect();
    let found = found(root)?;
    let missing: Vec<_> = found.difference(&listed).map(|(file, name)| format!("{file}: {name}")).collect();
    let gone: Vec<_> = listed.difference(&found).map(|(file, name)| format!("{file}: {name}")).collect();
    if !missing.is_empty() || !gone.is_empty() {
        bail!(
            "xtask/src/fuzz/targets.rs is not the list of fuzz targets:\n  not listed: {missing:?}\n  not there: {gone:?}"
        );
    }
    println!("targets: {} fuzz targets, all listed", found.len());
    Ok(())
}

/// File and function of each `bolero::check!` in the repository.
fn found(root: &Path) -> Result<BTreeSet<(String, String)>> {
    let mut found = BTreeSet::new();
    for file in sources::rust_files(root)? {
        let (name, text) = (sources::shown(root, &file), sources::read(&file)?);
        if text.contains("bolero::check!") {
            let mut checks = Checks::default();
            checks.visit_file(&syn::parse_file(&text).with_context(|| name.clone())?);
            found.extend(checks.functions.into_iter().map(|function| (name.clone(), function)));
        }
    }
    Ok(found)
}

/// The functions of a file that have a `bolero::check!`.
#[derive(Default)]
struct Checks {
    around: String,
    functions: Vec<String>,
}

impl<'ast> Visit<'ast> for Checks {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        let outer = std::mem::replace(&mut self.around, function.sig.ident.to_string());
        visit::visit_item_fn(self, function);
        self.around = outer;
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        if call.path.segments.iter().map(|part| part.ident.to_string()).eq(["bolero", "check"]) {
            self.functions.push(self.around.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_knows_its_path() {
        let plain = target("a", "crates/shm/tests/ring_hostile.rs", "f", 1);
        assert_eq!((plain.package().as_str(), plain.test()), ("crosslane-shm", "ring_hostile"));
        assert_eq!(plain.path(), "f");
        assert_eq!(plain.folder(), Path::new("crates/shm/tests/__fuzz__/f"));
        let deep = target("b", "crates/node/tests/fuzz/requests.rs", "g", 1);
        assert_eq!((deep.package().as_str(), deep.test()), ("crosslane-node", "fuzz"));
        assert_eq!(deep.path(), "requests::g");
        assert_eq!(deep.folder(), Path::new("crates/node/tests/fuzz/__fuzz__/requests__g"));
        assert_eq!(target("c", "crates/node/tests/fuzz/main.rs", "h", 1).path(), "h");
    }

    #[test]
    fn target_names_are_unique() {
        let names: BTreeSet<_> = TARGETS.iter().map(|target| target.name).collect();
        assert_eq!(names.len(), TARGETS.len());
    }
}

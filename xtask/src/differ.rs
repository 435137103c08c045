//! `cargo xtask differ`: runs the differential tester of socket calls for a given time.

use crate::sources::cargo;
use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Runs for a minute from a seed of the clock, or as `--minutes N`, `--seconds N` and `--seed N` say.
pub(crate) fn run(root: &Path, words: &[String]) -> Result<()> {
    let mut test = cargo();
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock")?;
    let seed = u64::from(clock.subsec_micros()) << 20;
    test.current_dir(root).env("CROSSLANE_SECONDS", "60").env("CROSSLANE_SEED", seed.to_string());
    for pair in words.chunks(2) {
        let [name, value] = pair else { bail!("{} of what?", pair[0]) };
        let number: u64 = value.parse().with_context(|| format!("{name} {value}"))?;
        match name.as_str() {
            "--minutes" => test.env("CROSSLANE_SECONDS", (number * 60).to_string()),
            "--seconds" => test.env("CROSSLANE_SECONDS", value),
            "--seed" => test.env("CROSSLANE_SEED", value),
            _ => bail!("no option {name}: differ [--minutes N | --seconds N] [--seed N]"),
        };
    }
    // Of the whole workspace: of one crate alone cargo would choose other features, and build all again.
    test.args(["test", "--locked", "--workspace", "--exclude", "crosslane-e2e"]);
    test.args(["--test", "differ", "--", "--nocapture"]);
    let status = test.arg("streams_equal_kernel_tcp").status().context("cargo")?;
    ensure!(status.success(), "streams differ from the kernel's TCP ({status})");
    Ok(())
}

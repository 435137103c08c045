//! Containers of podman as `dist/containers` has them: two joined by a cable, and two cabled to a daemon of the node.

use anyhow::{Context, Result, ensure};
use crosslane_e2e::podman::Podman;
use crosslane_e2e::program::{Program, run};
use crosslane_e2e::{WORK, package};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Runs iperf3 for a second between two containers; all of it goes by streams.
fn iperf3(podman: &Podman, [client, server]: [&str; 2], address: &str) -> Result<()> {
    let before = podman.status(client)?.counters.stream_tx_bytes;
    let mut serving = Program::start(podman.exec(server, "iperf3").args(["-s", "-1", "--forceflush"]))?;
    serving.says("Server listening")?;
    let said = run(podman.exec(client, "iperf3").args(["-c", address, "-t", "1", "-J"]), WORK)?;
    serving.finish(WORK)?;
    let report: Value = serde_json::from_str(&said.text())?;
    let moved = report["end"]["sum_received"]["bytes"].as_u64().context("sum_received")?;
    let carried = podman.status(client)?.counters.stream_tx_bytes - before;
    ensure!(moved > 1 << 20 && carried >= moved, "{moved} bytes, of which streams carried {carried}");
    Ok(())
}

#[test]
fn containers_joined_in_a_pair() -> Result<()> {
    if package::need("iperf3").is_none() {
        return Ok(());
    }
    let Some(mut podman) = Podman::new()? else { return Ok(()) };
    podman.start("h1", "pair-h1.toml")?;
    podman.start("h2", "pair-h2.toml")?;
    podman.reaches("h1", 1)?;
    iperf3(&podman, ["h1", "h2"], "10.86.0.2")?;
    // One that is killed with all that runs in it is missed, and comes back in the same place.
    podman.kill("h2")?;
    podman.reaches("h1", 0)?;
    podman.start("h2", "pair-h2.toml")?;
    podman.reaches("h1", 1)?;
    podman.reaches("h2", 1)?;
    iperf3(&podman, ["h2", "h1"], "10.86.0.1")
}

/// The node's daemon, in a network namespace of its own and with a folder of its own in place of `/run/crosslane`.
fn hub(podman: &Podman) -> Result<Program> {
    let configuration = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/containers/hub.toml");
    let (run, cables) = (podman.path("hub"), podman.cables());
    std::fs::create_dir(&run)?;
    let script = "mount --bind \"$1\" /run/crosslane && mkdir /run/crosslane/cables && \
                  mount --bind \"$2\" /run/crosslane/cables && ip link set lo up && exec \"$3\" --config \"$4\"";
    std::fs::create_dir_all("/run/crosslane")?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "sh", "-c", script, "hub"]).arg(&run).arg(&cables);
    command.arg(podman.program("crosslaned")?).arg(configuration.canonicalize()?);
    Program::start(&mut command)
}

#[test]
fn containers_cabled_to_a_hub() -> Result<()> {
    if package::need("iperf3").is_none() {
        return Ok(());
    }
    let Some(mut podman) = Podman::new()? else { return Ok(()) };
    let mut hub = hub(&podman)?;
    podman.start("h2", "hub-h2.toml")?;
    podman.start("h3", "hub-h3.toml")?;
    podman.reaches("h2", 2)?;
    podman.reaches("h3", 2)?;
    iperf3(&podman, ["h2", "h3"], "10.86.0.3")?;
    // Without the hub they have nobody.
    hub.kill()?;
    podman.reaches("h2", 0)
}

//! gRPC, between hosts and inside one.

use anyhow::Result;
use crosslane_apps::script::Script;
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{WORK, apps};

/// Unary calls up to 100 MB, a stream of messages, and calls of six threads.
fn grpc(from: &str, to: &str) -> Result<()> {
    if !apps::need(Script::Rpc.needs()) {
        return Ok(());
    }
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let measure = rig.measure(&[from, to])?;
    let port = rig.port();
    let server = apps::serve(&rig, to, port, |at| Script::Rpc.server(at))?;
    // A channel looks at `errno` late: a dozen show whether it is kept.
    for _ in 0..12 {
        let hurry = apps::command(&rig, from, (to, port), |at| Script::Rpc.rate(at, 0.01, "unary"));
        crosslane_e2e::program::run(&mut hurry?, WORK)?;
    }
    let bytes = apps::check(&rig, Script::Rpc, from, (to, port), WORK)?;
    measure.carried(2 * bytes, 13)?;
    drop(server);
    measure.gave_back()
}

#[test]
fn grpc_between_hosts() -> Result<()> {
    grpc("h1", "h2")
}

#[test]
fn grpc_inside_one_host() -> Result<()> {
    grpc("h1", "h1")
}

//! Messages: ZeroMQ, ZooKeeper, RabbitMQ.

use anyhow::Result;
use crosslane_apps::script::Script;
use crosslane_apps::{rabbitmq, zookeeper};
use crosslane_e2e::program::Program;
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{WORK, apps};

/// Checks `script` from `h1` against a server in `h2` that `start` starts, over at least `streams` streams.
fn checked(
    script: Script,
    streams: u64,
    start: impl FnOnce(&Rig, u16) -> Result<Vec<Program>>,
) -> Result<()> {
    if !apps::need(script.needs()) {
        return Ok(());
    }
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let measure = rig.measure(&["h1", "h2"])?;
    let port = rig.port();
    let servers = start(&rig, port)?;
    let bytes = apps::check(&rig, script, "h1", ("h2", port), WORK)?;
    measure.carried(2 * bytes, streams)?;
    // The last one started is the first to go.
    servers.into_iter().rev().for_each(drop);
    measure.gave_back()
}

#[test]
fn zeromq() -> Result<()> {
    checked(Script::ZeroMq, 17, |rig, port| {
        Ok(vec![apps::serve(rig, "h2", port, |at| Script::ZeroMq.server(at))?])
    })
}

#[test]
fn zookeeper_with_kazoo() -> Result<()> {
    checked(Script::ZooKeeper, 2, |rig, port| Ok(vec![apps::serve(rig, "h2", port, zookeeper::server)?]))
}

#[test]
fn rabbitmq_with_pika() -> Result<()> {
    checked(Script::Amqp, 2, |rig, port| {
        let mut names = 0;
        let mut node_names = Program::start(&mut apps::command(rig, "h2", ("h2", port), |at| {
            let (command, port) = rabbitmq::names(at)?;
            names = port;
            Ok(command)
        })?)?;
        node_names.listens_to_tcp(names)?;
        let mut broker = apps::serve(rig, "h2", port, rabbitmq::broker)?;
        broker.says(rabbitmq::READY)?;
        Ok(vec![node_names, broker])
    })
}

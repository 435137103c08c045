//! Wakes that name others' streams, and so many that those of others are lost, do not keep a server with many connections from its clients.

use anyhow::Result;
use crosslane_e2e::attacks;
use crosslane_e2e::redis::Redis;
use crosslane_e2e::rig::Rig;

/// So many that a server does not look at all of them.
const CLIENTS: u32 = 200;
const REQUESTS: u32 = 20_000;

#[test]
fn names_in_wakes_hide_no_stream() -> Result<()> {
    let Some(redis) = Redis::find() else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let port = rig.port();
    let _server = redis.server(&rig, "h2", port)?;
    let to = rig.address("h2")?.to_string();
    redis.benchmark(&rig, "h1", &to, port, CLIENTS, REQUESTS)?;
    let attack = attacks::start(&rig, "h1", "names", &[&to, &port.to_string()])?;
    for clients in [1, CLIENTS, 3, CLIENTS] {
        redis.benchmark(&rig, "h1", &to, port, clients, REQUESTS / 4)?;
    }
    drop(attack);
    redis.benchmark(&rig, "h1", &to, port, CLIENTS, REQUESTS)
}

//! Wake events: whoever holds one stops nobody by it.

use anyhow::Result;
use crosslane_e2e::attacks;
use crosslane_e2e::honest::{Honest, WINDOW};
use crosslane_e2e::redis::Redis;
use crosslane_e2e::rig::Rig;

#[test]
fn wake_abuse_stops_no_server() -> Result<()> {
    let Some(redis) = Redis::find() else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let port = rig.port();
    let _server = redis.server(&rig, "h2", port)?;
    let to = rig.address("h2")?.to_string();
    let mut honest = Honest::start(&rig, "h1", "h2")?;
    let calm = honest.watch(WINDOW)?;
    let attack = attacks::start_accelerated(&rig, "h1", "wake", &[&to, &port.to_string()])?;
    for _ in 0..4 {
        redis.benchmark(&rig, "h1", &to, port, 4, 1000)?;
        honest.check()?;
    }
    honest.holds_out(&calm)?;
    drop(attack);
    redis.benchmark(&rig, "h1", &to, port, 4, 1000)?;
    honest.finish()
}

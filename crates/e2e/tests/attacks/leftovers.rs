//! What belonged to programs that are gone is held by nobody.

use anyhow::{Context, Result};
use crosslane_e2e::redis::Redis;
use crosslane_e2e::rig::Rig;
use crosslane_e2e::soak::descriptors_by_kind;
use crosslane_e2e::{PATIENCE, wait_for};

/// Programs that come, sleep until they are woken, and go.
const PROGRAMS: usize = 24;

fn held(rig: &Rig, host: &str) -> Result<u64> {
    let daemon = rig.lab.daemon(host)?.context("a daemon")?;
    Ok(descriptors_by_kind(daemon.pid).values().sum())
}

#[test]
fn daemons_hold_no_wake_events_of_programs_that_are_gone() -> Result<()> {
    let Some(redis) = Redis::find() else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let port = rig.port();
    let _server = redis.server(&rig, "h2", port)?;
    let to = rig.address("h2")?.to_string();
    let sleep = || redis.command(&rig, "h1", &to, port, &["BLPOP", "nothing", "0.02"], None);
    sleep()?;
    let before = [held(&rig, "h1")?, held(&rig, "h2")?];
    for _ in 0..PROGRAMS {
        sleep()?;
    }
    for (host, before) in ["h1", "h2"].into_iter().zip(before) {
        // A session may be on its way.
        wait_for("a daemon holds what it held before", PATIENCE, || match held(&rig, host) {
            Ok(now) if now <= before + 4 => Ok(()),
            Ok(now) => Err(format!("{host}: {now} descriptors, there were {before}")),
            Err(error) => Err(error.to_string()),
        })?;
    }
    Ok(())
}

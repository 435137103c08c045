//! Sessions that are ended under live streams: the streams go on, byte for byte.

use anyhow::{Result, ensure};
use crosslane_e2e::honest::{Figures, Honest, USER, WINDOW};
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{PATIENCE, attacks, wait_for};

/// Connections that were ended, as the attack tells.
fn ended(said: &[u8]) -> u64 {
    let said = String::from_utf8_lossy(said).into_owned();
    let counts = said.lines().filter_map(|line| line.strip_prefix("ended ")?.strip_suffix(" connections"));
    counts.filter_map(|count| count.parse().ok()).max().unwrap_or(0)
}

#[test]
fn streams_go_on_while_their_sessions_are_ended_again_and_again() -> Result<()> {
    let Some(mut rig) = Rig::ring()? else { return Ok(()) };
    let mut honest = Honest::start(&rig, "h1", "h2")?;
    let calm = honest.watch(WINDOW)?;
    let (client, server) = (honest.client().pid().to_string(), honest.server().pid().to_string());
    let near = attacks::start_as(&rig, USER, "h1", "lostsession", &[&client])?;
    let far = attacks::start_as(&rig, USER, "h2", "lostsession", &[&server])?;
    honest.holds_out(&calm)?;
    rig.lab.cut("h1", "h2")?;
    let attacked = honest.watch_thrice()?;
    // By now all sessions that the user may have are taken.
    wait_for("all sessions are taken", PATIENCE, || {
        honest.check().map_err(|error| error.to_string())?;
        let took = |attack: &crosslane_e2e::program::Program| {
            String::from_utf8_lossy(&attack.output()).contains("took ")
        };
        if took(&near) && took(&far) { Ok(()) } else { Err("not yet".to_owned()) }
    })?;
    honest.watch(WINDOW)?;
    for attack in [&near, &far] {
        let count = ended(&attack.output());
        println!("{count} connections were ended");
        ensure!(count > 50, "only {count} connections were ended: {}", attack.tail());
    }
    drop((near, far));
    // By two cables all takes longer, more so where the host between has to copy.
    let calm = honest.watch(WINDOW)?;
    Figures::any_is_within(&attacked, &calm)?;
    rig.lab.mend("h1", "h2")?;
    honest.finish()
}

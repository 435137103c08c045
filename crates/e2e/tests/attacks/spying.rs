//! Texts of the daemon: nothing of another user is in any of them.

use anyhow::{Result, ensure};
use crosslane_e2e::honest::{Honest, WINDOW};
use crosslane_e2e::program::Program;
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{PATIENCE, attacks, wait_for};

fn said(attack: &Program) -> String {
    String::from_utf8_lossy(&attack.output()).into_owned()
}

#[test]
fn status_shows_no_user_others_streams_names_addresses_or_processes() -> Result<()> {
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let mut honest = Honest::start(&rig, "h1", "h2")?;
    let calm = honest.watch(WINDOW)?;
    let server = format!("{}:{}", rig.address("h2")?, honest.port());
    // Their daemon's and its peer's, so that both ends of the streams are asked for.
    for host in ["h1", "h2"] {
        let secrets = ["crosslane-honest", server.as_str()];
        let attack = attacks::start(&rig, host, "spying", &secrets)?;
        honest.holds_out(&calm)?;
        wait_for("it has asked for all", PATIENCE, || {
            if said(&attack).contains(" texts") { Ok(()) } else { Err(attack.tail()) }
        })?;
        ensure!(!said(&attack).contains("found"), "on {host}: {}", said(&attack));
        drop(attack);
        let operator = attacks::start_as(&rig, "root", host, "spying", &secrets)?;
        wait_for("root finds them", PATIENCE, || {
            let said = said(&operator);
            let all = secrets.iter().all(|secret| said.contains(&format!("found {secret}")));
            if all && said.contains("found a stream") { Ok(()) } else { Err(said) }
        })?;
    }
    honest.finish()
}

//! Packets that are no requests.

use anyhow::Result;
use crosslane_e2e::attacks;
use crosslane_e2e::honest::{Honest, WINDOW};
use crosslane_e2e::rig::Rig;

#[test]
fn packets_that_are_no_requests_disturb_nobody() -> Result<()> {
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let mut honest = Honest::start(&rig, "h1", "h2")?;
    let calm = honest.watch(WINDOW)?;
    let attack = attacks::start(&rig, "h1", "noise", &[])?;
    honest.holds_out(&calm)?;
    drop(attack);
    honest.finish()
}

//! Descriptors that block whoever closes them last.

use anyhow::Result;
use crosslane_e2e::attacks;
use crosslane_e2e::honest::{Honest, WINDOW};
use crosslane_e2e::rig::Rig;

#[test]
fn descriptors_that_block_whoever_closes_them_disturb_nobody() -> Result<()> {
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let mut honest = Honest::start(&rig, "h1", "h2")?;
    let calm = honest.watch(WINDOW)?;
    let attack = attacks::start(&rig, "h1", "blocking", &[])?;
    honest.holds_out(&calm)?;
    drop(attack);
    honest.finish()
}

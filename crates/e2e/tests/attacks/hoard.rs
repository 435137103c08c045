//! One user takes all that he can get: sessions, descriptors, circuits, listeners. Others get theirs as
//! before.

use anyhow::{Context, Result, ensure};
use crosslane_e2e::attacks;
use crosslane_e2e::honest::{Figures, Honest, WINDOW};
use crosslane_e2e::program::Program;
use crosslane_e2e::rig::{self, Rig};
use crosslane_lab::Options;

/// An attack on h1 while others are at work between h1 and h2.
fn withstand(words: &[&str], check: impl FnOnce(&Rig, &Program) -> Result<()>) -> Result<()> {
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let mut honest = Honest::start(&rig, "h1", "h2")?;
    let calm = honest.watch(WINDOW)?;
    let attack = attacks::start(&rig, "h1", "hoard", words)?;
    honest.holds_out(&calm)?;
    check(&rig, &attack)?;
    drop(attack);
    honest.finish()
}

/// Times that somebody was refused something of this kind.
fn refused(rig: &Rig, host: &str, kind: &str) -> Result<u64> {
    let status = rig.lab.status(host)?;
    let pools = status.quota.pools.iter();
    Ok(pools.filter(|pool| pool.kind == kind).map(|pool| pool.refused).sum())
}

fn was_refused(rig: &Rig, attack: &Program, kind: &str) -> Result<()> {
    println!("{}", String::from_utf8_lossy(&attack.output()));
    ensure!(refused(rig, "h1", kind)? > 0, "nothing was refused of {kind}");
    Ok(())
}

#[test]
fn sessions_without_end() -> Result<()> {
    withstand(&["sessions"], |rig, attack| was_refused(rig, attack, "sessions"))
}

#[test]
fn descriptor_sent_again_and_again() -> Result<()> {
    withstand(&["descriptors"], |rig, attack| was_refused(rig, attack, "descriptors"))
}

#[test]
fn listeners_whose_sockets_are_closed() -> Result<()> {
    withstand(&["listeners"], |rig, attack| was_refused(rig, attack, "listeners"))
}

/// The windows are full of circuits of one user when a cable is cut: a stream of another goes on all the same, as fast by two
/// cables as when nobody attacks.
#[test]
fn circuits_that_fill_both_windows_when_a_cable_is_cut() -> Result<()> {
    // Small ones: in large ones a daemon runs out of descriptors before the window is full. A circuit over cables with delays takes
    // milliseconds.
    let window = if rig::has_delays() { "64M" } else { "256M" };
    let Some(mut rig) = Rig::up(Options { window: window.to_owned(), ..Options::scratch("e2e") })? else {
        return Ok(());
    };
    let mut honest = Honest::start(&rig, "h1", "h2")?;
    let _other = Honest::start(&rig, "h1", "h3")?;
    let calm = honest.watch(WINDOW)?;
    let own = rig.address("h1")?.to_string();
    let servers = [listener(&rig, "h2")?, listener(&rig, "h3")?];
    let attack = attacks::start(&rig, "h1", "hoard", &["circuits", &own, &servers[0], &servers[1]])?;
    was_refused(&rig, &attack, "window")?;
    honest.holds_out(&calm)?;
    rig.lab.cut("h1", "h2")?;
    let attacked = honest.watch_thrice()?;
    drop(attack);
    let calm = honest.watch(WINDOW)?;
    Figures::any_is_within(&attacked, &calm)?;
    rig.lab.mend("h1", "h2")?;
    honest.finish()
}

/// Where an accelerated program of a host listens.
fn listener(rig: &Rig, host: &str) -> Result<String> {
    let address = rig.address(host)?;
    let status = rig.lab.status(host)?;
    let listener = status.listeners.first().with_context(|| format!("nobody listens on {host}"))?;
    Ok(format!("{address}:{}", listener.port()))
}

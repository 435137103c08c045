//! Memory of a third user's process, that a server of root is to fetch.

use anyhow::{Context, Result, ensure};
use crosslane_e2e::honest::{self, Honest, WINDOW, public_copy};
use crosslane_e2e::program::Program;
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{WORK, attacks};

#[test]
fn descriptor_cannot_make_a_root_server_read_a_third_users_memory() -> Result<()> {
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let (port, program) = (rig.port().to_string(), public_copy(&rig, "crosslane-honest")?);
    let mut server = Program::start(rig.command("h2", program)?.args(["server", &port]))?;
    server.listens(port.parse()?)?;
    let mut victim = attacks::start_as(&rig, honest::USER, "h2", "memory-victim", &[])?;
    victim.says(" end")?;
    let said = String::from_utf8_lossy(&victim.output()).into_owned();
    let places = said.lines().find_map(|line| line.strip_prefix("victim ")?.strip_suffix(" end"));
    let places: Vec<&str> = places.context("the victim says where")?.split(' ').collect();
    let mut honest = Honest::start(&rig, "h1", "h2")?;
    let calm = honest.watch(WINDOW)?;
    let address = rig.address("h2")?.to_string();
    let words: Vec<&str> = [address.as_str(), &port].into_iter().chain(places).collect();
    let attack = attacks::start(&rig, "h1", "memory", &words)?;
    honest.holds_out(&calm)?;
    let got = attack.finish(WORK)?.text();
    let line = got.lines().find(|line| line.starts_with("stolen ")).context("the attack came to its end")?;
    ensure!(line.starts_with("stolen 0 of "), "{line}");
    ensure!(!server.is_over(), "the server ended: {}", server.tail());
    honest.finish()
}

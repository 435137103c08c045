//! Connections of others: nobody gets their bytes, and nobody gets into their place.

use anyhow::{Context, Result, ensure};
use crosslane_e2e::honest::{Honest, WINDOW, public_copy};
use crosslane_e2e::package;
use crosslane_e2e::program::Program;
use crosslane_e2e::python::Script;
use crosslane_e2e::rig::{Rig, privileges};
use crosslane_e2e::{WORK, attacks};
use std::process::Command;

/// Ports that the victim lets others share.
const FIRST: &str = "19000";
const PORTS: &str = "32";
/// How long the victim works.
const SECONDS: &str = "8";

/// Where the honest server of a host listens.
fn server(rig: &Rig, host: &str, honest: &Honest) -> Result<(String, String)> {
    let (address, port) = (rig.address(host)?.to_string(), honest.port().to_string());
    Ok((address, port))
}

fn victim(mut command: Command, own: &str, (address, port): &(String, String)) -> Result<Program> {
    Program::start(command.args([own, address, port, FIRST, PORTS, SECONDS]))
}

/// Whoever shares its ports was served, and got what was its own.
fn is_whole(victim: Program) -> Result<()> {
    let said = victim.finish(WORK)?.text();
    let count = |what: &str| -> Option<u64> {
        let words = said.lines().find(|line| line.starts_with("served "))?.split(", ");
        words.filter_map(|words| words.strip_prefix(what)).find_map(|count| count.parse().ok())
    };
    let (served, reset) = (count("served "), count("reset "));
    let (served, reset) =
        served.zip(reset).with_context(|| format!("the victim comes to its end: {said}"))?;
    println!("{said}");
    ensure!(said.contains(", harmed 0 end"), "{said}");
    ensure!(served > 20 && reset <= served / 100, "the victim was kept out: {said}");
    Ok(())
}

fn took_nothing(attack: &mut Program) -> Result<()> {
    attack.says(" rounds")?;
    let said = String::from_utf8_lossy(&attack.output()).into_owned();
    ensure!(!said.contains("taken"), "{said}");
    ensure!(!attack.is_over(), "the attack ended: {}", attack.tail());
    Ok(())
}

#[test]
fn connection_cannot_be_taken_over_by_another_user() -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let mut honest = Honest::start(&rig, "h1", "h2")?;
    let calm = honest.watch(WINDOW)?;
    let (own, to) = (rig.address("h1")?.to_string(), server(&rig, "h2", &honest)?);
    let aim = format!("{}:{}", to.0, to.1);
    let words = [own.as_str(), &aim, FIRST, PORTS, to.0.as_str(), "8.8.8.8"];
    let mut attack = attacks::start(&rig, "h1", "hijack", &words)?;
    let plain = victim(Script::Victim.plain(&rig, "h1", &python)?, &own, &to)?;
    let accelerated = victim(Script::Victim.command(&rig, "h1", &python)?, &own, &to)?;
    honest.holds_out(&calm)?;
    is_whole(plain)?;
    is_whole(accelerated)?;
    took_nothing(&mut attack)?;
    drop(attack);
    honest.finish()
}

#[test]
fn connection_of_equal_addresses_in_another_network_is_another() -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let mut honest = Honest::start(&rig, "h1", "h2")?;
    let calm = honest.watch(WINDOW)?;
    let (own, to) = (rig.address("h1")?.to_string(), server(&rig, "h2", &honest)?);
    let network = format!(
        "ip link set lo up && ip address add {own}/32 dev lo && ip address add {}/32 dev lo && exec setpriv {} {} hijack \
         {own} {}:{} {FIRST} {PORTS} namespace",
        to.0,
        privileges(attacks::USER)?.join(" "),
        public_copy(&rig, "crosslane-attacker")?,
        to.0,
        to.1
    );
    let mut attack = Program::start(rig.plain("h2", "unshare")?.args(["--net", "sh", "-c", &network]))?;
    attack.says("attacking")?;
    let accelerated = victim(Script::Victim.command(&rig, "h1", &python)?, &own, &to)?;
    honest.holds_out(&calm)?;
    is_whole(accelerated)?;
    took_nothing(&mut attack)?;
    drop(attack);
    honest.finish()
}

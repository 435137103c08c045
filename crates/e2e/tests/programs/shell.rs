//! OpenSSH: a sandboxed server that changes users, execs and forks.

use anyhow::{Result, ensure};
use crosslane_e2e::openssh::Sshd;
use crosslane_e2e::payload;
use crosslane_e2e::rig::Rig;

#[test]
fn ssh_runs_a_command() -> Result<()> {
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let measure = rig.measure(&["h1", "h2"])?;
    let Some(sshd) = Sshd::start(&rig, "h2", rig.port())? else { return Ok(()) };
    let sent = payload::bytes(3, 20 << 20);
    let got = sshd.execute(&rig, "h1", "cat", &sent)?;
    payload::equal(&sent, &got)?;
    let count = sshd.execute(&rig, "h1", "wc -c", &sent)?;
    ensure!(String::from_utf8_lossy(&count).trim() == sent.len().to_string(), "wc counted another number");
    drop(sshd);
    measure.gave_back()
}

#[test]
fn scp_of_a_gigabyte() -> Result<()> {
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let measure = rig.measure(&["h1", "h2"])?;
    let Some(sshd) = Sshd::start(&rig, "h2", rig.port())? else { return Ok(()) };
    let (file, there) = (rig.file("gigabyte"), rig.file("there"));
    payload::file(&file, 11, 1 << 30)?;
    sshd.send(&rig, "h1", &file, &there, false)?;
    ensure!(payload::same(&file, &there)? == 1 << 30, "another size");
    measure.carried(1 << 30, 1)?;
    drop(sshd);
    measure.gave_back()
}

#[test]
fn scp_by_the_old_protocol_and_back() -> Result<()> {
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let measure = rig.measure(&["h1", "h2"])?;
    let Some(sshd) = Sshd::start(&rig, "h2", rig.port())? else { return Ok(()) };
    let (file, there, back) = (rig.file("file"), rig.file("there"), rig.file("back"));
    payload::file(&file, 12, 50_000_001)?;
    sshd.send(&rig, "h1", &file, &there, true)?;
    payload::same(&file, &there)?;
    sshd.fetch(&rig, "h1", &there, &back)?;
    payload::same(&file, &back)?;
    measure.carried(100_000_002, 2)?;
    drop(sshd);
    measure.gave_back()
}

//! A network block device: nbdkit's disk, filled and read by nbdcopy, written at random places and verified by fio.

use anyhow::{Result, ensure};
use crosslane_apps::nbd;
use crosslane_apps::need::of;
use crosslane_e2e::program::run;
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{WORK, apps, payload};

/// Size of the disk, MiB, and of what fio writes.
const DISK: u32 = 64;
const WRITTEN: u32 = 32;

#[test]
fn nbdkit_with_nbdcopy_and_fio() -> Result<()> {
    if !apps::need(of::NBD) {
        return Ok(());
    }
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let size = u64::from(DISK) << 20;
    let (sent, got) = (rig.file("sent"), rig.file("got"));
    payload::file(&sent, 7, size)?;
    let measure = rig.measure(&["h1", "h2"])?;
    let port = rig.port();
    let server = apps::serve(&rig, "h2", port, |at| nbd::server(at, DISK))?;
    let at = ("h2", port);
    run(&mut apps::command(&rig, "h1", at, |at| nbd::copy_to(at, &sent))?, WORK)?;
    run(&mut apps::command(&rig, "h1", at, |at| nbd::copy_from(at, Some(&got)))?, WORK)?;
    ensure!(payload::same(&sent, &got)? == size, "the disk has another size");
    let said = run(&mut apps::command(&rig, "h1", at, |at| nbd::verify(at, WRITTEN))?, WORK)?.text();
    let moved = nbd::read(&said)?.count;
    ensure!(moved >= f64::from(WRITTEN), "fio moved {moved} MB: {said}");
    measure.carried(2 * size + (u64::from(WRITTEN) << 20), 3)?;
    drop(server);
    measure.gave_back()
}

//! Two cables side by side between two hosts.

use anyhow::{Context, Result, ensure};
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{PATIENCE, WORK, iperf3, package};
use crosslane_lab::{Options, Topology};
use std::time::Duration;

/// How long programs run undisturbed before, between and after what happens to them.
const CALM: Duration = Duration::from_millis(400);

#[test]
fn cables_side_by_side_share_the_streams_and_take_over() -> Result<()> {
    let Some(path) = package::need("iperf3") else { return Ok(()) };
    let options = Options { hosts: 2, topology: Topology::Pair, beside: 2, ..Options::scratch("e2e") };
    let Some(mut rig) = Rig::up(options)? else { return Ok(()) };
    let port = rig.port();
    let server = iperf3::server(&rig, "h2", &path, port)?;
    let client = iperf3::start(&rig, "h1", &path, ("h2", port), &["-t", "4", "-P", "4"])?;
    std::thread::sleep(CALM);
    // One after the other, so that each stream moves to the other cable and has a way all the time.
    for name in ["right", "right2"] {
        let cut = rig.lab.cut("h1", "h2")?;
        ensure!(cut.changed && cut.ends.iter().all(|(_, after)| after.is_some()), "{name}: {cut:?}");
        rig.lab.wait_until("h1", PATIENCE, |status| {
            let streams = status.open_circuits().count();
            streams == 5 && status.open_circuits().all(|it| it.hops == 1)
        })?;
        std::thread::sleep(CALM);
        ensure!(rig.lab.mend("h1", "h2")?.changed);
        rig.lab.wait_links(PATIENCE)?;
        std::thread::sleep(CALM);
    }
    let report = iperf3::report(&client.finish(WORK)?).with_context(|| rig.story("h1"))?;
    ensure!(report["end"]["sum_received"]["bytes"].as_u64() > Some(0), "nothing arrived");
    let status = rig.lab.status("h1")?;
    let sent: Vec<_> = status.ports.iter().map(|port| (port.name.as_str(), port.tx_bytes)).collect();
    ensure!(sent.len() == 2 && sent.iter().all(|(_, bytes)| *bytes > 1_000_000), "{sent:?}");
    ensure!(status.counters.streams_aborted == 0, "{}", rig.story("h1"));
    drop(server);
    Ok(())
}

//! uvloop's own tests of TCP, TLS and sockets, over 127.0.0.1 with rules that make streams of that.

use anyhow::{Result, ensure};
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{WORK, uvloop};
use crosslane_lab::Options;

/// Modules and how many tests of uvloop (not of asyncio, which they compare with) each has at least.
const MODULES: [(&str, u64); 2] = [("test_tcp", 50), ("test_sockets", 15)];

#[test]
fn uvloops_own_tests() -> Result<()> {
    if !uvloop::is_there() {
        return Ok(());
    }
    let rules = ["client", "server"].map(|role| format!("use both {role} * 127.0.0.1/32:*")).to_vec();
    let Some(rig) = Rig::up(Options { hosts: 1, rules, ..Options::scratch("e2e") })? else { return Ok(()) };
    let Some(tests) = uvloop::tests(&rig)? else { return Ok(()) };
    let measure = rig.measure(&["h1"])?;
    let running = MODULES.map(|(module, _)| uvloop::start(&rig, "h1", &tests, module, "*UV*"));
    for (program, (module, least)) in running.into_iter().zip(MODULES) {
        let count = uvloop::finish(program?, 2 * WORK)?;
        ensure!(count >= least, "{module}: {count} tests of {least}");
    }
    measure.carried(100_000_000, 100)?;
    measure.gave_back()
}

//! Python's standard library.

use anyhow::Result;
use crosslane_e2e::program::run;
use crosslane_e2e::python::Script;
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{WORK, echo, package};
use crosslane_lab::Options;

/// Echo from `from` to `to`, by its address there or another name for it.
fn echo_with(script: Script, from: &str, to: &str, address: Option<&str>, connections: u32) -> Result<()> {
    let Some(rig) = Rig::pair_with_room()? else { return Ok(()) };
    echo_in(rig, script, from, to, address, connections)
}

fn echo_in(
    rig: Rig,
    script: Script,
    from: &str,
    to: &str,
    address: Option<&str>,
    connections: u32,
) -> Result<()> {
    const BYTES: usize = 5_000_000;
    let Some(python) = package::python() else { return Ok(()) };
    let fabric = rig.address(to)?.to_string();
    let measure = rig.measure(&if from == to { vec![from] } else { vec![from, to] })?;
    let port = rig.port();
    let server = echo::server(&rig, script, to, &python, port)?;
    let peer = (address.unwrap_or(&fabric), port);
    echo::client(&rig, script, from, &python, peer, BYTES, connections)?;
    let ends = if from == to { 2 } else { 1 };
    let payload = 2 * BYTES as u64 * u64::from(connections) * ends;
    measure.carried(payload, u64::from(connections) * ends)?;
    drop(server);
    measure.gave_back()
}

#[test]
fn echo_one() -> Result<()> {
    echo_with(Script::Echo, "h1", "h2", None, 1)
}

#[test]
fn echo_v6() -> Result<()> {
    echo_with(Script::Echo, "h1", "h2", Some("fd86::2"), 1)
}

#[test]
fn echo_many() -> Result<()> {
    echo_with(Script::Echo, "h2", "h1", None, 16)
}

#[test]
fn echo_from_buffers() -> Result<()> {
    for (from, to) in [("h1", "h2"), ("h1", "h1")] {
        let Some(rig) = Rig::pair()? else { return Ok(()) };
        rig.large_allocations_are_buffers();
        echo_in(rig, Script::Echo, from, to, None, 8)?;
    }
    Ok(())
}

#[test]
fn echo_inside_one_host() -> Result<()> {
    echo_with(Script::Echo, "h1", "h1", None, 4)
}

#[test]
fn echo_inside_one_host_v6() -> Result<()> {
    echo_with(Script::Echo, "h1", "h1", Some("fd86::1"), 4)
}

#[test]
fn asyncio_streams() -> Result<()> {
    echo_with(Script::Asyncio, "h1", "h2", None, 8)
}

#[test]
fn asyncio_inside_one_host() -> Result<()> {
    echo_with(Script::Asyncio, "h1", "h1", None, 8)
}

/// Loopback is TCP, unless a rule says otherwise.
#[test]
fn echo_over_loopback_by_a_rule() -> Result<()> {
    const BYTES: usize = 1_000_000;
    let Some(python) = package::python() else { return Ok(()) };
    for rules in
        [vec![], ["client", "server"].map(|role| format!("use both {role} * 127.0.0.1/32:*")).to_vec()]
    {
        let streams = !rules.is_empty();
        let Some(rig) = Rig::up(Options { hosts: 1, rules, ..Options::scratch("e2e") })? else {
            return Ok(());
        };
        let measure = rig.measure(&["h1"])?;
        let port = rig.port();
        let server = echo::server(&rig, Script::Echo, "h1", &python, port)?;
        echo::client(&rig, Script::Echo, "h1", &python, ("127.0.0.1", port), BYTES, 2)?;
        if streams {
            measure.carried(2 * 2 * 2 * BYTES as u64, 4)?;
        } else {
            measure.carried_by_ip(0)?;
        }
        drop(server);
        measure.gave_back()?;
    }
    Ok(())
}

/// A ring's neighbours are all one cable away: each of three hosts to each other.
#[test]
fn echo_round_a_ring() -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let Some(rig) = Rig::ring()? else { return Ok(()) };
    let hosts = ["h1", "h2", "h3"];
    let measure = rig.measure(&hosts)?;
    let port = rig.port();
    let servers = hosts
        .iter()
        .map(|host| echo::server(&rig, Script::Echo, host, &python, port))
        .collect::<Result<Vec<_>>>()?;
    for from in hosts {
        for to in hosts {
            let address = rig.address(to)?.to_string();
            echo::client(&rig, Script::Echo, from, &python, (&address, port), 300_000, 2)?;
        }
    }
    // Two connections to and from two others, and two of two ends inside.
    measure.carried(2 * 300_000 * (4 + 4 + 4), 4 + 4 + 4)?;
    drop(servers);
    measure.gave_back()
}

#[test]
fn multiprocessing_connection_and_manager() -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let address = rig.address("h2")?.to_string();
    let measure = rig.measure(&["h1", "h2"])?;
    let (port, manager) = (rig.port(), rig.port());
    let words = ["server", &address, &port.to_string()];
    let mut server = Script::Multiprocessing.server(&rig, "h2", &python, &words, port)?;
    server.listens(manager)?;
    let mut client = Script::Multiprocessing.command(&rig, "h1", &python)?;
    run(client.args(["client", &address, &port.to_string()]), WORK)?;
    measure.carried(2 * (17 << 20), 2)?;
    drop(server);
    measure.gave_back()
}

fn socketserver_with(kind: &str) -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let address = rig.address("h2")?.to_string();
    let measure = rig.measure(&["h1", "h2"])?;
    let port = rig.port();
    let words = [kind, &address, &port.to_string()];
    let server = Script::SocketServer.server(&rig, "h2", &python, &words, port)?;
    echo::client(&rig, Script::Echo, "h1", &python, (&address, port), 2_000_000, 8)?;
    measure.carried(2 * 8 * 2_000_000, 8)?;
    drop(server);
    measure.gave_back()
}

#[test]
fn socketserver_with_threads() -> Result<()> {
    socketserver_with("threading")
}

#[test]
fn socketserver_that_forks() -> Result<()> {
    socketserver_with("forking")
}

/// Either end may be a plain program: then the other one is, too, and nobody notices.
#[test]
fn echo_with_one_end_plain() -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let address = rig.address("h2")?.to_string();
    let measure = rig.measure(&["h1", "h2"])?;
    let (plain, accelerated) = (rig.port(), rig.port());
    let mut command = Script::Echo.plain(&rig, "h2", &python)?;
    let mut one = crosslane_e2e::program::Program::start(command.args(["server", "::", &plain.to_string()]))?;
    one.listens(plain)?;
    let two = echo::server(&rig, Script::Echo, "h2", &python, accelerated)?;
    echo::client(&rig, Script::Echo, "h1", &python, (&address, plain), 1_000_000, 3)?;
    let mut command = Script::Echo.plain(&rig, "h1", &python)?;
    run(command.args(["client", &address, &accelerated.to_string(), "1000000", "3"]), WORK)?;
    // Without a TUN interface the lab's IP goes by its veth pairs.
    measure.carried_by_ip(if rig.lab.state().tun { 2 * 2 * 3_000_000 } else { 0 })?;
    drop((one, two));
    measure.gave_back()
}

fn behaviour(host: &str, address: &str) -> Result<()> {
    let Some(python) = package::python() else { return Ok(()) };
    let Some(rig) = Rig::pair()? else { return Ok(()) };
    let measure = rig.measure(&["h1", host])?;
    let port = rig.port();
    let server = echo::server(&rig, Script::Behaviour, host, &python, port)?;
    let mut client = Script::Behaviour.command(&rig, "h1", &python)?;
    run(client.args(["client", address, &port.to_string()]), WORK)?;
    measure.carried(1_000_000, 10)?;
    drop(server);
    measure.gave_back()
}

#[test]
fn sockets_behave() -> Result<()> {
    behaviour("h2", "10.86.0.2")
}

#[test]
fn sockets_behave_v6() -> Result<()> {
    behaviour("h2", "fd86::2")
}

#[test]
fn sockets_behave_inside_one_host() -> Result<()> {
    behaviour("h1", "10.86.0.1")
}

//! What no preload reaches goes by IP over the fabric, whole and to everyone that it is for.

use anyhow::{Result, ensure};
use crosslane_e2e::nfs::Nfs;
use crosslane_e2e::openssh::Sshd;
use crosslane_e2e::program::{Program, run};
use crosslane_e2e::python::Script;
use crosslane_e2e::rig::Rig;
use crosslane_e2e::{PATIENCE, WORK, go, package, payload, wait_for};
use crosslane_lab::{Options, Topology};
use rustix::process::Signal;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Hosts of the larger labs.
const HOSTS: [&str; 4] = ["h1", "h2", "h3", "h4"];

/// The lab, if it has the fabric's interface.
fn with_interface(rig: Option<Rig>) -> Option<Rig> {
    let rig = rig?;
    if !rig.lab.state().tun {
        package::skip("this user may not use /dev/net/tun");
        return None;
    }
    Some(rig)
}

/// A lab of so many hosts, and Python.
fn up(hosts: u8, topology: Topology) -> Result<Option<(Rig, PathBuf)>> {
    let Some(python) = package::python() else { return Ok(None) };
    let options = Options { hosts, topology, ..Options::scratch("e2e") };
    Ok(with_interface(Rig::up(options)?).map(|rig| (rig, python)))
}

fn addresses(rig: &Rig, host: &str) -> Result<[IpAddr; 2]> {
    Ok([rig.address(host)?, rig.lab.address6(host)?])
}

#[test]
fn go_program() -> Result<()> {
    let Some(compiler) = package::need("go") else { return Ok(()) };
    let Some(rig) = with_interface(Rig::pair()?) else { return Ok(()) };
    let program = go::compile(&rig, &compiler)?;
    let address = rig.address("h2")?.to_string();
    let measure = rig.measure(&["h1", "h2"])?;
    let port = rig.port();
    let mut command = rig.command("h2", &program)?;
    let mut server = Program::start(command.args(["server", &address, &port.to_string()]))?;
    server.listens_to_tcp(port)?;
    let mut command = rig.command("h1", &program)?;
    run(command.args(["client", &address, &port.to_string(), "20000000"]), WORK)?;
    measure.carried_by_ip(40_000_000)?;
    drop(server);
    measure.gave_back()
}

#[test]
fn ping() -> Result<()> {
    let Some(program) = package::need("ping") else { return Ok(()) };
    let Some(rig) = with_interface(Rig::ring()?) else { return Ok(()) };
    let measure = rig.measure(&["h1", "h3"])?;
    for address in addresses(&rig, "h3")? {
        let mut command = rig.plain("h1", &program)?;
        command.args(["-c", "3", "-i", "0.2", "-s", "60000", "-W", "5", &address.to_string()]);
        let text = run(&mut command, WORK)?.text();
        ensure!(text.contains(" 0% packet loss"), "{text}");
    }
    measure.carried_by_ip(2 * 2 * 3 * 60_000)
}

/// The packets are large ones: what a kernel left undone crosses the host between, too.
#[test]
fn tcp_both_ways_over_a_host_between() -> Result<()> {
    let Some((rig, python)) = up(3, Topology::Chain)? else { return Ok(()) };
    let measure = rig.measure(&["h1", "h3"])?;
    for address in addresses(&rig, "h3")? {
        all_came(transfer(&rig, &python, &address.to_string(), 200 << 20)?)?;
    }
    measure.carried_by_ip(2 * 2 * (200 << 20))?;
    let packets = rig.lab.status("h2")?.counters.ip_forwarded_packets;
    // 800 MB in packets of 16 KB on an average at least, and as many acknowledgements.
    ensure!(packets > 0 && packets < 2 * 800 * 64, "{packets} packets were passed on");
    Ok(())
}

/// Begins one connection from h1 to `address` of h3, so many bytes both ways.
fn transfer(rig: &Rig, python: &Path, address: &str, bytes: u64) -> Result<[Program; 2]> {
    let (port, bytes) = (rig.port().to_string(), bytes.to_string());
    let mut command = Script::Net.plain(rig, "h3", python)?;
    let mut server = Program::start(command.args(["tcp-server", address, &port, &bytes]))?;
    server.listens_to_tcp(port.parse()?)?;
    let mut command = Script::Net.plain(rig, "h1", python)?;
    let mut client = Program::start(command.args(["tcp-client", address, &port, &bytes]))?;
    client.says("begins")?;
    Ok([client, server])
}

/// Both ends of a connection find all that was sent.
fn all_came(programs: [Program; 2]) -> Result<()> {
    programs.into_iter().try_for_each(|program| program.finish(WORK).map(|_| ()))
}

#[test]
fn tcp_outlives_the_cable_and_the_host_that_it_went_over() -> Result<()> {
    let Some((mut rig, python)) = up(4, Topology::Ring)? else { return Ok(()) };
    let address = rig.address("h3")?.to_string();
    let connection = transfer(&rig, &python, &address, 600 << 20)?;
    // Whichever way round it goes, one of the two is on it, and one of the cables.
    for host in ["h2", "h4"] {
        rig.lab.cut("h1", host)?;
        rig.lab.mend("h1", host)?;
        rig.lab.wait_links(PATIENCE)?;
        rig.lab.kill_daemon(host, Signal::KILL)?;
        rig.lab.start_daemon(host)?;
        rig.lab.wait_links(PATIENCE)?;
    }
    all_came(connection)
}

#[test]
fn large_datagrams() -> Result<()> {
    let Some((rig, python)) = up(3, Topology::Chain)? else { return Ok(()) };
    for address in addresses(&rig, "h3")? {
        let (address, port) = (address.to_string(), rig.port().to_string());
        let mut command = Script::Net.plain(&rig, "h3", &python)?;
        let mut server = Program::start(command.args(["udp-server", &address, &port]))?;
        server.says("ready")?;
        // 65000 and a header fit one packet; 65500 make two.
        for size in ["60000", "65000", "65500", "1"] {
            let mut command = Script::Net.plain(&rig, "h1", &python)?;
            run(command.args(["udp-client", &address, &port, size, "100"]), WORK)?;
        }
    }
    Ok(())
}

/// What h1 says to a group is heard by `hearers`, each datagram once.
fn received_once(rig: &Rig, python: &Path, receivers: &[&str]) -> Result<()> {
    for group in ["239.86.1.1", "10.86.0.255", "ff15::86:1"] {
        let port = rig.port().to_string();
        let mut programs = Vec::new();
        for host in receivers {
            let mut command = Script::Net.plain(rig, host, python)?;
            let mut program = Program::start(command.args(["hear", group, &port]))?;
            program.says("ready")?;
            programs.push(program);
        }
        let mut command = Script::Net.plain(rig, "h1", python)?;
        run(command.args(["say", group, &port, "100", "1400"]), WORK)?;
        for program in programs {
            program.finish(WORK)?;
        }
    }
    Ok(())
}

#[test]
fn multicast_group_receives_each_datagram_once() -> Result<()> {
    let Some((mut rig, python)) = up(4, Topology::Ring)? else { return Ok(()) };
    received_once(&rig, &python, &HOSTS[1..])?;
    rig.lab.cut("h1", "h2")?;
    rig.lies("h1", 2, Some(3))?;
    rig.lies("h2", 1, Some(3))?;
    received_once(&rig, &python, &HOSTS[1..])?;
    rig.lab.mend("h1", "h2")?;
    rig.lab.wait_links(PATIENCE)?;
    rig.lab.kill_daemon("h2", Signal::KILL)?;
    for host in ["h1", "h3", "h4"] {
        rig.sees(host, 2)?;
    }
    received_once(&rig, &python, &["h3", "h4"])
}

#[test]
fn host_out_of_reach_is_reported_at_once() -> Result<()> {
    let Some((mut rig, python)) = up(3, Topology::Chain)? else { return Ok(()) };
    rig.lab.kill_daemon("h2", Signal::KILL)?;
    rig.sees("h1", 0)?;
    for address in addresses(&rig, "h3")? {
        let mut command = Script::Net.plain(&rig, "h1", &python)?;
        let text = run(command.args(["absent", &address.to_string()]), WORK)?.text();
        ensure!(text.trim() == "No route to host", "{text}");
    }
    Ok(())
}

/// The kernel then says again and again that there is something to hear of it.
#[test]
fn interface_removed_is_logged_once() -> Result<()> {
    let Some(program) = package::need("ip") else { return Ok(()) };
    let Some(rig) = with_interface(Rig::pair()?) else { return Ok(()) };
    run(rig.plain("h1", &program)?.args(["link", "delete", "xl0"]), WORK)?;
    wait_for("word of the interface", PATIENCE, || {
        let log = rig.log("h1").map_err(|error| error.to_string())?;
        if log.contains("the interface was removed") { Ok(()) } else { Err(log) }
    })?;
    rig.lab.wait_until("h1", PATIENCE, |status| status.hosts.len() == 1)?;
    ensure!(rig.log("h1")?.matches("the interface was removed").count() == 1, "{}", rig.story("h1"));
    Ok(())
}

#[test]
fn plain_ssh() -> Result<()> {
    let Some(rig) = with_interface(Rig::pair()?) else { return Ok(()) };
    let measure = rig.measure(&["h1", "h2"])?;
    let Some(sshd) = Sshd::start_plain(&rig, "h2", rig.port())? else { return Ok(()) };
    let sent = payload::bytes(7, 20 << 20);
    let got = sshd.execute(&rig, "h1", "cat", &sent)?;
    payload::equal(&sent, &got)?;
    measure.carried_by_ip(2 * (20 << 20))?;
    drop(sshd);
    measure.gave_back()
}

#[test]
fn nfs() -> Result<()> {
    let Some(rig) = with_interface(Rig::pair()?) else { return Ok(()) };
    let measure = rig.measure(&["h1", "h2"])?;
    let Some(nfs) = Nfs::start(&rig, "h2", rig.port())? else { return Ok(()) };
    let (file, back) = (nfs.folder.join("file"), rig.file("back"));
    payload::file(&file, 13, 50_000_001)?;
    nfs.fetch(&rig, "h1", "file", &back)?;
    payload::same(&file, &back)?;
    for number in 0..10 {
        let (name, small) = (format!("small{number}"), rig.file("small"));
        payload::file(&small, number, 2000)?;
        nfs.store(&rig, "h1", &small, &name)?;
        payload::same(&small, &nfs.folder.join(name))?;
    }
    measure.carried_by_ip(50_000_000)?;
    drop(nfs);
    measure.gave_back()
}

//! A lab with a stand-in for the daemon: what the lab itself does, from `up` to the last file removed.

use crosslane_lab::{Identity, Lab, LabError, Options, Preload};
use crosslane_status::{Host, Link, Port, SCHEMA, Status};
use crosslane_wire::HostId;
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(20);

/// Answers `Hello`, `Cut` and `Mend` with `Done`, and everything else with a status whose links are up. What stands between `@` is
/// filled in.
const STAND_IN: &str = r#"#!/usr/bin/env python3
import json, os, socket, sys, threading
text = open(sys.argv[sys.argv.index("--config") + 1]).read()
def value(key): return [l.split("=")[1].strip().strip('"') for l in text.splitlines() if l.startswith(key + " ")][0]
me, path = int(value("host")), value("control")
if os.environ.get("STAND_IN_FAILS"): sys.exit("stand-in gives up")
if os.path.exists(path): os.unlink(path)
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(path); listener.listen()
ports = [part.split('"')[1] for part in text.split("[[port]]\nname = ")[1:]]
cut = [part.split('"')[1] for part in text.split("[[port]]\nname = ")[1:] if "cut = true" in part]
status, port, host = (json.loads(text) for text in (r'@STATUS@', r'@PORT@', r'@HOST@'))
status.update(host=me, ports=[dict(port, name=p, link="cut" if p in cut else "up") for p in ports],
              hosts=[dict(host, id=n) for n in range(1, 9) if n != me])
status = json.dumps(status).encode()
def varint(n): return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)
def serve(peer):
    peer.recv(9000); peer.send(b"\x01")
    while request := peer.recv(9000):
        # What names a port cuts or mends it.
        done = any(name.encode() in request for name in ports)
        peer.send(b"\x01" if done else b"\x09" + varint(len(status)) + status + b"\x01")
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"#;

/// A stand-in's text with documents that lack nothing.
fn filled(text: &str) -> String {
    let json = |document| serde_json::to_string(&document).expect("JSON");
    let status = Status { schema: SCHEMA, ..Status::default() }.to_string();
    text.replace("@STATUS@", &status)
        .replace("@PORT@", &json(serde_json::to_value(Port::default()).expect("JSON")))
        .replace("@HOST@", &json(serde_json::to_value(Host::default()).expect("JSON")))
}

struct Place {
    base: TempDir,
    bin: TempDir,
}

impl Place {
    fn new(daemon: &str) -> Self {
        let base = tempfile::tempdir().expect("folder");
        let bin = tempfile::tempdir().expect("folder");
        let path = bin.path().join("crosslaned");
        fs::write(&path, filled(daemon)).expect("stand-in");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
        symlink(env!("CARGO_BIN_EXE_crosslane-keeper"), bin.path().join("crosslane-keeper")).expect("link");
        fs::write(bin.path().join("libcrosslane_sockets.so"), "").expect("library");
        Self { base, bin }
    }

    fn options(&self, hosts: u8) -> Options {
        Options {
            hosts,
            base: Some(self.base.path().to_owned()),
            bin: Some(self.bin.path().to_owned()),
            ..Options::named("t")
        }
    }

    /// Brings a lab up; `None`, loudly, where the kernel lets us make no namespaces.
    fn up(&self, hosts: u8) -> Option<Lab> {
        match Lab::up(&self.options(hosts)) {
            Ok(lab) => Some(lab),
            Err(LabError::Keeper(why)) if why.contains("does not let you") => {
                println!("SKIPPED: {why}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn output(lab: &Lab, host: &str, preload: Preload, script: &str) -> String {
    let mut command = lab.command(host, preload, "/bin/sh").expect("host");
    let output = command.args(["-c", script]).stdin(Stdio::null()).output().expect("runs");
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

/// Processes in the network namespace of inode `network`.
fn still_in(network: u64) -> Vec<String> {
    use std::os::unix::fs::MetadataExt;
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    entries
        .filter(|entry| fs::metadata(entry.path().join("ns/net")).is_ok_and(|m| m.ino() == network))
        .map(|entry| fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default())
        .collect()
}

fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn lab_ring_comes_up_wired_and_leaves_nothing() {
    let place = Place::new(STAND_IN);
    let Some(lab) = place.up(3) else { return };
    for (from, to) in [("h1", "h2"), ("h2", "h3"), ("h3", "h1")] {
        let address = lab.baseline(from, to).expect("neighbours");
        let route = output(&lab, from, Preload::Off, &format!("ip route get {address}"));
        assert!(route.contains(" dev c"), "{route}");
    }
    let names = output(&lab, "h2", Preload::Off, "ip -br addr show up | cut -d' ' -f1");
    assert!(names.contains("lo") && names.contains("c1@") && names.contains("c2@"), "{names}");
    let config = fs::read_to_string(&lab.host("h3").expect("host").config).expect("config");
    assert_eq!(config.matches("[[port]]").count(), 2, "{config}");
    let daemons: Vec<Identity> =
        ["h1", "h2", "h3"].map(|host| lab.daemon(host).expect("host").expect("runs")).into();
    let keeper = lab.state().keeper;
    lab.down().expect("down");
    assert!(!keeper.alive() && daemons.iter().all(|daemon| !daemon.alive()));
    assert_eq!(fs::read_dir(place.base.path()).expect("base").count(), 0);
    assert!(!Lab::clean("t", Some(place.base.path())).expect("idempotent"));
}

#[test]
fn wiring_kernel_reaches_farther_hosts_over_the_pairs() {
    let place = Place::new(STAND_IN);
    let Some(lab) = place.up(4) else { return };
    for (from, to) in [("h1", "h3"), ("h4", "h2")] {
        let address = lab.baseline(from, to).expect("a way");
        let ping = lab.command(from, Preload::Off, "ping").expect("host");
        let answer = { ping }.args(["-c", "1", "-W", "5", &address.to_string()]).output().expect("ping");
        let said = String::from_utf8_lossy(&answer.stdout);
        assert!(answer.status.success() && said.contains("ttl=63"), "{said}");
    }
}

#[test]
fn exec_runs_the_program_itself() {
    let place = Place::new(STAND_IN);
    let Some(lab) = place.up(2) else { return };
    let on = output(&lab, "h1", Preload::On, "echo $LD_PRELOAD $CROSSLANE_SOCKET 2>/dev/null");
    assert!(on.contains("libcrosslane_sockets.so") && on.contains("h1.sock"), "{on}");
    let off = output(&lab, "h1", Preload::Off, "echo =$LD_PRELOAD=");
    assert_eq!(off, "==");
    let code = lab.command("h2", Preload::Off, "/bin/sh").expect("host").args(["-c", "exit 7"]).status();
    assert_eq!(code.expect("runs").code(), Some(7));
    let missing = lab.command("h2", Preload::Off, "/no/such/program").expect("host").output().expect("runs");
    assert_eq!(missing.status.code(), Some(127));
    let mut child = lab.command("h2", Preload::Off, "sleep").expect("host").arg("60").spawn().expect("spawn");
    let name = format!("/proc/{}/comm", child.id());
    wait_for("exec", || fs::read_to_string(&name).is_ok_and(|name| name.trim() == "sleep"));
    child.kill().expect("kill");
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(child.wait().expect("wait").signal(), Some(9));
    assert!(matches!(lab.command("h9", Preload::Off, "true"), Err(LabError::NoHost { .. })));
}

/// Programs look there which interfaces there are.
#[test]
fn sys_shows_the_hosts_own_interfaces() {
    let place = Place::new(STAND_IN);
    let Some(lab) = place.up(2) else { return };
    let interfaces = |command: &str| {
        let mut names: Vec<String> =
            output(&lab, "h1", Preload::Off, command).split_whitespace().map(str::to_owned).collect();
        names.sort();
        names
    };
    let there = interfaces("tail -n +3 /proc/net/dev | cut -d: -f1");
    assert!(there.contains(&"lo".to_owned()), "{there:?}");
    assert_eq!(interfaces("ls /sys/class/net"), there);
    let groups = |at: &str| fs::read_dir(at).map_or(0, Iterator::count);
    if groups("/sys/fs/cgroup") > 0 {
        assert_ne!(output(&lab, "h1", Preload::Off, "ls /sys/fs/cgroup"), "");
    }
}

#[test]
fn lab_end_ends_its_programs() {
    let place = Place::new(STAND_IN);
    let Some(lab) = place.up(1) else { return };
    // Ignores SIGTERM, and has left its parent.
    let mut child = lab
        .command("h1", Preload::Off, "/bin/sh")
        .expect("host")
        .args(["-c", "trap '' TERM; sleep 60; sleep 60"])
        .spawn()
        .expect("spawn");
    let it = Identity::of(i32::try_from(child.id()).expect("pid")).expect("runs");
    let network = lab.host("h1").expect("host").inode;
    wait_for("it is in the host", || {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(format!("/proc/{}/ns/net", it.pid)).is_ok_and(|m| m.ino() == network)
    });
    drop(lab);
    assert!(!it.alive());
    assert_eq!(still_in(network), Vec::<String>::new());
    child.wait().expect("reaped");
}

#[test]
fn keeper_killed_leaves_a_lab_that_is_cleaned_up() {
    let place = Place::new(STAND_IN);
    let Some(lab) = place.up(2) else { return };
    let daemon = lab.daemon("h1").expect("host").expect("runs");
    let mut child = lab.command("h1", Preload::Off, "sleep").expect("host").arg("60").spawn().expect("spawn");
    let it = Identity::of(i32::try_from(child.id()).expect("pid")).expect("runs");
    let name = format!("/proc/{}/comm", it.pid);
    wait_for("exec", || fs::read_to_string(&name).is_ok_and(|name| name.trim() == "sleep"));
    assert!(lab.state().keeper.signal(Signal::KILL));
    assert!(daemon.wait_gone(PATIENCE), "daemons end with their keeper");
    assert!(it.alive());
    assert!(matches!(Lab::attach("t", Some(place.base.path())), Err(LabError::NotUp { .. })));
    assert!(Lab::clean("t", Some(place.base.path())).expect("cleaned"));
    assert!(!it.alive());
    child.wait().expect("reaped");
    assert_eq!(fs::read_dir(place.base.path()).expect("base").count(), 0);
}

#[test]
fn keeper_killed_long_ago_leaves_what_is_swept() {
    let place = Place::new(STAND_IN);
    let Some(lab) = place.up(1) else { return };
    let base = place.base.path();
    assert!(Lab::sweep(base).expect("swept").is_empty(), "this one is kept");
    assert!(lab.state().keeper.signal(Signal::KILL));
    wait_for("the keeper is gone", || !lab.state().keeper.alive());
    assert!(Lab::sweep(base).expect("swept").is_empty(), "it may be about to get a keeper");
    let folder = fs::File::open(lab.folder()).expect("folder");
    folder.set_modified(std::time::SystemTime::now() - Duration::from_secs(600)).expect("old");
    assert_eq!(Lab::sweep(base).expect("swept"), ["t"]);
    assert_eq!(fs::read_dir(base).expect("base").count(), 0);
}

#[test]
fn lab_of_a_taken_name_is_refused_unless_forced() {
    let place = Place::new(STAND_IN);
    let Some(lab) = place.up(1) else { return };
    lab.detach().expect("detached");
    assert!(matches!(Lab::up(&place.options(1)), Err(LabError::AlreadyUp { .. })));
    let second = Lab::up(&Options { force: true, ..place.options(2) }).expect("replaced");
    assert_eq!(second.state().hosts.len(), 2);
    let attached = Lab::attach("t", Some(place.base.path())).expect("attached");
    assert_eq!(attached.state(), second.state());
    drop(attached);
    assert!(second.state().keeper.alive(), "dropping an attached lab leaves it up");
}

#[test]
fn daemon_is_killed_and_restarted() {
    let place = Place::new(STAND_IN);
    let Some(mut lab) = place.up(2) else { return };
    let before = lab.daemon("h2").expect("host").expect("runs");
    lab.kill_daemon("h2", Signal::KILL).expect("killed");
    assert!(!before.alive());
    assert_eq!(lab.daemon("h2").expect("host"), None);
    assert!(lab.kill_daemon("h2", Signal::KILL).is_err());
    lab.start_daemon("h2").expect("started");
    lab.wait_links(PATIENCE).expect("up again");
    assert!(lab.start_daemon("h2").is_err());
    let status = lab.wait_until("h2", PATIENCE, |status| status.host == HostId(2)).expect("status");
    assert_eq!(status.ports[0].link, Link::Up);
}

#[test]
fn cut_and_mend_outlive_the_daemon() {
    let place = Place::new(STAND_IN);
    let Some(mut lab) = place.up(4) else { return };
    for (one, other) in [("h1", "h9"), ("h9", "h1")] {
        assert!(matches!(lab.cut(one, other), Err(LabError::NoHost { .. })));
    }
    for (one, other) in [("h1", "h3"), ("h1", "h1")] {
        let error = lab.cut(one, other).expect_err("no cable").to_string();
        assert!(error.contains("h2, h4"), "{error}");
    }
    assert!(!lab.mend("h2", "h3").expect("whole").changed);
    // Cable 2 is pulled at h2. While its daemon is down that is only written down.
    lab.kill_daemon("h2", Signal::KILL).expect("killed");
    let link = |lab: &Lab| {
        let status = lab.wait_until("h2", PATIENCE, |status| status.host == HostId(2)).expect("status");
        status.port("right").expect("port").link
    };
    assert!(lab.cut("2", "h3").expect("cut").changed);
    assert!(!lab.cut("h3", "h2").expect("cut").changed, "it is cut already");
    lab.start_daemon("h2").expect("started");
    assert_eq!(link(&lab), Link::Cut);
    lab.wait_links(PATIENCE).expect("nobody waits for a cable that is cut");
    lab.kill_daemon("h2", Signal::KILL).expect("killed");
    assert!(lab.mend("h2", "h3").expect("mended").changed);
    lab.start_daemon("h2").expect("started");
    assert_eq!(link(&lab), Link::Up);
}

#[test]
fn host_is_killed_with_all_that_runs_in_it() {
    let place = Place::new(STAND_IN);
    let Some(mut lab) = place.up(2) else { return };
    let sleeper = |host: &str| {
        let child = lab.command(host, Preload::Off, "sleep").expect("host").arg("60").spawn().expect("spawn");
        let it = Identity::of(i32::try_from(child.id()).expect("pid")).expect("runs");
        let name = format!("/proc/{}/comm", it.pid);
        wait_for("exec", || fs::read_to_string(&name).is_ok_and(|name| name.trim() == "sleep"));
        (child, it)
    };
    let ((mut victim, gone), (mut other, stays)) = (sleeper("h2"), sleeper("h1"));
    lab.kill_host("h2").expect("killed");
    assert!(!gone.alive() && stays.alive());
    assert_eq!(lab.daemon("h2").expect("host"), None);
    assert!(lab.daemon("h1").expect("host").is_some());
    victim.wait().expect("reaped");
    lab.start_daemon("h2").expect("started");
    lab.wait_host("h2", PATIENCE).expect("up again");
    // A restarted daemon is the lab's like any other.
    let again = lab.daemon("h2").expect("host").expect("runs");
    let keeper = lab.state().keeper;
    assert!(keeper.signal(Signal::KILL));
    assert!(again.wait_gone(PATIENCE), "a restarted daemon ends with its keeper, too");
    drop(lab);
    assert!(!stays.alive());
    other.wait().expect("reaped");
}

#[test]
fn lab_start_failure_says_why_and_leaves_nothing() {
    let place = Place::new("#!/bin/sh\necho no port of mine; exit 1\n");
    let options = place.options(2);
    let begin = Instant::now();
    match Lab::up(&options) {
        Err(LabError::Keeper(why)) if why.contains("does not let you") => println!("SKIPPED: {why}"),
        Err(error) => assert!(error.to_string().contains("no port of mine"), "{error}"),
        Ok(_) => panic!("it cannot be up"),
    }
    assert!(begin.elapsed() < options.patience, "nobody waits for a daemon that has ended");
    assert_eq!(fs::read_dir(place.base.path()).expect("base").count(), 0);
}

#[test]
fn lab_names_missing_programs() {
    let place = Place::new(STAND_IN);
    let options = Options { bin: Some(Path::new("/nowhere").to_owned()), ..place.options(2) };
    assert!(Lab::up(&options).is_err_and(|error| error.to_string().contains("crosslaned")));
}

/// Where the maker below finds its programs and puts its lab.
const MAKER: &str = "CROSSLANE_TEST_MAKER";

/// Not a test of its own: the process that the next one kills. Makes a lab, says so, and waits for its end.
#[test]
fn maker() {
    let Ok(places) = std::env::var(MAKER) else { return };
    let (base, bin) = places.split_once(':').expect("two folders");
    let options = Options { base: Some(base.into()), bin: Some(bin.into()), hosts: 2, ..Options::named("t") };
    let _lab = Lab::up(&options).expect("up");
    println!("lab is up");
    std::io::stdin().read_line(&mut String::new()).expect("waits");
}

#[test]
fn lab_ends_with_its_maker() {
    let place = Place::new(STAND_IN);
    if place.up(1).is_none() {
        return;
    }
    let mut maker = std::process::Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "maker", "--nocapture"])
        .env(MAKER, format!("{}:{}", place.base.path().display(), place.bin.path().display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("maker starts");
    let mut keeper = None;
    wait_for("the lab is up", || {
        keeper = Lab::attach("t", Some(place.base.path())).ok().map(|lab| lab.state().keeper);
        keeper.is_some()
    });
    maker.kill().expect("killed");
    maker.wait().expect("reaped");
    assert!(keeper.is_some_and(|keeper| keeper.wait_gone(PATIENCE)));
    assert_eq!(fs::read_dir(place.base.path()).expect("base").count(), 0);
}

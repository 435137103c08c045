//! One daemon: circuits inside a host, adoption, tools, bad beginnings.

mod support;

use crosslane_client::shared::SharedState;
use crosslane_shm::mem::new_segment;
use crosslane_wire::local::{Plain, Reply, Request};
use crosslane_wire::{HostId, PROTOCOL_VERSION};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Output};
use std::sync::atomic::Ordering;
use support::*;

fn alone() -> Lab {
    let mut lab = Lab::new();
    lab.configure(1, 1, &[], "");
    lab.start(1);
    lab
}

fn crosslaned(file: &std::path::Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_crosslaned")).arg("--config").arg(file).args(more).output().unwrap()
}

#[test]
fn circuit_joins_two_programs_of_one_host() {
    let lab = alone();
    for (bind, local, remote) in [
        ("127.0.0.1:0", "0.0.0.0:0", "127.0.0.1"),
        ("0.0.0.0:0", "0.0.0.0:0", "127.0.0.1"),
        ("[::]:0", "0.0.0.0:0", "127.0.0.1"),
        ("[::1]:0", "[::]:0", "::1"),
        ("127.86.0.1:0", "127.86.0.1:0", "127.86.0.1"),
    ] {
        let mut client = Client::hello(&lab.control(1), "client");
        let mut server = Client::hello(&lab.control(1), "server");
        let listener = TcpListener::bind(bind).unwrap();
        server.listen(&listener);
        let target = (remote, listener.local_addr().unwrap().port());
        let address = std::net::ToSocketAddrs::to_socket_addrs(&target).unwrap().next().unwrap();
        let (socket, near) = client.connect_to(local, address);
        let near = near.unwrap();
        rustix::net::connect(&socket, &address).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let far = server.circuit(&Request::Accept, accepted.as_fd()).unwrap();
        check_joined(&near, &far);
        client.close(&near, false);
        server.close(&far, false);
        lab.wait_idle(1);
    }
}

#[test]
fn bytes_are_counted_from_the_states_of_open_and_closed_streams() {
    let lab = alone();
    let mut client = Client::hello(&lab.control(1), "client");
    let mut server = Client::hello(&lab.control(1), "server");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    server.listen(&listener);
    let (socket, near) = client.connect_to("127.0.0.1:0", listener.local_addr().unwrap());
    let (near, _sockets) = (near.unwrap(), finish(socket, &listener));
    let (state, _) = near.state.as_ref().unwrap();
    state.counters.tx_bytes.store(1234, Ordering::Relaxed);
    state.counters.rx_bytes.store(77, Ordering::Relaxed);
    let counters = |lab: &Lab| {
        let status = lab.status(1);
        let number = |name: &str| status["counters"][name].as_u64().unwrap();
        (number("stream_tx_bytes"), number("stream_rx_bytes"), number("streams_open"))
    };
    assert_eq!(counters(&lab), (1234, 77, 1));
    client.close(&near, false);
    lab.wait(1, "closed", |status| status["counters"]["streams_closed"] == 1);
    assert_eq!(counters(&lab), (1234, 77, 0));
}

#[test]
fn adopted_end_outlives_the_session_that_made_it() {
    let lab = alone();
    let mut client = Client::hello(&lab.control(1), "client");
    let mut server = Client::hello(&lab.control(1), "server");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    server.listen(&listener);
    let (socket, near) = client.connect_to("127.0.0.1:0", listener.local_addr().unwrap());
    let near = near.unwrap();
    let (near_socket, far_socket) = finish(socket, &listener);
    let far = server.circuit(&Request::Accept, far_socket.as_fd()).unwrap();
    let mut heir = Client::hello(&lab.control(1), "heir");
    let adopted = heir.circuit(&Request::Adopt, near_socket.as_fd()).unwrap();
    assert_eq!((adopted.id, adopted.fds.len()), (near.id, 3));
    let number = |fd: &OwnedFd| rustix::fs::fstat(fd).unwrap().st_ino;
    assert_eq!(number(&adopted.fds[2]), number(&near.state.as_ref().unwrap().1));
    check_joined(&adopted, &far);
    drop(client);
    lab.wait(1, "session gone", |status| status["sessions"] == 3);
    assert_eq!(server.status(&far), 0);
    assert_eq!(lab.status(1)["circuits"][0]["state"], "open");
    heir.close(&adopted, false);
    server.close(&far, false);
    lab.wait_idle(1);
    let nothing = heir.circuit(&Request::Adopt, near_socket.as_fd());
    assert_eq!(nothing.unwrap_err(), Reply::Plain { why: Plain::NotAnnounced });
}

#[test]
fn end_that_nobody_holds_is_collected() {
    let lab = alone();
    let mut client = Client::hello(&lab.control(1), "client");
    let mut server = Client::hello(&lab.control(1), "server");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    server.listen(&listener);
    let (socket, near) = client.connect_to("127.0.0.1:0", listener.local_addr().unwrap());
    let near = near.unwrap();
    let (near_socket, far_socket) = finish(socket, &listener);
    let far = server.circuit(&Request::Accept, far_socket.as_fd()).unwrap();
    drop(near_socket);
    drop(far_socket);
    server.close(&far, false);
    lab.wait_idle(1);
    assert!(lab.log(1).contains("nobody holds this end"));
    client.close(&near, false);
}

#[test]
fn tools_get_texts_and_echoes() {
    let mut lab = Lab::new();
    lab.configure(1, 1, &[], "metrics = \"127.0.0.1:0\"");
    assert!(crosslaned(&lab.path("1.toml"), &["--check"]).status.success());
    lab.start(1);
    let mut tool = Client::hello(&lab.control(1), "tool");
    assert!(tool.text(&Request::Metrics).contains("\ncrosslane_streams_open 0\n"));
    assert!(tool.text(&Request::Hosts).contains("127.86.0.1 h1\n"));
    let remote = "10.0.0.1:80".parse().unwrap();
    tool.tell(&Request::Note { fd: 5, remote, why: Plain::Exec }, &[]);
    let explained = tool.text(&Request::Explain { pid: std::process::id() });
    let explained: serde_json::Value = serde_json::from_str(&explained).unwrap();
    assert!(explained["sessions"][0]["notes"][0]["why"] == "Exec", "{explained:#}");
    assert_eq!(
        tool.ask(&Request::Echo { to: HostId(1) }, &[]).0,
        Reply::Echo { round_trip_ns: Some(0), hops: 0 }
    );
    assert_eq!(
        tool.ask(&Request::Echo { to: HostId(9) }, &[]).0,
        Reply::Echo { round_trip_ns: None, hops: 0 }
    );
}

#[test]
fn metrics_are_served_by_http() {
    let probe = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = probe.local_addr().unwrap();
    drop(probe);
    let mut lab = Lab::new();
    lab.configure(1, 1, &[], &format!("metrics = \"{address}\""));
    lab.start(1);
    for (path, status) in [("/metrics", "200"), ("/nothing", "404")] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        assert_eq!(answer.contains("crosslane_sessions"), status == "200");
    }
}

#[test]
fn bad_beginnings_have_clear_messages_and_exit_codes() {
    let mut lab = alone();
    let second = crosslaned(&lab.path("1.toml"), &[]);
    assert_eq!(second.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&second.stderr).contains("another daemon answers"));
    let file = lab.configure(2, 1, &[], "colour = 3");
    let bad = crosslaned(&file, &[]);
    assert_eq!(bad.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&bad.stderr).contains("colour"));
    let missing = crosslaned(&lab.path("none.toml"), &["--check"]);
    assert_eq!(missing.status.code(), Some(2));
    lab.kill(1);
    assert!(lab.control(1).exists());
    lab.start(1);
    assert_eq!(lab.stop(1), Some(0));
}

#[test]
fn strange_requests_are_answered_and_harm_nobody() {
    let lab = alone();
    let mut stranger = Client::connect(&lab.control(1)).unwrap();
    assert!(matches!(stranger.ask(&Request::Status, &[]).0, Reply::Error { .. }));
    let hello = Request::Hello { version: PROTOCOL_VERSION + 1, program: "x".to_owned(), ticket: 0 };
    assert!(matches!(stranger.ask(&hello, &[]).0, Reply::Error { text } if text.contains("version")));
    let file = std::fs::File::open("/dev/null").unwrap();
    let hello = Request::Hello { version: PROTOCOL_VERSION, program: "x".repeat(5000), ticket: 0 };
    assert!(matches!(stranger.ask(&hello, &[file.as_fd()]).0, Reply::Welcome { .. }));
    assert!(matches!(stranger.ask(&hello, &[]).0, Reply::Error { .. }), "it was said already");
    for request in [Request::Listen, Request::Accept, Request::Adopt, Request::Offload] {
        assert!(matches!(stranger.ask(&request, &[]).0, Reply::Error { .. }));
    }
    assert!(matches!(stranger.ask(&Request::Listen, &[file.as_fd()]).0, Reply::Error { .. }));
    let (_, state) = SharedState::create().unwrap();
    let accept = |client: &mut Client, memory: &OwnedFd| {
        client.ask(&Request::Accept, &[file.as_fd(), memory.as_fd()]).0
    };
    assert!(matches!(accept(&mut stranger, &state), Reply::Plain { .. }));
    let long = new_segment("state", 8192).unwrap();
    assert!(matches!(accept(&mut stranger, &long), Reply::Error { text } if text.contains("state")));
    assert_eq!(lab.status(1)["host"], 1);
}

/// The rules that a new session is told.
fn rules_of(lab: &Lab) -> Vec<String> {
    let client = Client::hello(&lab.control(1), "test");
    let Some(Reply::Welcome { rules, .. }) = client.welcome else { panic!("no welcome") };
    rules.iter().map(crosslane_node::rule::text).collect()
}

#[test]
fn rules_are_read_again_at_sighup_and_a_bad_file_changes_nothing() {
    let mut lab = alone();
    let file = lab.path("1.toml");
    let before = std::fs::read_to_string(&file).unwrap();
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    let hang_up = |lab: &mut Lab| {
        let pid = rustix::process::Pid::from_child(lab.daemon(1));
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    };
    let new = "use tcp client ssh 10.0.0.0/8:22";
    write(&before.replace("rules = [", &format!("rules = [\"{new}\", ")).replace("1M", "2M"));
    hang_up(&mut lab);
    until("the new rule is told", || rules_of(&lab).contains(&new.to_owned()).then_some(()));
    let log = lab.log(1);
    assert!(log.contains("rule is new") && log.contains(new) && log.contains("only rules"), "{log}");

    let chosen = ["transfer bcopy client * 10.0.0.0/8:22", "offload on server * 0.0.0.0/0:*"];
    write(&format!(
        "offload = true\n{}",
        before.replace("rules = [", &format!("rules = [\"{new}\", \"{}\", ", chosen[0]))
    ));
    hang_up(&mut lab);
    let told = || chosen.iter().all(|rule| rules_of(&lab).contains(&(*rule).to_owned()));
    until("what is chosen by rules is told", || told().then_some(()));

    write(&before.replace("use both server", "use some server"));
    hang_up(&mut lab);
    until("the mistake is named", || lab.log(1).contains("some").then_some(()));
    assert!(rules_of(&lab).contains(&new.to_owned()), "the old rules stay");

    write(&before);
    hang_up(&mut lab);
    until("the rule is gone", || lab.log(1).contains("rule is gone").then_some(()));
    assert!(!rules_of(&lab).contains(&new.to_owned()));
    assert_eq!(lab.stop(1), Some(0));
}

#[test]
fn cable_that_never_came_up_is_told_once() {
    let mut lab = Lab::new();
    lab.configure(1, 1, &[port("lonely", false)], "");
    lab.start(1);
    let told = |lab: &Lab| lab.log(1).matches("cable has not come up yet").count();
    until("it is told", || (told(&lab) > 0).then_some(()));
    let log = lab.log(1);
    assert!(log.contains("lonely") && log.contains("nobody at"), "{log}");
    lab.configure(2, 2, &[port("lonely", true)], "");
    lab.start(2);
    lab.wait_hosts(1, &[2]);
    assert_eq!(told(&lab), 1);
}

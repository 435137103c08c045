//! What a session may see of others.

mod support;

use crosslane_wire::local::{Plain, Request};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use support::*;

/// Names the control socket for [`heir`].
const HEIR: &str = "SPYING_HEIR";

/// Root's programs with a stream, a listener and a note, and a session of nobody.
struct Scene {
    lab: Lab,
    nobody: Client,
    server: Client,
    listener: TcpListener,
    kept: (Client, OwnedFd, Circuit),
}

fn scene(more: &str) -> Option<Scene> {
    let mut lab = Lab::new();
    lab.configure(1, 1, &[], more);
    lab.start(1);
    let nobody = Client::of_nobody(&lab.control(1), "spy")?;
    let mut client = Client::hello(&lab.control(1), "secret-client");
    let mut server = Client::hello(&lab.control(1), "secret-server");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    server.listen(&listener);
    let (socket, circuit) = client.connect_to("127.0.0.1:0", listener.local_addr().unwrap());
    client.tell(&Request::Note { fd: 9, remote: "192.0.2.7:7".parse().unwrap(), why: Plain::Rule }, &[]);
    Some(Scene { lab, nobody, server, listener, kept: (client, socket, circuit.unwrap()) })
}

fn ask(client: &mut Client, request: &Request) -> (String, Value) {
    let text = client.text(request);
    let value = serde_json::from_str(&text).unwrap_or_default();
    (text, value)
}

#[test]
fn another_user_finds_nothing_of_ours() {
    let Some(mut scene) = scene("") else { return };
    let port = scene.listener.local_addr().unwrap().port().to_string();
    let explain = Request::Explain { pid: std::process::id() };
    for request in [Request::Status, Request::Metrics, Request::Hosts, explain.clone()] {
        let (text, _) = ask(&mut scene.nobody, &request);
        for secret in ["secret", port.as_str(), "192.0.2.7"] {
            assert!(!text.contains(secret), "{request:?} tells {secret}: {text}");
        }
    }
    assert_eq!(ask(&mut scene.nobody, &explain).1["not_yours"], true);
    let (_, status) = ask(&mut scene.nobody, &Request::Status);
    assert_eq!(status["counters"]["streams_open"], 1, "totals are everybody's");
    let (text, whole) = ask(&mut scene.server, &Request::Status);
    assert!(text.contains("secret-client") && text.contains(&port));
    assert_eq!(whole["circuits"].as_array().map(Vec::len), Some(2));
    assert!(ask(&mut scene.server, &explain).0.contains("192.0.2.7"));
}

/// The metrics are one text for everybody, over HTTP and by request.
#[test]
fn metrics_tell_of_nobody() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let Some(mut scene) = scene(&format!("metrics = \"{free}\"")) else { return };
    let port = scene.listener.local_addr().unwrap().port().to_string();
    let mut reader = TcpStream::connect(free).unwrap();
    reader.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut scraped = String::new();
    reader.read_to_string(&mut scraped).unwrap();
    let (asked, _) = ask(&mut scene.server, &Request::Metrics);
    let (_, body) = scraped.split_once("\r\n\r\n").unwrap();
    for text in [body, &asked] {
        assert!(text.contains("crosslane_streams_open 1\n"), "{text}");
        let pid = std::process::id().to_string();
        for secret in ["secret", port.as_str(), "192.0.2.7", "127.0.0.1", pid.as_str()] {
            let told = text.lines().any(|line| line.split([' ', '"', ':']).any(|word| word == secret));
            assert!(!told && !text.contains("secret"), "the metrics tell {secret}: {text}");
        }
    }
}

#[test]
fn status_shows_a_user_its_own() {
    let Some(mut scene) = scene("") else { return };
    let own = TcpListener::bind("127.0.0.1:0").unwrap();
    scene.nobody.listen(&own);
    let (_socket, circuit) = scene.nobody.connect_to("127.0.0.1:0", own.local_addr().unwrap());
    circuit.unwrap();
    let (_, status) = ask(&mut scene.nobody, &Request::Status);
    assert_eq!(status["listeners"], serde_json::json!([own.local_addr().unwrap().to_string()]));
    let roles: Vec<&Value> = status["circuits"].as_array().unwrap().iter().map(|it| &it["role"]).collect();
    assert_eq!(roles, ["client", "server"], "one that its listener has yet to accept as well");
}

/// Not a test of its own, and nothing to do unless told: adopts the stream that is its standard input, and asks about itself.
#[test]
fn heir() {
    let Ok(control) = std::env::var(HEIR) else { return };
    let mut client = Client::hello(Path::new(&control), "heir");
    client.circuit(&Request::Adopt, std::io::stdin().as_fd()).unwrap();
    println!("\ntold {}", client.text(&Request::Explain { pid: std::process::id() }));
}

#[test]
fn heir_of_a_stream_is_not_told_who_opened_it() {
    let Some(scene) = scene("") else { return };
    let (_client, socket, circuit) = &scene.kept;
    let (near, _far) = finish(socket.try_clone().unwrap(), &scene.listener);
    // Where others may execute it.
    let program = scene.lab.path("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut command = Command::new(program);
    command.args(["--exact", "heir", "--nocapture"]).env(HEIR, scene.lab.control(1));
    command.uid(NOBODY).gid(NOBODY).stdin(Stdio::from(OwnedFd::from(near)));
    let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let told = said.lines().find_map(|line| line.strip_prefix("told ")).expect("an answer");
    let told: Value = serde_json::from_str(told).unwrap();
    assert_eq!(told["sessions"][0]["program"], "heir", "{told}");
    let streams = told["circuits"].as_array().unwrap();
    assert_eq!(streams.len(), 1, "{told}");
    assert_eq!(
        (&streams[0]["id"], &streams[0]["program"], &streams[0]["pid"]),
        (&circuit.id.0.into(), &"".into(), &0.into())
    );
}

#[test]
fn members_of_the_operators_group_see_all() {
    // Nobody's session has root's groups here.
    let Some(mut scene) = scene("operators = \"0\"") else { return };
    assert!(ask(&mut scene.nobody, &Request::Status).0.contains("secret-client"));
    drop(scene.lab);
}

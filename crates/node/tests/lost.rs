//! Sessions whose connection ends while their process lives: what they hold waits for them, and costs what it cost.

mod support;

use crosslane_wire::PROTOCOL_VERSION;
use crosslane_wire::codec::{self, MAX_MESSAGE};
use crosslane_wire::local::{Plain, Reply, Request};
use rustix::net::SendFlags;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::Command;
use std::time::{Duration, Instant};
use support::*;

const GREEDY: u32 = 4011;

/// A stream within a host, whose programs are both in this process.
struct One {
    client: Client,
    server: Client,
    near: Circuit,
    far: Circuit,
    sockets: (TcpStream, TcpStream),
}

fn host(more: &str) -> Lab {
    let mut lab = Lab::new();
    lab.configure(1, 1, &[], more);
    lab.start(1);
    lab.open_to_all();
    lab
}

fn stream(mut client: Client, mut server: Client) -> One {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    server.listen(&listener);
    let (socket, near) = client.connect_to("127.0.0.1:0", listener.local_addr().unwrap());
    let (near, sockets) = (near.unwrap(), finish(socket, &listener));
    let far = server.circuit(&Request::Accept, sockets.1.as_fd()).unwrap();
    One { client, server, near, far, sockets }
}

fn one(lab: &Lab) -> One {
    let hello = |name| Client::hello(&lab.control(1), name);
    stream(hello("client"), hello("server"))
}

fn hello(ticket: u64) -> Request {
    Request::Hello { version: PROTOCOL_VERSION, program: "again".to_owned(), ticket }
}

fn open_ends(status: &serde_json::Value) -> usize {
    status["circuits"].as_array().unwrap().iter().filter(|end| end["state"] == "open").count()
}

fn is_lost(status: &serde_json::Value) -> bool {
    status["lost_sessions"] == 1
}

#[test]
fn session_goes_on_by_another_connection_with_all_that_it_has() {
    let lab = host("");
    let One { mut client, mut server, near, far, sockets: _sockets } = one(&lab);
    let (waiter, event) = client.waiter();
    for _ in 0..5 {
        client.lose();
        let status = lab.wait(1, "the session is lost", is_lost);
        assert_eq!(open_ends(&status), 2);
        check_joined(&near, &far);
        assert!(client.come_again(&lab.control(1)));
        assert_eq!(lab.status(1)["lost_sessions"], 0);
    }
    // Its wake event is rung for its end, and it speaks of its end, as before.
    server.tell(&Request::Wake { circuit: far.id, token: far.token, waiter }, &[]);
    wait_readable(event.as_fd());
    assert_eq!(client.status(&near), 0);
    client.close(&near, false);
    lab.wait(1, "it is closed", |status| open_ends(status) == 1);
    // The ticket of a session that has a connection takes that one's place: the program may see its end before we do.
    assert!(server.come_again(&lab.control(1)));
    server.close(&far, false);
    lab.wait(1, "both are closed", |status| open_ends(status) == 0);
}

#[test]
fn session_that_the_daemon_ends_waits_for_its_program_too() {
    let lab = host("");
    let One { mut client, server: _server, near, far, sockets: _sockets } = one(&lab);
    let long = vec![7; MAX_MESSAGE + 1];
    rustix::net::send(client.socket(), &long, SendFlags::DONTWAIT).unwrap();
    let status = lab.wait(1, "the session is lost", is_lost);
    assert_eq!(open_ends(&status), 2);
    check_joined(&near, &far);
    assert!(client.come_again(&lab.control(1)));
    check_joined(&near, &far);
}

#[test]
fn ticket_that_is_wrong_is_a_new_session() {
    let lab = host("");
    let One { mut client, server, near: _near, far: _far, sockets: _sockets } = one(&lab);
    let right = client.ticket();
    assert!(right != 0 && right != server.ticket());
    client.lose();
    lab.wait(1, "the session is lost", is_lost);
    for wrong in [0, 1, right ^ 1, right << 1, u64::MAX] {
        let mut stranger = Client::connect(&lab.control(1)).unwrap();
        let (reply, _) = stranger.ask(&hello(wrong), &[]);
        assert!(matches!(reply, Reply::Welcome { resumed: false, .. }), "{wrong:x}: {reply:?}");
    }
    assert!(client.come_again(&lab.control(1)));
}

/// Says what it is told to at a control socket, and prints the answer, in hexadecimal.
const SAYS: &str = "
import socket, sys
control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
control.settimeout(20)
control.connect(sys.argv[1])
control.send(bytes.fromhex(sys.argv[2]))
print(control.recv(65536).hex())
";

/// A program that was forked knows its parent's ticket, and is another process.
#[test]
fn ticket_of_another_process_is_a_new_session() {
    let lab = host("");
    let One { mut client, server: _server, near: _near, far: _far, sockets: _sockets } = one(&lab);
    client.lose();
    lab.wait(1, "the session is lost", is_lost);
    let hello: String =
        codec::encode(&hello(client.ticket())).unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
    let mut child = Command::new("python3");
    let Ok(child) = child.args(["-c", SAYS]).arg(lab.control(1)).arg(hello).output() else {
        println!("SKIPPED: needs python3");
        return;
    };
    let answer = String::from_utf8(child.stdout).unwrap();
    let bytes: Vec<u8> = answer
        .trim()
        .as_bytes()
        .chunks(2)
        .map(|digits| u8::from_str_radix(core::str::from_utf8(digits).unwrap(), 16).unwrap())
        .collect();
    let reply = codec::decode::<Reply>(&bytes).unwrap();
    assert!(matches!(reply, Reply::Welcome { resumed: false, .. }), "{reply:?}");
    assert!(client.come_again(&lab.control(1)));
}

#[test]
fn lost_session_ends_with_the_sockets_of_its_ends() {
    let lab = host("");
    let One { mut client, server: _server, near: _near, far: _far, sockets } = one(&lab);
    client.lose();
    lab.wait(1, "the session is lost", is_lost);
    drop(sockets.0);
    let status = lab.wait(1, "the session is over", |status| status["lost_sessions"] == 0);
    assert_eq!(open_ends(&status), 1);
    assert!(!client.come_again(&lab.control(1)));
    // A session without an end never waits.
    drop(Client::hello(&lab.control(1), "nothing"));
    assert_eq!(lab.status(1)["lost_sessions"], 0);
}

/// A look at an end finds it held for the sake of a session that lives; when that ends, too, nobody else says so.
#[test]
fn lost_session_ends_with_its_ends_other_holder() {
    let lab = host("");
    let One { mut client, server: _server, near, far: _far, sockets } = one(&lab);
    let mut heir = Client::hello(&lab.control(1), "heir");
    heir.tell(&Request::Hold { ends: vec![near.key()] }, &[]);
    let seen = heir.ask(&Request::Resume { circuit: near.id, token: near.token, generation: 0 }, &[]).0;
    assert_eq!(
        seen,
        Reply::Plain { why: Plain::System },
        "it holds the end, of which there is nothing newer"
    );
    client.lose();
    lab.wait(1, "the session is lost", is_lost);
    // The looks at the end that follow at once have found it held.
    std::thread::sleep(Duration::from_millis(100));
    drop(sockets.0);
    drop(heir);
    let status = lab.wait(1, "the session is over", |status| status["lost_sessions"] == 0);
    assert_eq!(open_ends(&status), 1);
}

/// Whoever loses sessions on purpose pays for each, and goes on with them also when his quota is used up.
#[test]
fn lost_sessions_count() {
    if !may_be_others() {
        return;
    }
    let lab = host("[quota]\nsessions = 4");
    let (mut held, begin) = (Vec::new(), Instant::now());
    while let Some(client) = Client::hello_as(&lab.control(1), GREEDY) {
        assert!(begin.elapsed() < PATIENCE, "lost sessions cost nothing");
        let mut one = stream(client, Client::hello(&lab.control(1), "server"));
        one.client.lose();
        held.push(one);
        let count = held.len();
        lab.wait(1, "it is lost", |status| status["lost_sessions"] == count);
    }
    assert_eq!(held.len(), 4, "as many sessions as the user may have");
    let guest = |ticket| {
        let mut guest = Client::connect_as(&lab.control(1), GREEDY).unwrap();
        let reply = guest.ask(&hello(ticket), &[]).0;
        (guest, reply)
    };
    assert!(matches!(guest(1).1, Reply::Error { .. }));
    let back: Vec<Client> = held
        .iter()
        .map(|one| {
            let (guest, reply) = guest(one.client.ticket());
            assert!(matches!(reply, Reply::Welcome { resumed: true, .. }), "{reply:?}");
            check_joined(&one.near, &one.far);
            guest
        })
        .collect();
    assert!(Client::hello_as(&lab.control(1), GREEDY).is_none(), "nobody is waited for any more");
    drop(back);
}

/// However many ends are to be checked, the next one is looked at as soon as it would be without them.
#[test]
fn ends_in_doubt_wait_for_no_others() {
    let lab = host("");
    let hello = |name| Client::hello(&lab.control(1), name);
    let (mut client, mut server) = (hello("many"), hello("server"));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    server.listen(&listener);
    let many: Vec<_> = (0..400)
        .map(|_| {
            let (socket, near) = client.connect_to("127.0.0.1:0", listener.local_addr().unwrap());
            let (near, pair) = (near.unwrap(), finish(socket, &listener));
            (near, server.circuit(&Request::Accept, pair.1.as_fd()).unwrap(), pair)
        })
        .collect();
    client.lose();
    lab.wait(1, "the session is lost", is_lost);
    let One { client: mut last, server: _other, near: _near, far: _far, sockets } = one(&lab);
    last.lose();
    lab.wait(1, "both sessions are lost", |status| status["lost_sessions"] == 2);
    drop(sockets.0);
    lab.wait(1, "the last one is closed", |status| open_ends(status) == 801);
    drop(many);
}

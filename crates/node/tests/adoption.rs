//! Who gets an end: whoever proves it by its socket or its token, and that end only.

mod support;

use crosslane_shm::mem::new_segment;
use crosslane_wire::buffer::memory_len;
use crosslane_wire::local::{Plain, Reply, Request};
use crosslane_wire::{BufferId, CircuitId, Reach, WaiterId};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use support::*;

/// Two streams of one program within a host.
struct Two {
    lab: Lab,
    client: Client,
    server: Client,
    near: [Circuit; 2],
    far: [Circuit; 2],
    sockets: Vec<(TcpStream, TcpStream)>,
}

fn two() -> Two {
    let mut lab = Lab::new();
    lab.configure(1, 1, &[], "");
    lab.start(1);
    let mut client = Client::hello(&lab.control(1), "client");
    let mut server = Client::hello(&lab.control(1), "server");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    server.listen(&listener);
    let mut sockets = Vec::new();
    let ends = [(); 2].map(|()| {
        let (socket, near) = client.connect_to("127.0.0.1:0", listener.local_addr().unwrap());
        let (near, pair) = (near.unwrap(), finish(socket, &listener));
        let far = server.circuit(&Request::Accept, pair.1.as_fd()).unwrap();
        sockets.push(pair);
        (near, far)
    });
    let [(near_a, far_a), (near_b, far_b)] = ends;
    Two { lab, client, server, near: [near_a, near_b], far: [far_a, far_b], sockets }
}

fn number(fd: &OwnedFd) -> u64 {
    rustix::fs::fstat(fd).unwrap().st_ino
}

/// All that can be asked about an end, with this proof of it.
fn requests(circuit: CircuitId, token: u64) -> [Request; 5] {
    let (buffer, waiter, len) = (BufferId(7), WaiterId(1), 65536);
    [
        Request::Resume { circuit, token, generation: 0 },
        Request::WantWaker { circuit, token, waiter },
        Request::ExportBuffer { circuit, token, buffer, len, reach: Reach::Store },
        Request::ImportBuffer { circuit, token, buffer },
        Request::RegisterRings { circuit, token, generation: 0 },
    ]
}

#[test]
fn heir_of_one_end_gets_nothing_of_another() {
    let mut two = two();
    let mut heir = Client::hello(&two.lab.control(1), "heir");
    let adopted = heir.circuit(&Request::Adopt, two.sockets[0].0.as_fd()).unwrap();
    let state = |circuit: &Circuit| number(&circuit.state.as_ref().unwrap().1);
    assert_eq!(number(&adopted.fds[2]), state(&two.near[0]));
    assert_ne!(state(&two.near[0]), state(&two.near[1]), "each end has memory of its own");
    let memory = new_segment("buffer", memory_len(65536)).unwrap();
    let victim = &two.near[1];
    for token in [adopted.token, 0, two.far[1].token, victim.token ^ 1] {
        for request in requests(victim.id, token) {
            let (reply, fds) = heir.ask(&request, &[memory.as_fd()]);
            let refused = matches!(
                reply,
                Reply::Plain { .. }
                    | Reply::Error { .. }
                    | Reply::Waker { by: None }
                    | Reply::Buffer { shape: None }
                    | Reply::RegisteredRings { handle: 0 }
            );
            assert!(refused && fds.is_empty(), "{request:?}: {reply:?}");
        }
        heir.tell(&Request::Close { circuit: victim.id, token, abort: true }, &[]);
        heir.tell(&Request::Violated { circuit: victim.id, token, text: "a lie".to_owned() }, &[]);
        heir.tell(&Request::Hold { ends: vec![(victim.id, token)] }, &[]);
    }
    assert_eq!(two.lab.status(1)["counters"]["violations"], 0);
    assert_eq!((two.client.status(victim), two.server.status(&two.far[1])), (0, 0));
    check_joined(victim, &two.far[1]);
    // It holds nothing of it either: with its owner and the socket it goes, while the adopted one stays.
    drop(two.client);
    two.sockets.truncate(1);
    two.lab.wait(1, "one is left", |status| {
        let open = status["circuits"].as_array().unwrap().iter().filter(|end| end["state"] == "open");
        open.count() == 3
    });
    assert_eq!(two.server.status(&two.far[0]), 0);
    check_joined(&adopted, &two.far[0]);
}

#[test]
fn fork_child_holds_what_it_has_the_tokens_of() {
    let mut two = two();
    let child = Client::hello(&two.lab.control(1), "child");
    child.tell(&Request::Hold { ends: vec![two.near[0].key(), (two.near[1].id, two.near[0].token)] }, &[]);
    let mut child = child;
    let mut probe = |end: &Circuit| {
        let request = Request::Resume { circuit: end.id, token: end.token, generation: 0 };
        child.ask(&request, &[]).0
    };
    // Nothing came after the first generation; the request shows that `Hold` was handled.
    assert_eq!(probe(&two.near[0]), Reply::Plain { why: Plain::System });
    drop(two.client);
    // The socket of the other one is closed in all processes; that of the first one is open for the child's sake.
    two.sockets.truncate(1);
    two.lab.wait(1, "one is left", |status| {
        let open = status["circuits"].as_array().unwrap().iter().filter(|end| end["state"] == "open");
        open.count() == 3
    });
    check_joined(&two.near[0], &two.far[0]);
    drop(child);
    two.sockets.clear();
    two.lab.wait(1, "none is left of the client's", |status| {
        let open = status["circuits"].as_array().unwrap().iter().filter(|end| end["state"] == "open");
        open.count() == 2
    });
}

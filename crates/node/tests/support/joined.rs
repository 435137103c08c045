//! Streams between programs of a ring's hosts.

use super::{Circuit, Client, Lab, finish, port};
use crosslane_wire::local::Request;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

/// A ring of `hosts` daemons, all up.
pub fn ring(hosts: u16, more: &str) -> Lab {
    let mut lab = Lab::new();
    let cable = |number: u16| -> &'static str { ["", "c1", "c2", "c3", "c4", "c5"][usize::from(number)] };
    for host in 1..=hosts {
        let before = if host == 1 { hosts } else { host - 1 };
        lab.configure(host.into(), host, &[port(cable(host), true), port(cable(before), false)], more);
    }
    (1..=hosts).for_each(|host| lab.start(host.into()));
    for host in 1..=hosts {
        lab.wait(host.into(), "both cables and all hosts", |status| {
            let hosts_known = status["hosts"].as_array().unwrap();
            hosts_known.len() + 1 == usize::from(hosts)
                && hosts_known.iter().all(|host| host["ways"].as_array().unwrap().len() == 2)
        });
    }
    lab
}

/// A stream between programs on hosts 1 and `to`.
pub struct Joined {
    pub client: Client,
    pub server: Client,
    pub near: Circuit,
    pub far: Circuit,
    pub sockets: (TcpStream, TcpStream),
    _listener: TcpListener,
}

pub fn join(lab: &Lab, to: usize) -> Joined {
    join_by(lab, to, Client::hello(&lab.control(1), "client"))
}

/// The same, the client being a session that is there already.
pub fn join_by(lab: &Lab, to: usize, mut client: Client) -> Joined {
    let mut server = Client::hello(&lab.control(to), "server");
    let listener = TcpListener::bind(format!("127.86.0.{to}:0")).unwrap();
    server.listen(&listener);
    let (socket, near) = client.connect_to("127.86.0.1:0", listener.local_addr().unwrap());
    let near = near.expect("a circuit");
    let (ours, theirs) = finish(socket, &listener);
    let far = server.circuit(&Request::Accept, theirs.as_fd()).expect("it was announced");
    Joined { client, server, near, far, sockets: (ours, theirs), _listener: listener }
}

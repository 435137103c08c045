//! Quotas of a real daemon: what one user takes is never all.

mod support;

use crosslane_wire::codec;
use crosslane_wire::local::{Reply, Request};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::Value;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::AsFd;
use support::{Client, Lab, may_be_others, new_arena, new_eventfd, port, until};

const GREEDY: u32 = 4001;
const OTHER: u32 = 4002;

/// A daemon alone, with these lines of configuration.
fn alone(more: &str) -> Lab {
    let mut lab = Lab::new();
    lab.configure(1, 1, &[port("c", true)], more);
    lab.start(1);
    lab.open_to_all();
    lab
}

/// What a user has of a kind.
fn used(lab: &Lab, uid: u32, kind: &str) -> u64 {
    let status = lab.status(1);
    let payers = status["quota"]["payers"].as_array().unwrap().clone();
    let payer = payers.into_iter().find(|payer| payer["user"] == uid).unwrap_or(Value::Null);
    payer["holds"][kind]["used"].as_u64().unwrap_or(0)
}

/// Asks again and again until it is refused; how often it was not.
fn as_often_as(client: &mut Client, mut ask: impl FnMut(&mut Client) -> Reply, most: usize) -> usize {
    (0..most).take_while(|_| !matches!(ask(client), Reply::Error { .. })).count()
}

fn ask_waiter(client: &mut Client) -> Reply {
    client.ask(&Request::Waiter, &[new_eventfd().as_fd()]).0
}

#[test]
fn sessions_of_a_user_are_bounded_and_another_has_its_own() {
    if !may_be_others() {
        return;
    }
    let lab = alone("[quota]\nsessions = 5");
    let hello = |uid| Client::hello_as(&lab.control(1), uid, None);
    let held: Vec<Client> = std::iter::from_fn(|| hello(GREEDY)).take(20).collect();
    assert_eq!((held.len(), used(&lab, GREEDY, "sessions")), (5, 5));
    assert!(hello(OTHER).is_some());
    drop(held);
    until("sessions are given back", || (used(&lab, GREEDY, "sessions") == 0).then_some(()));
    assert!(hello(GREEDY).is_some());
    assert!(lab.log(1).contains("user 4001 has 5 of sessions and may have 5 now"), "it is logged");
}

#[test]
fn sessions_that_never_greet_end() {
    let lab = alone("");
    let silent = Client::connect(&lab.control(1)).unwrap();
    let (mut greeted, mut buffer) = (Client::hello(&lab.control(1), "greeted", None), [0; 1]);
    until("the silent one is closed", || {
        let flags = rustix::net::RecvFlags::DONTWAIT;
        matches!(rustix::net::recv(silent.socket(), &mut buffer, flags), Ok((0, _))).then_some(())
    });
    assert!(!greeted.text(&Request::Hosts).is_empty());
}

#[test]
fn descriptors_of_a_user_are_bounded_over_all_its_sessions() {
    if !may_be_others() {
        return;
    }
    let lab = alone("[quota]\ndescriptors = 40");
    let mut sessions: Vec<Client> =
        (0..4).map(|_| Client::hello_as(&lab.control(1), GREEDY, None).unwrap()).collect();
    let waiters: usize = sessions.iter_mut().map(|one| as_often_as(one, ask_waiter, 100)).sum();
    assert_eq!((waiters, used(&lab, GREEDY, "descriptors")), (36, 40));
    let (_arena, fd) = new_arena();
    assert!(Client::hello_as(&lab.control(1), GREEDY, Some(fd.as_fd())).is_none());
    let mut other = Client::hello_as(&lab.control(1), OTHER, Some(fd.as_fd())).unwrap();
    assert!(matches!(ask_waiter(&mut other), Reply::Waiter { .. }));
    sessions.truncate(1);
    until("they are given back", || (used(&lab, GREEDY, "descriptors") < 40).then_some(()));
}

#[test]
fn without_any_configuration_a_user_leaves_descriptors_to_others() {
    if !may_be_others() {
        return;
    }
    let lab = alone("");
    let event = new_eventfd();
    let mut sessions = Vec::new();
    loop {
        let Some(mut session) = Client::hello_as(&lab.control(1), GREEDY, None) else { break };
        let ask = |one: &mut Client| one.ask(&Request::Waiter, &[event.as_fd()]).0;
        let got = as_often_as(&mut session, ask, 4000);
        sessions.push(session);
        if got < 4000 {
            break;
        }
        assert!(sessions.len() < 200, "there is no end to it");
    }
    let (_arena, fd) = new_arena();
    let mut other =
        Client::hello_as(&lab.control(1), OTHER, Some(fd.as_fd())).expect("room for another user");
    assert_eq!(as_often_as(&mut other, ask_waiter, 50), 50);
    let mut root = Client::hello(&lab.control(1), "root", Some(fd.as_fd()));
    assert_eq!(as_often_as(&mut root, ask_waiter, 50), 50);
}

#[test]
fn listeners_of_a_user_are_bounded_over_all_its_sessions() {
    if !may_be_others() {
        return;
    }
    let lab = alone("[quota.user.4001]\nlisteners = 7");
    let sockets: Vec<TcpListener> = (0..10).map(|_| TcpListener::bind("127.86.0.1:0").unwrap()).collect();
    let heard = |client: &mut Client| {
        sockets.iter().filter(|one| client.ask(&Request::Listen, &[one.as_fd()]).0 == Reply::Done).count()
    };
    let mut greedy = [(); 2].map(|()| Client::hello_as(&lab.control(1), GREEDY, None).unwrap());
    assert_eq!(greedy.each_mut().map(heard), [7, 0]);
    assert_eq!(heard(&mut Client::hello_as(&lab.control(1), OTHER, None).unwrap()), 10);
    greedy[0].tell(&Request::Unlisten { address: sockets[0].local_addr().unwrap() }, &[]);
    assert_eq!(heard(&mut greedy[1]), 1);
}

#[test]
fn descriptors_that_have_no_place_end_no_session() {
    let lab = alone("");
    let mut client = Client::hello(&lab.control(1), "generous", None);
    let event = new_eventfd();
    let many = [event.as_fd(); 20];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(20))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&many)));
    let request = codec::encode(&Request::Waiter).unwrap();
    sendmsg(client.socket(), &[IoSlice::new(&request)], &mut control, SendFlags::empty()).unwrap();
    assert!(matches!(client.answer().0, Reply::Waiter { .. }));
    assert!(matches!(ask_waiter(&mut client), Reply::Waiter { .. }));
}

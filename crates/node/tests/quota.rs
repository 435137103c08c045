//! Quotas of a real daemon: what one user takes is never all.

mod support;

use crosslane_client::session::Session;
use crosslane_wire::HostId;
use crosslane_wire::codec;
use crosslane_wire::control::Refusal;
use crosslane_wire::local::{Plain, Reply, Request, STATUS_ALIVE, status_generation, status_reason};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::Value;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use support::joined::join_by;
use support::{Circuit, Client, Lab, TestPort, finish, may_be_others, port, until};

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
    client.ask(&Request::Waiter, &[]).0
}

#[test]
fn sessions_of_a_user_are_bounded_and_another_has_its_own() {
    if !may_be_others() {
        return;
    }
    let lab = alone("[quota]\nsessions = 5");
    let hello = |uid| Client::hello_as(&lab.control(1), uid);
    let held: Vec<Client> = std::iter::from_fn(|| hello(GREEDY)).take(20).collect();
    assert_eq!((held.len(), used(&lab, GREEDY, "sessions")), (5, 5));
    assert!(hello(OTHER).is_some());
    drop(held);
    until("sessions are given back", || (used(&lab, GREEDY, "sessions") == 0).then_some(()));
    assert!(hello(GREEDY).is_some());
    assert!(lab.log(1).contains("user 4001 has 5 of sessions and may have 5 now"), "it is logged");
}

#[test]
fn quotas_are_read_again_and_nobody_loses_what_he_has() {
    if !may_be_others() {
        return;
    }
    let mut lab = alone("[quota]\nsessions = 5");
    let hello = |lab: &Lab| Client::hello_as(&lab.control(1), GREEDY);
    let fill = |lab: &Lab| -> Vec<Client> { std::iter::from_fn(|| hello(lab)).take(20).collect() };
    let limit = |lab: &Lab| {
        let status = lab.status(1);
        let payers = status["quota"]["payers"].as_array().unwrap().clone();
        let payer = payers.into_iter().find(|payer| payer["user"] == GREEDY);
        payer.and_then(|payer| payer["holds"]["sessions"]["limit"].as_u64())
    };
    let change = |lab: &mut Lab, sessions: u64| {
        lab.configure(1, 1, &[port("c", true)], &format!("[quota]\nsessions = {sessions}"));
        lab.reload(1);
        until("it was read again", || (limit(lab) == Some(sessions)).then_some(()));
    };
    let mut held = fill(&lab);
    assert_eq!(held.len(), 5);
    change(&mut lab, 2);
    for session in &mut held {
        assert!(matches!(ask_waiter(session), Reply::Waiter { .. }), "what is there stays");
    }
    assert!(hello(&lab).is_none());
    held.truncate(1);
    until("they are given back", || (used(&lab, GREEDY, "sessions") == 1).then_some(()));
    held.extend(fill(&lab));
    assert_eq!(held.len(), 2);
    change(&mut lab, 8);
    held.extend(fill(&lab));
    assert_eq!(held.len(), 8);
}

/// The daemon refuses who connects before it has read anything of his.
#[test]
fn quota_of_sessions_refuses_with_the_reason() {
    if !may_be_others() {
        return;
    }
    let lab = alone("[quota]\nsessions = 1");
    let _held = Client::hello_as(&lab.control(1), GREEDY).unwrap();
    let path = lab.control(1);
    let refused = move || {
        let user = rustix::process::Uid::from_raw(GREEDY);
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        let ask = || Session::connect(&path).and_then(|session| session.hello("refused"));
        (0..300).map(|_| ask().unwrap_err().to_string()).collect::<Vec<_>>()
    };
    for reason in std::thread::spawn(refused).join().unwrap() {
        assert!(reason.contains("user 4001 has 1 of sessions and may have 1 now"), "{reason}");
    }
}

#[test]
fn sessions_that_never_greet_end() {
    let lab = alone("");
    let silent = Client::connect(&lab.control(1)).unwrap();
    let (mut greeted, mut buffer) = (Client::hello(&lab.control(1), "greeted"), [0; 1]);
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
        (0..4).map(|_| Client::hello_as(&lab.control(1), GREEDY).unwrap()).collect();
    let waiters: usize = sessions.iter_mut().map(|one| as_often_as(one, ask_waiter, 100)).sum();
    assert_eq!((waiters, used(&lab, GREEDY, "descriptors")), (36, 40));
    assert!(Client::hello_as(&lab.control(1), GREEDY).is_none());
    let mut other = Client::hello_as(&lab.control(1), OTHER).unwrap();
    assert!(matches!(ask_waiter(&mut other), Reply::Waiter { .. }));
    sessions.truncate(1);
    until("they are given back", || (used(&lab, GREEDY, "descriptors") < 40).then_some(()));
}

#[test]
fn wake_event_that_nobody_sleeps_on_is_given_back_by_its_session_only() {
    if !may_be_others() {
        return;
    }
    let lab = alone("[quota]\ndescriptors = 40");
    let session = || Client::hello_as(&lab.control(1), GREEDY).unwrap();
    let (mut client, mut other) = (session(), session());
    let before = used(&lab, GREEDY, "descriptors");
    for _ in 0..200 {
        let Reply::Waiter { waiter, .. } = ask_waiter(&mut client) else { panic!("no wake event") };
        client.tell(&Request::Unwait { waiter }, &[]);
    }
    let Reply::Waiter { waiter, .. } = ask_waiter(&mut client) else { panic!("no wake event") };
    other.tell(&Request::Unwait { waiter }, &[]);
    assert!(matches!(ask_waiter(&mut other), Reply::Waiter { .. }));
    assert_eq!(used(&lab, GREEDY, "descriptors"), before + 2);
}

#[test]
fn quota_leaves_descriptors_to_others_without_any_configuration() {
    if !may_be_others() {
        return;
    }
    let lab = alone("");
    let mut sessions = Vec::new();
    loop {
        let Some(mut session) = Client::hello_as(&lab.control(1), GREEDY) else { break };
        let got = as_often_as(&mut session, ask_waiter, 4000);
        sessions.push(session);
        if got < 4000 {
            break;
        }
        assert!(sessions.len() < 200, "there is no end to it");
    }
    let mut other = Client::hello_as(&lab.control(1), OTHER).expect("room for another user");
    assert_eq!(as_often_as(&mut other, ask_waiter, 50), 50);
    let mut root = Client::hello(&lab.control(1), "root");
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
    let mut greedy = [(); 2].map(|()| Client::hello_as(&lab.control(1), GREEDY).unwrap());
    assert_eq!(greedy.each_mut().map(heard), [7, 0]);
    assert_eq!(heard(&mut Client::hello_as(&lab.control(1), OTHER).unwrap()), 10);
    greedy[0].tell(&Request::Unlisten { address: sockets[0].local_addr().unwrap() }, &[]);
    assert_eq!(heard(&mut greedy[1]), 1);
}

#[test]
fn descriptors_that_have_no_place_end_no_session() {
    let lab = alone("");
    let mut client = Client::hello(&lab.control(1), "generous");
    let (_read, event) = rustix::pipe::pipe().unwrap();
    let many = [event.as_fd(); 20];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(20))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&many)));
    let request = codec::encode(&Request::Waiter).unwrap();
    sendmsg(client.socket(), &[IoSlice::new(&request)], &mut control, SendFlags::empty()).unwrap();
    assert!(matches!(client.answer().0, Reply::Waiter { .. }));
    assert!(matches!(ask_waiter(&mut client), Reply::Waiter { .. }));
}

/// A stream end that was asked for, with its socket.
type End = (OwnedFd, Circuit);

/// Connects again and again until that is refused; what it got, and why there is no more.
fn connect_on(client: &mut Client, listener: &TcpListener, most: usize) -> (Vec<End>, Reply) {
    let (mut ends, local) = (Vec::new(), "127.86.0.1:0");
    while ends.len() < most {
        match client.connect_to(local, listener.local_addr().unwrap()) {
            (socket, Ok(circuit)) => ends.push((socket, circuit)),
            (_, Err(reply)) => return (ends, reply),
        }
    }
    (ends, Reply::Done)
}

fn no_more() -> Reply {
    Reply::Plain { why: Plain::Refused(Refusal::Quota) }
}

/// A session of a user.
fn program(lab: &Lab, uid: u32) -> Client {
    Client::hello_as(&lab.control(1), uid).expect("a session")
}

#[test]
fn circuits_of_a_user_are_bounded_and_the_accepting_user_pays_for_what_it_accepts() {
    if !may_be_others() {
        return;
    }
    let lab = alone("[quota]\ncircuits = 20");
    let listener = TcpListener::bind("127.86.0.1:0").unwrap();
    let mut server = program(&lab, OTHER);
    server.listen(&listener);
    let mut greedy = program(&lab, GREEDY);
    let (mut ends, refused) = connect_on(&mut greedy, &listener, 100);
    assert_eq!(
        (ends.len(), refused),
        (10, no_more()),
        "both ends of each are its own until they are accepted"
    );
    assert_eq!([used(&lab, GREEDY, "circuits"), used(&lab, OTHER, "circuits")], [20, 0]);
    let (socket, _) = ends.pop().unwrap();
    let (_ours, theirs) = finish(socket, &listener);
    server.circuit(&Request::Accept, theirs.as_fd()).expect("it was announced");
    assert_eq!([used(&lab, GREEDY, "circuits"), used(&lab, OTHER, "circuits")], [19, 1]);
    assert_eq!(used(&lab, GREEDY, "pending"), 9);
    drop(greedy);
    let given_back = |status: &Value| status["circuits"].as_array().unwrap().len() <= 2;
    lab.wait(1, "all but the accepted one is given back", given_back);
}

#[test]
fn ends_that_nobody_accepts_are_bounded_for_each_user() {
    if !may_be_others() {
        return;
    }
    let lab = alone("[quota]\npending = 5");
    let listener = TcpListener::bind("127.86.0.1:0").unwrap();
    program(&lab, OTHER).listen(&listener);
    let mut server = Client::hello(&lab.control(1), "server");
    server.listen(&listener);
    let taken = [GREEDY, OTHER].map(|uid| connect_on(&mut program(&lab, uid), &listener, 9).0.len());
    assert_eq!(taken, [5, 5]);
}

#[test]
fn listener_whose_user_has_all_it_may_have_is_met_by_tcp() {
    if !may_be_others() {
        return;
    }
    let lab = alone("[quota.user.4002]\ncircuits = 1");
    let listener = TcpListener::bind("127.86.0.1:0").unwrap();
    let (mut server, mut client) = (program(&lab, OTHER), program(&lab, GREEDY));
    server.listen(&listener);
    let (mut ends, _) = connect_on(&mut client, &listener, 1);
    let (_ours, theirs) = finish(ends.pop().unwrap().0, &listener);
    server.circuit(&Request::Accept, theirs.as_fd()).expect("it was announced");
    let (ends, refused) = connect_on(&mut client, &listener, 9);
    assert_eq!((ends.len(), refused), (0, no_more()));
}

/// Three hosts in a ring whose windows hold some thirty long rings each, and some hundreds of short ones.
fn narrow_ring() -> Lab {
    let mut lab = Lab::new();
    let port = |cable, listens| TestPort { cable, listens, window: "64M" };
    lab.configure(1, 1, &[port("c12", true), port("c31", false)], "");
    lab.configure(2, 2, &[port("c23", true), port("c12", false)], "");
    lab.configure(3, 3, &[port("c31", true), port("c23", false)], "");
    (1..=3).for_each(|number| lab.start(number));
    for number in 1..=3 {
        lab.wait(number, "both cables and all hosts", |status| {
            let hosts = status["hosts"].as_array().unwrap();
            hosts.len() == 2 && hosts.iter().all(|host| host["ways"].as_array().unwrap().len() == 2)
        });
    }
    lab.open_to_all();
    lab
}

#[test]
fn quota_of_who_fills_the_windows_leaves_room_for_others_and_for_moves() {
    if !may_be_others() {
        return;
    }
    let lab = narrow_ring();
    let mut server = Client::hello(&lab.control(2), "server");
    let listener = TcpListener::bind("127.86.0.2:0").unwrap();
    server.listen(&listener);
    let other = Client::hello_as(&lab.control(1), OTHER).unwrap();
    let stream = join_by(&lab, 2, other);
    let mut greedy = program(&lab, GREEDY);
    let near = TcpListener::bind("127.86.0.3:0").unwrap();
    let mut neighbour = Client::hello(&lab.control(3), "server");
    neighbour.listen(&near);
    let taken = [&listener, &near].map(|listener| connect_on(&mut greedy, listener, 400));
    let counts = taken.each_ref().map(|(ends, _)| ends.len());
    assert!(counts.iter().all(|count| (20..400).contains(count)), "{counts:?}: long rings, then short ones");
    assert!(taken.iter().all(|(_, refused)| *refused == no_more()));
    // Another user connects as before,
    let (more, _) = connect_on(&mut program(&lab, OTHER), &listener, 3);
    assert_eq!(more.len(), 3);
    // and its stream finds its way when a cable is cut, though all those of the other look for one, too.
    let mut tool = Client::hello(&lab.control(1), "lab");
    assert_eq!(tool.ask(&Request::Cut { port: "c12".to_owned() }, &[]).0, Reply::Done);
    until("the stream goes on", || {
        let word = stream.client.status(&stream.near);
        (status_generation(word) > 0 && status_reason(word) == STATUS_ALIVE).then_some(())
    });
}

#[test]
fn users_see_what_they_have_and_may_have() {
    let lab = alone("[quota]\nsessions = 77\nmoves = 20");
    let status = lab.status(1);
    let quota = &status["quota"];
    assert_eq!((&quota["moves_percent"], &quota["root_percent"]), (&20.into(), &5.into()));
    let pools = quota["pools"].as_array().unwrap();
    let capacity = |kind: &str| {
        let pool = pools.iter().find(|pool| pool["kind"] == kind).unwrap();
        pool["capacity"].as_u64()
    };
    assert!(capacity("descriptors").is_some() && capacity("window") > Some(1 << 29));
    assert!(quota["payers"].as_array().unwrap().iter().any(|payer| payer["holds"]["sessions"]["used"] == 1));
    let text = Client::hello(&lab.control(1), "metrics").text(&Request::Metrics);
    assert!(text.contains("crosslane_quota_refused_total{kind=\"window\"} 0"), "{text}");
}

#[test]
fn requests_of_a_user_are_served_at_its_rate_and_nobody_waits_for_them() {
    if !may_be_others() {
        return;
    }
    let lab = alone("[quota]\nrequests = 1000");
    let mut greedy: Vec<Client> =
        (0..20).map(|_| Client::hello_as(&lab.control(1), GREEDY).unwrap()).collect();
    let mut other = Client::hello_as(&lab.control(1), OTHER).unwrap();
    let note = Request::Note { fd: 1, remote: "127.86.0.1:1".parse().unwrap(), why: Plain::Exec };
    let noted = |lab: &Lab| lab.status(1)["counters"]["plain"]["Exec"].as_u64().unwrap_or(0);
    let begin = Instant::now();
    let mut echoes = Vec::new();
    while begin.elapsed() < Duration::from_secs(2) {
        for session in &mut greedy {
            while session.try_tell(&note).is_ok() {}
        }
        let sent = Instant::now();
        other.ask(&Request::Echo { to: HostId(1) }, &[]);
        echoes.push(sent.elapsed());
    }
    let (served, time) = (noted(&lab), begin.elapsed().as_secs_f64());
    let most = 1000.0 * (time + 2.0) + 200.0;
    assert!(served >= 1000 && (served as f64) < most, "{served} requests in {time} s");
    echoes.sort();
    assert!(echoes[echoes.len() / 2] < Duration::from_millis(20), "{:?}", echoes[echoes.len() / 2]);
    // What waits is served in the end.
    let before = noted(&lab);
    until("the rest is served", || (noted(&lab) > before + 500).then_some(()));
}

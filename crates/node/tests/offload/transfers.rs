//! What arrives, when the engine copies.

use crate::support::{Lab, PATIENCE, port, until};
use crate::{bytes, check_flow, fabric, join, listen, moved, pair};
use crosslane::stream::Error;
use std::time::{Duration, Instant};

#[test]
fn transfers_arrive_in_order_whatever_the_lengths() {
    let lab = pair();
    let (client, server) = join(&lab, 1, 2);
    let lengths = [1, 100_000, 16_384, 3, 1 << 20, 65_536, 65_535, 140_000, 9_000_001, 20_000, 7];
    check_flow(&client, &server, 5, &lengths, 1 << 20);
    check_flow(&server, &client, 9, &lengths, 77_777);
    check_flow(&client, &server, 1, &lengths, 16_384);
    let (sent, received) = (moved(&lab, 1), moved(&lab, 2));
    assert!(sent.0 > 10_000_000 && received.1 > 5_000_000, "the engine did it: {sent:?} {received:?}");
    let statistics = client.statistics();
    assert_eq!(statistics.sent.offloaded, sent.0);
    assert_eq!(
        (statistics.tx_bytes, statistics.rx_bytes),
        (server.statistics().rx_bytes, server.statistics().tx_bytes)
    );
}

#[test]
fn transfers_go_in_both_directions_at_once_and_within_one_host() {
    let lab = pair();
    let (client, server) = join(&lab, 1, 1);
    std::thread::scope(|scope| {
        scope.spawn(|| check_flow(&client, &server, 3, &[2_000_000; 10], 1 << 20));
        scope.spawn(|| check_flow(&server, &client, 8, &[300_000; 60], 500_000));
    });
    let (sent, received) = moved(&lab, 1);
    assert!(sent > 20_000_000 && received > 5_000_000, "{sent} {received}");
}

#[test]
fn stream_that_is_not_told_to_is_not_offloaded() {
    let lab = pair();
    let (client, server) = join(&lab, 1, 2);
    client.set_offload(false);
    server.set_offload(false);
    check_flow(&client, &server, 0, &[1 << 20; 8], 1 << 20);
    assert_eq!(lab.status(1)["offload"], serde_json::Value::Null);
}

#[test]
fn reader_that_comes_late_finds_all_and_a_writer_that_may_not_wait_long_is_told() {
    let lab = pair();
    let (client, server) = join(&lab, 1, 2);
    client.set_send_timeout(Some(Duration::from_millis(300)));
    let long = bytes(0, 64 << 20);
    let start = Instant::now();
    let Err(Error::TimedOut { done, .. }) = client.send(&long) else { panic!("nobody reads") };
    assert!(start.elapsed() < PATIENCE && done > 500_000, "{done}");
    let mut space = vec![0; done];
    server.receive_all(&mut space).unwrap();
    assert!(space == long[..done]);
    server.set_receive_timeout(Some(Duration::from_millis(50)));
    assert!(matches!(server.receive(&mut space), Err(Error::TimedOut { .. })));
}

#[test]
fn stream_goes_on_by_another_way_when_its_cable_is_cut() {
    let mut lab = Lab::new();
    let config = "offload_least = \"16K\"";
    lab.configure(1, 1, &[port("c12", true), port("c31", false)], config);
    lab.configure(2, 2, &[port("c23", true), port("c12", false)], config);
    lab.configure(3, 3, &[port("c31", true), port("c23", false)], config);
    (1..=3).for_each(|number| lab.start(number));
    (1..=3).for_each(|number| {
        lab.wait_hosts(
            number,
            &[1, 2, 3].into_iter().filter(|host| *host != number as u64).collect::<Vec<_>>(),
        )
    });
    let (client, server) = join(&lab, 1, 2);
    check_flow(&client, &server, 0, &[1 << 20; 4], 1 << 20);
    std::thread::scope(|scope| {
        scope.spawn(|| check_flow(&client, &server, 7, &[500_000; 400], 1 << 20));
        std::thread::sleep(Duration::from_millis(10));
        let request = crosslane_wire::local::Request::Cut { port: "c12".to_owned() };
        let mut tool = crate::support::Client::hello(&lab.control(1), "tool");
        tool.ask(&request, &[]);
    });
    until("it moved", || (lab.status(1)["counters"]["moves"].as_u64() > Some(0)).then_some(()));
}

#[test]
fn engine_that_has_nothing_to_do_sleeps() {
    let lab = pair();
    let (client, server) = join(&lab, 1, 2);
    check_flow(&client, &server, 0, &[1 << 20; 8], 1 << 20);
    let sleeps = |host| lab.status(host)["offload"]["send"]["sleeps"].as_u64().unwrap();
    let before = until("it sleeps", || Some(sleeps(1)).filter(|count| *count > 0));
    check_flow(&client, &server, 1, &[1 << 20; 8], 1 << 20);
    until("it sleeps again", || (sleeps(1) > before).then_some(()));
}

#[test]
fn daemon_uses_the_copy_and_the_processors_that_it_is_told() {
    for copy in ["cached", "non-temporal", "rep-movs"] {
        let mut lab = Lab::new();
        let config = format!("offload_least = \"16K\"\noffload_copy = \"{copy}\"\noffload_cpus = [0, 0]");
        lab.configure(1, 1, &[], &config);
        lab.start(1);
        let far = fabric(&lab, 1);
        let listener = listen(&far, 1);
        let client = fabric(&lab, 1).connect(listener.address()).unwrap();
        let server = listener.accept().unwrap();
        [&client, &server].iter().for_each(|stream| stream.set_offload(true));
        check_flow(&client, &server, 0, &[700_000; 5], 1 << 20);
        let told = lab.status(1)["offload"]["send"]["copy"].clone();
        assert_eq!(told.as_str().map(|name| name.replace(' ', "-")).as_deref(), Some(copy));
    }
}
